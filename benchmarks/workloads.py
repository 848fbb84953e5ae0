"""The workloads: which nodes there are, which pods are there before, which are measured, and what happens meanwhile.

Sizes are the published ones, and those at which kube-scheduler was measured (`kube_scheduler`). HostPorts is our own.

Source: the workloads of kubernetes' scheduler_perf, as facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from benchmarks import shapes
from rayched.api.kinds import AnyObject
from rayched.v1.core_pb2 import Namespace, Node, Pod

MEASURED_NAMESPACE: Final = "sched-1"
INIT_NAMESPACE: Final = "sched-0"


@dataclass(frozen=True, slots=True)
class Group:
    """Pods of one shape, dealt out over some namespaces in turn."""

    shape: str
    namespaces: tuple[str, ...] = (INIT_NAMESPACE,)
    share: int = 1
    """Of the workload's init pods, one in `share` belongs to this group."""
    gated: bool = False
    """They stay gated."""
    ends: bool = False
    """They are deleted meanwhile, see Ending."""
    own_labels: bool = False
    """Each has a label of its own, as the pods of a StatefulSet have."""
    gang: int = 0
    """They belong to pod groups of so many, which need all of them; 0: to none."""

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
            if self.own_labels:
                pod.metadata.labels[shapes.OWN_LABEL] = pod.metadata.name
            if self.gang:
                pod.spec.scheduling_group.pod_group_name = f"{prefix}-gang-{number // self.gang}"
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
class Ending:
    """Pods that were there before are deleted beside the measured ones."""

    per_second: float
    stays: bool = False
    """A finalizer keeps them; nobody waits until they have a node."""


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
    ending: Ending | None = None
    preempts: bool = False
    """Some pods need others to go; agents let those go at once."""
    victims_each: int = 0
    """So many have to go for each measured pod, on a node of its own; 0: there is no such number."""

    @property
    def is_for_the_engine(self) -> bool:
        """Whether the scheduling cycle alone can do it: it neither writes nor deletes."""
        return not self.preempts and self.ending is None

    @property
    def is_for_a_cluster(self) -> bool:
        """Whether it can be carried out through the API: nothing is deleted meanwhile but by preemption."""
        return self.ending is None and not (self.churn is not None and self.churn.recreates)

    @property
    def namespaces(self) -> dict[str, dict[str, str]]:
        """Labels of each namespace that is given."""
        return {item.metadata.name: dict(item.metadata.labels) for item in self.objects if isinstance(item, Namespace)}

    @property
    def highest_priority(self) -> int:
        shapes_used = [self.measured.shape, *([self.churn.pod] if self.churn is not None else [])]
        return max(shapes.template(shape, MEASURED_NAMESPACE).spec.priority for shape in shapes_used)

    def sized(self, nodes: int | None, init_pods: int | None, measured_pods: int | None) -> Workload:
        """With other numbers where they are given."""
        return replace(
            self,
            nodes=self.nodes if nodes is None else nodes,
            init_pods=self.init_pods if init_pods is None else init_pods,
            measured_pods=self.measured_pods if measured_pods is None else measured_pods,
        )

    def pods_before(self) -> Iterator[tuple[Group, Pod]]:
        """Each with its group."""
        for place, group in enumerate(self.init):
            for pod in group.pods(self.init_pods // group.share, f"init-{place}"):
                yield group, pod

    def pods_measured(self, templates: int = 1) -> Iterator[Pod]:
        return self.measured.pods(self.measured_pods, "measured", templates)

    def singles(self, count: int) -> Iterator[Pod]:
        """Pods of the measured shape that come alone."""
        return replace(self.measured, gang=0).pods(count, "single")


_MEASURED: Final = (MEASURED_NAMESPACE,)
_TEAMS: Final = tuple(f"init-ns-{number}" for number in range(100))
_TEAM_OBJECTS: Final = tuple(shapes.a_namespace(name) for name in (*_TEAMS, "measure-ns-0"))
_FEW_TEAMS: Final = 10
"""At the small size."""

Sizes = tuple[tuple[int, int, int], ...]
"""Nodes, init pods, measured pods."""


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
        ending: Ending | None = None,
        preempts: bool = False,
        victims_each: int = 0,
    ) -> Iterator[Workload]:
        """`alike`: all pods are of this shape; `of_teams`: and in the namespaces of the team."""
        for n_nodes, n_init, n_measured in sizes:
            if alike:
                init, measured = (Group(alike),), Group(alike, _MEASURED)
            if of_teams:
                teams = _TEAMS if n_nodes > 500 else _TEAMS[:_FEW_TEAMS]
                init, measured, objects = (Group(of_teams, teams),), Group(of_teams, ("measure-ns-0",)), _TEAM_OBJECTS
            size = name, n_nodes, n_init, n_measured
            yield Workload(*size, nodes, init, measured, objects, churn, ending, preempts or bool(victims_each), victims_each)

    sizes: Sizes = ((500, 500, 1000), (500, 500, 10_000), (5000, 1000, 1000), (5000, 1000, 10_000), (15_000, 1000, 10_000))
    yield from of("SchedulingBasic", *sizes, (5000, 5000, 50_000))
    apart = Group("pod-anti-affinity")
    sizes = ((500, 100, 400), (5000, 1000, 1000), (5000, 1000, 2000))
    yield from of("SchedulingPodAntiAffinity", *sizes, alike="pod-anti-affinity")
    yield from of(
        "SchedulingPodMatchingAntiAffinity",
        *((500, 100, 400), (5000, 1000, 5000)),
        init=(apart,),
        measured=Group("anti-affinity-label-only", _MEASURED),
    )
    sizes = ((500, 500, 1000), (5000, 5000, 1000), (5000, 5000, 5000))
    yield from of("SchedulingPodAffinity", *sizes, (5000, 5000, 2000), nodes=one_zone, alike="pod-affinity")
    yield from of("SchedulingPreferredPodAffinity", *sizes, alike="preferred-pod-affinity")
    yield from of("SchedulingPreferredPodAntiAffinity", *sizes, alike="preferred-pod-anti-affinity")
    sizes = ((500, 500, 1000), (5000, 5000, 1000), (5000, 5000, 10_000))
    yield from of("SchedulingNodeAffinity", *sizes, nodes=one_zone, alike="node-affinity")
    sizes = ((500, 1000, 1000), (5000, 5000, 2000), (5000, 5000, 5000))
    spread = Group("spread", _MEASURED)
    yield from of("TopologySpreading", *sizes, (5000, 2000, 3000), nodes=three_zones, measured=spread)
    yield from of("PreferredTopologySpreading", *sizes, nodes=three_zones, measured=Group("preferred-spread", _MEASURED))
    yield from of(
        "DefaultTopologySpreading",
        *((500, 1000, 1000), (5000, 5000, 10_000), (5000, 5000, 50_000)),
        nodes=three_zones,
        measured=Group("labelled", _MEASURED),
        objects=(shapes.a_service(MEASURED_NAMESPACE, "service"),),
    )
    mixed = ("default", "pod-affinity", "pod-anti-affinity", "preferred-pod-affinity", "preferred-pod-anti-affinity")
    yield from of(
        "MixedSchedulingBasePod",
        *((500, 1000, 1000), (5000, 10_000, 1000), (5000, 10_000, 5000)),
        nodes=one_zone,
        init=tuple(Group(shape, share=len(mixed)) for shape in mixed),
    )
    never_fits = Churn(0.2, "high-priority-9cpu")
    sizes = ((500, 10, 1000), (5000, 100, 1000), (5000, 100, 10_000), (5000, 20_000, 10_000))
    yield from of("Unschedulable", *sizes, churn=never_fits)
    sizes = ((1000, 0, 1000), (5000, 0, 2000), (5000, 0, 10_000))
    yield from of("SchedulingWithMixedChurn", *sizes, churn=Churn(1.0, "high-priority-9cpu", recreates=True))
    yield from of("SchedulingDaemonset", (15_001, 0, 30_000), nodes=shapes.the_named_node, measured=Group("daemonset", _MEASURED))
    yield from of(
        "SchedulingWithNodeInclusionPolicy",
        *((500, 0, 400), (5000, 0, 4000)),
        nodes=shapes.a_fifth_tainted,
        measured=Group("node-inclusion", _MEASURED),
    )
    small: Sizes = ((500, 40, 100),)
    sizes = (*small, (5000, 4000, 1000), (6000, 4000, 2000))
    yield from of("SchedulingRequiredPodAntiAffinityWithNSSelector", *sizes, of_teams="ns-anti-affinity")
    sizes = (*small, (5000, 4000, 1000), (5000, 4000, 2000))
    yield from of("SchedulingPreferredAntiAffinityWithNSSelector", *sizes, of_teams="ns-preferred-anti-affinity")
    sizes = (*small, (5000, 5000, 1000), (5000, 5000, 2000))
    yield from of("SchedulingRequiredPodAffinityWithNSSelector", *sizes, nodes=one_zone, of_teams="ns-affinity")
    sizes = (*small, (5000, 5000, 1000), (5000, 5000, 5000))
    yield from of("SchedulingPreferredAffinityWithNSSelector", *sizes, of_teams="ns-preferred-affinity")
    yield from of(
        "SchedulingGatedPodsWithPodAffinityImpactForThroughput",
        (1, 10_000, 20_000),
        nodes=shapes.the_named_node,
        init=(Group("gated-with-affinity", gated=True),),
        measured=Group("labelled", _MEASURED),
    )
    light = Group("light", _MEASURED)
    going = Group("light", share=3, ends=True)
    yield from of(
        "SchedulingWhileGated",
        (1, 30_000, 20_000),
        nodes=shapes.the_named_node,
        init=(Group("gated", share=3, gated=True), going, going),
        measured=light,
        ending=Ending(50.0),
    )
    yield from of(
        "SchedulingDeletedPodsWithFinalizers",
        *((1000, 1000, 1000), (5000, 5000, 5000)),
        init=(Group("light-with-finalizer", ends=True),),
        measured=light,
        ending=Ending(100.0, stays=True),
    )
    low, high = (Group("low-priority"),), Group("high-priority", _MEASURED)
    sizes = ((500, 2000, 500), (1000, 4000, 1000), (5000, 20_000, 500))
    yield from of("PreemptionBasic", *sizes, init=low, measured=high, victims_each=3)
    sizes = ((500, 2000, 500), (5000, 20_000, 5000))
    yield from of("PreemptionAsync", *sizes, init=low, churn=Churn(0.2, "high-priority"), preempts=True)
    yield from of(
        "SchedulingWithExtendedResource",
        (5000, 0, 5000),
        nodes=shapes.nodes_with_devices,
        measured=Group("extended-resource", _MEASURED),
    )
    # None of the published ones: 40 pods a node, each with a label of its own, as those of StatefulSets and Jobs have.
    own = Group("light", own_labels=True)
    sizes = ((500, 20_000, 500), (5000, 200_000, 500))
    for name, shape in (
        ("OwnLabelsPodAffinity", "pod-affinity"),
        ("OwnLabelsPreferredPodAffinity", "preferred-pod-affinity"),
        ("OwnLabelsPodAntiAffinity", "pod-anti-affinity"),
        ("OwnLabelsTopologySpreading", "spread"),
    ):
        measured = Group(shape, _MEASURED, own_labels=True)
        yield from of(name, *sizes, nodes=three_zones, init=(own,), measured=measured)
    waiting = Group("waits-for-nobody", share=40, gated=True, own_labels=True)
    measured = Group("light", _MEASURED, own_labels=True)
    yield from of("OwnLabelsWaiting", *sizes, nodes=three_zones, init=(own, waiting), measured=measured)
    low, high = (Group("fortieth-of-a-node", own_labels=True),), Group("half-a-node-apart", _MEASURED, own_labels=True)
    sizes = ((500, 20_000, 50), (5000, 200_000, 50))
    yield from of("OwnLabelsPreemption", *sizes, nodes=three_zones, init=low, measured=high, preempts=True)
    # None of the published ones: every pod takes the same port of its node.
    yield from of("HostPorts", *((500, 100, 400), (5000, 1000, 4000)), measured=Group("host-port", _MEASURED))


WORKLOADS: Final = tuple(_workloads())


_OUR_OWN: Final = ("OwnLabels", "HostPorts")
"""How the names of those begin that nobody published."""


def published() -> list[Workload]:
    """Those whose shapes and sizes are kube-scheduler's own benchmarks', all their sizes."""
    return [workload for workload in WORKLOADS if not workload.name.startswith(_OUR_OWN)]


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
