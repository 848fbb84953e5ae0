"""The workloads: which nodes there are, which pods are there before, which are measured, and what happens meanwhile.

Sizes are those at which kube-scheduler was measured (`kube_scheduler`), and where it was not, the largest of the published ones.

Source: the workloads of kubernetes' scheduler_perf, as facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from benchmarks import shapes
from rayched.api.kinds import AnyObject
from rayched.v1.core_pb2 import Node, Pod

MEASURED_NAMESPACE: Final = "sched-1"
INIT_NAMESPACE: Final = "sched-0"


@dataclass(frozen=True, slots=True)
class Group:
    """Pods of one shape, dealt out over some namespaces in turn."""

    shape: str
    namespaces: tuple[str, ...] = (INIT_NAMESPACE,)
    share: int = 1
    """Of the workload's init pods, one in `share` belongs to this group."""

    def pods(self, count: int, prefix: str, templates: int = 1) -> Iterator[Pod]:
        """With `templates` above 1 the pods come from so many, in turn."""
        made = [
            shapes.template(self.shape, namespace, None if templates == 1 else variant)
            for variant in range(templates)
            for namespace in self.namespaces
        ]
        for number in range(count):
            pod = Pod()
            pod.CopyFrom(made[number % len(made)])
            shapes.named(pod, f"{prefix}-{self.shape}-{number}")
            yield pod


@dataclass(frozen=True, slots=True)
class Churn:
    """What happens beside the measured pods, again and again: nodes and services come and go, pods come that fit nowhere."""

    period_seconds: float
    pod: str
    """The shape of a pod that is added each time and never fits, or waits its turn."""
    recreates: bool = False
    """The pod, a node that takes no pods and a Service are deleted and made anew each time."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One of the list below, at one size."""

    name: str
    nodes: int
    init_pods: int
    measured_pods: int
    make_nodes: Callable[[int], Iterable[Node]]
    init: tuple[Group, ...]
    measured: Group
    objects: tuple[AnyObject, ...] = ()
    """Namespaces and Services."""
    churn: Churn | None = None
    gated: bool = False
    """The init pods stay gated."""

    def sized(self, nodes: int | None, init_pods: int | None, measured_pods: int | None) -> Workload:
        """With other numbers where they are given."""
        return replace(
            self,
            nodes=self.nodes if nodes is None else nodes,
            init_pods=self.init_pods if init_pods is None else init_pods,
            measured_pods=self.measured_pods if measured_pods is None else measured_pods,
        )

    def pods_before(self) -> Iterator[Pod]:
        for group in self.init:
            yield from group.pods(self.init_pods // group.share, "init")

    def pods_measured(self, templates: int = 1) -> Iterator[Pod]:
        return self.measured.pods(self.measured_pods, "measured", templates)


_MEASURED: Final = (MEASURED_NAMESPACE,)
_TEAMS: Final = tuple(f"init-ns-{number}" for number in range(100))
_TEAM_OBJECTS: Final = tuple(shapes.a_namespace(name) for name in (*_TEAMS, "measure-ns-0"))


def _workloads() -> Iterator[Workload]:
    plain, one_zone, three_zones = shapes.plain_nodes, shapes.nodes_of_one_zone, shapes.nodes_of_three_zones
    default = Group("default", _MEASURED)

    def of(
        name: str,
        *sizes: tuple[int, int, int],
        alike: str = "",
        of_teams: str = "",
        nodes: Callable[[int], Iterable[Node]] = plain,
        init: tuple[Group, ...] = (Group("default"),),
        measured: Group = default,
        objects: tuple[AnyObject, ...] = (),
        churn: Churn | None = None,
        gated: bool = False,
    ) -> Iterator[Workload]:
        """`alike`: all pods are of this shape; `of_teams`: and in the namespaces of the team."""
        if alike:
            init, measured = (Group(alike),), Group(alike, _MEASURED)
        if of_teams:
            init, measured, objects = (Group(of_teams, _TEAMS),), Group(of_teams, ("measure-ns-0",)), _TEAM_OBJECTS
        for n_nodes, n_init, n_measured in sizes:
            yield Workload(name, n_nodes, n_init, n_measured, nodes, init, measured, objects, churn, gated)

    sizes: tuple[tuple[int, int, int], ...]
    sizes = ((500, 500, 1000), (500, 500, 10_000), (5000, 1000, 10_000), (15_000, 1000, 10_000))
    yield from of("SchedulingBasic", *sizes)
    apart = Group("pod-anti-affinity")
    yield from of("SchedulingPodAntiAffinity", (500, 100, 400), (5000, 1000, 2000), alike="pod-anti-affinity")
    yield from of(
        "SchedulingPodMatchingAntiAffinity",
        (5000, 1000, 5000),
        init=(apart,),
        measured=Group("anti-affinity-label-only", _MEASURED),
    )
    sizes = ((500, 500, 1000), (5000, 5000, 2000), (5000, 5000, 5000))
    yield from of("SchedulingPodAffinity", *sizes, nodes=one_zone, alike="pod-affinity")
    sizes = ((500, 500, 1000), (5000, 5000, 5000))
    yield from of("SchedulingPreferredPodAffinity", *sizes, alike="preferred-pod-affinity")
    yield from of("SchedulingPreferredPodAntiAffinity", (5000, 5000, 5000), alike="preferred-pod-anti-affinity")
    yield from of("SchedulingNodeAffinity", (5000, 5000, 10_000), nodes=one_zone, alike="node-affinity")
    sizes = ((500, 1000, 1000), (5000, 5000, 5000), (5000, 2000, 3000))
    yield from of("TopologySpreading", *sizes, nodes=three_zones, measured=Group("spread", _MEASURED))
    sizes = ((500, 1000, 1000), (5000, 5000, 5000))
    yield from of("PreferredTopologySpreading", *sizes, nodes=three_zones, measured=Group("preferred-spread", _MEASURED))
    yield from of(
        "DefaultTopologySpreading",
        (5000, 5000, 10_000),
        nodes=three_zones,
        measured=Group("labelled", _MEASURED),
        objects=(shapes.a_service(MEASURED_NAMESPACE, "service"),),
    )
    mixed = ("default", "pod-affinity", "pod-anti-affinity", "preferred-pod-affinity", "preferred-pod-anti-affinity")
    yield from of(
        "MixedSchedulingBasePod",
        (5000, 10_000, 5000),
        nodes=one_zone,
        init=tuple(Group(shape, share=len(mixed)) for shape in mixed),
    )
    never_fits = Churn(0.2, "high-priority-9cpu")
    yield from of("Unschedulable", (5000, 100, 10_000), (5000, 20_000, 10_000), churn=never_fits)
    yield from of("SchedulingWithMixedChurn", (5000, 0, 10_000), churn=Churn(1.0, "high-priority-9cpu", recreates=True))
    yield from of("SchedulingDaemonset", (15_001, 0, 30_000), nodes=shapes.the_named_node, measured=Group("daemonset", _MEASURED))
    yield from of(
        "SchedulingWithNodeInclusionPolicy",
        (5000, 0, 4000),
        nodes=shapes.a_fifth_tainted,
        measured=Group("node-inclusion", _MEASURED),
    )
    yield from of("SchedulingRequiredPodAntiAffinityWithNSSelector", (6000, 4000, 2000), of_teams="ns-anti-affinity")
    yield from of("SchedulingPreferredAntiAffinityWithNSSelector", (5000, 4000, 2000), of_teams="ns-preferred-anti-affinity")
    yield from of("SchedulingRequiredPodAffinityWithNSSelector", (5000, 5000, 2000), nodes=one_zone, of_teams="ns-affinity")
    yield from of("SchedulingPreferredAffinityWithNSSelector", (5000, 5000, 5000), of_teams="ns-preferred-affinity")
    yield from of(
        "SchedulingGatedPodsWithPodAffinityImpactForThroughput",
        (1, 10_000, 20_000),
        nodes=shapes.the_named_node,
        init=(Group("gated-with-affinity"),),
        measured=Group("labelled", _MEASURED),
        gated=True,
    )
    yield from of(
        "SchedulingWithExtendedResource",
        (5000, 0, 5000),
        nodes=shapes.nodes_with_devices,
        measured=Group("extended-resource", _MEASURED),
    )


WORKLOADS: Final = tuple(_workloads())


def chosen(names: str | None) -> list[Workload]:
    """Those named, all their sizes; None: all. Raises ValueError."""
    if names is None:
        return list(WORKLOADS)
    wanted = names.split(",")
    known = dict.fromkeys(workload.name for workload in WORKLOADS)
    for name in wanted:
        if name not in known:
            raise ValueError(f"--workloads {name}: no such workload; there are {', '.join(known)}")
    return [workload for workload in WORKLOADS if workload.name in wanted]
