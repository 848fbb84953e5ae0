"""Nodes and pods of the benchmarks' workloads, by the names that `workloads` uses.

A pod is made from a shape: requests, labels and what it asks of nodes and of other pods. All of it is as a server would store it,
defaults filled in. With `variety` the pods of a workload come from that many templates, drawn from a seed: each has requests,
a label and tolerations of its own, besides what its shape says.

Source: the templates of the workloads of kubernetes' scheduler_perf, as facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Final

from rayched.api import defaulting
from rayched.api.quantity import milli_value
from rayched.v1.core_pb2 import Namespace, Node, Pod, PodAffinityTerm, Service

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
NAMED_NODE: Final = "scheduler-perf-node"
EXTENDED_RESOURCE: Final = "example.com/device"
TEAM: Final = {"team": "devops"}
VARIETY_SEED: Final = 1
_BOTH: Final = ("sched-1", "sched-0")

Fill = Callable[[Pod], None]


# ---------------------------------------------------------------------------------------------------------------- nodes


def a_node(name: str, labels: Mapping[str, str] | None = None, amounts: Mapping[str, str] | None = None) -> Node:
    """A node of 4 CPUs, 32 GiB and 110 pods, unless `amounts` say otherwise."""
    node = Node()
    node.metadata.name = name
    node.metadata.labels[HOSTNAME] = name
    node.metadata.labels.update(labels or {})
    for resource, amount in ({"cpu": "4", "memory": "32Gi", "pods": "110"} | dict(amounts or {})).items():
        node.status.capacity[resource].string = amount
        node.status.allocatable[resource].string = amount
    node.status.conditions.add(type="Ready", status="True")
    defaulting.default(node)
    return node


def plain_nodes(count: int) -> Iterator[Node]:
    return (a_node(f"node-{number}") for number in range(count))


def nodes_of_one_zone(count: int) -> Iterator[Node]:
    return (a_node(f"node-{number}", {ZONE: "zone1"}) for number in range(count))


def nodes_of_three_zones(count: int) -> Iterator[Node]:
    return (a_node(f"node-{number}", {ZONE: f"moon-{number % 3 + 1}"}) for number in range(count))


def a_fifth_tainted(count: int) -> Iterator[Node]:
    for number, node in enumerate(plain_nodes(count)):
        if number % 5 == 4:
            node.spec.taints.add(key="foo", effect="NoSchedule")
        yield node


def the_named_node(count: int) -> Iterator[Node]:
    """One node for very many pods, and plain ones besides."""
    yield a_node(NAMED_NODE, amounts={"pods": "90000"})
    yield from plain_nodes(count - 1)


def nodes_with_devices(count: int) -> Iterator[Node]:
    return (a_node(f"node-{number}", amounts={EXTENDED_RESOURCE: "4"}) for number in range(count))


# ----------------------------------------------------------------------------------------------------------------- pods


def a_pod(shape: str, namespace: str, name: str, variant: int | None = None) -> Pod:
    """A pod as the server stores it; its uid follows from its name. `variant` picks one of the templates of a variety."""
    pod = template(shape, namespace, variant)
    named(pod, name)
    return pod


def named(pod: Pod, name: str) -> None:
    pod.metadata.name = name
    pod.metadata.uid = f"{pod.metadata.namespace}-{name}"


def template(shape: str, namespace: str, variant: int | None = None) -> Pod:
    """The same without a name."""
    pod = Pod()
    pod.metadata.namespace = namespace
    pod.spec.containers.add(name="pause", image="registry.k8s.io/pause:3.10")
    SHAPES[shape](pod)
    if variant is not None:
        _vary(pod, Random(f"{VARIETY_SEED}/{variant}"), variant)
    defaulting.default(pod)
    return pod


def _vary(pod: Pod, random: Random, variant: int) -> None:
    """Half to once the usual CPU, and a fifth to once the memory, so that all pods of the workload still fit."""
    pod.metadata.labels["app"] = pod.metadata.labels.get("app", f"app-{variant}")
    pod.metadata.labels["variant"] = f"v{variant}"
    resources = pod.spec.containers[0].resources
    if "cpu" in resources.requests:
        usual = {name: milli_value(resources.requests[name].string) for name in ("cpu", "memory")}
        varied = {
            "cpu": f"{usual['cpu'] * random.randrange(50, 101, 5) // 100}m",
            "memory": str(usual["memory"] * random.randrange(20, 101, 10) // 100_000),
        }
        for name, amount in varied.items():
            resources.requests[name].string = amount
            resources.limits[name].string = amount
    for number in range(random.randrange(3)):
        pod.spec.tolerations.add(key=f"key-{random.randrange(8)}", operator="Exists", effect=("NoSchedule", "NoExecute")[number])


def _requests(pod: Pod, cpu: str, memory: str, **others: str) -> None:
    resources = pod.spec.containers[0].resources
    for name, amount in ({"cpu": cpu, "memory": memory} | others).items():
        resources.requests[name].string = amount
        resources.limits[name].string = amount


def _usual(pod: Pod) -> None:
    _requests(pod, "100m", "500Mi")


def _coloured(pod: Pod, colour: str) -> None:
    _usual(pod)
    pod.metadata.labels["color"] = colour


def _term(term: PodAffinityTerm, pod: Pod, key: str, namespaces: tuple[str, ...]) -> None:
    """The pod's own labels, in these namespaces; without any, in those of the team."""
    term.topology_key = key
    term.label_selector.match_labels.update(pod.metadata.labels)
    if namespaces:
        term.namespaces.extend(namespaces)
    else:
        term.namespace_selector.match_labels.update(TEAM)


def _together(colour: str, key: str, *, required: bool, namespaces: tuple[str, ...] = _BOTH) -> Fill:
    def fill(pod: Pod) -> None:
        _coloured(pod, colour)
        affinity = pod.spec.affinity.pod_affinity
        if required:
            _term(affinity.required_during_scheduling_ignored_during_execution.add(), pod, key, namespaces)
        else:
            preferred = affinity.preferred_during_scheduling_ignored_during_execution.add(weight=1)
            _term(preferred.pod_affinity_term, pod, key, namespaces)

    return fill


def _apart(colour: str, *, required: bool, namespaces: tuple[str, ...] = _BOTH) -> Fill:
    def fill(pod: Pod) -> None:
        _coloured(pod, colour)
        affinity = pod.spec.affinity.pod_anti_affinity
        if required:
            _term(affinity.required_during_scheduling_ignored_during_execution.add(), pod, HOSTNAME, namespaces)
        else:
            preferred = affinity.preferred_during_scheduling_ignored_during_execution.add(weight=1)
            _term(preferred.pod_affinity_term, pod, HOSTNAME, namespaces)

    return fill


def _on_labelled_nodes(pod: Pod) -> None:
    _usual(pod)
    required = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    required.node_selector_terms.add().match_expressions.add(key=ZONE, operator="In", values=("zone1", "zone2"))


def _on_the_named_node(pod: Pod) -> None:
    required = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    required.node_selector_terms.add().match_fields.add(key="metadata.name", operator="In", values=(NAMED_NODE,))


def _spread(action: str) -> Fill:
    def fill(pod: Pod) -> None:
        _coloured(pod, "blue")
        constraint = pod.spec.topology_spread_constraints.add(max_skew=5, topology_key=ZONE, when_unsatisfiable=action)
        constraint.label_selector.match_labels["color"] = "blue"

    return fill


def _over_nodes_that_count(pod: Pod) -> None:
    _usual(pod)
    pod.metadata.labels["foo"] = "bar"
    constraint = pod.spec.topology_spread_constraints.add(
        max_skew=1,
        topology_key=HOSTNAME,
        when_unsatisfiable="DoNotSchedule",
        node_affinity_policy="Honor",
        node_taints_policy="Honor",
    )
    constraint.label_selector.match_labels["foo"] = "bar"


def _of_priority(cpu: str, priority: int) -> Fill:
    def fill(pod: Pod) -> None:
        _requests(pod, cpu, "500Mi")
        pod.spec.priority = priority
        pod.spec.termination_grace_period_seconds = 0

    return fill


def _on_a_host_port(pod: Pod) -> None:
    _usual(pod)
    pod.spec.containers[0].ports.add(container_port=8080, host_port=8080, protocol="TCP")


def _labelled(pod: Pod) -> None:
    pod.metadata.labels["app"] = "scheduler-perf"


def _gated(pod: Pod) -> None:
    pod.spec.scheduling_gates.add(name="test.k8s.io/hold")


def _light(pod: Pod) -> None:
    pod.spec.termination_grace_period_seconds = 0


def _light_with_finalizer(pod: Pod) -> None:
    _light(pod)
    pod.metadata.finalizers.append("test.k8s.io/finalizer")


def _gated_and_together(pod: Pod) -> None:
    _labelled(pod)
    pod.spec.scheduling_gates.add(name="scheduling-gate-1")
    term = pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution.add(topology_key=HOSTNAME)
    term.label_selector.match_labels.update(pod.metadata.labels)


def _waiting_for_nobody(pod: Pod) -> None:
    """With pods that are nowhere."""
    term = pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution.add(topology_key=HOSTNAME)
    term.label_selector.match_labels["app"] = "nobody-has-it"


def _half_a_node_apart(pod: Pod) -> None:
    """Of high priority, away from its like by host, and spread: what it finds depends on who is where."""
    pod.metadata.labels["color"] = "blue"
    _of_priority("2000m", 10)(pod)
    _term(pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution.add(), pod, HOSTNAME, _BOTH)
    for key, skew in ((ZONE, 5), (HOSTNAME, 5)):
        constraint = pod.spec.topology_spread_constraints.add(max_skew=skew, topology_key=key, when_unsatisfiable="DoNotSchedule")
        constraint.label_selector.match_labels["color"] = "blue"


OWN_LABEL: Final = "statefulset.kubernetes.io/pod-name"

SHAPES: Final[Mapping[str, Fill]] = {
    "default": _usual,
    "pod-affinity": _together("blue", ZONE, required=True),
    "pod-anti-affinity": _apart("green", required=True),
    "anti-affinity-label-only": lambda pod: _coloured(pod, "green"),
    "preferred-pod-affinity": _together("red", HOSTNAME, required=False),
    "preferred-pod-anti-affinity": _apart("yellow", required=False),
    "ns-affinity": _together("blue", ZONE, required=True, namespaces=()),
    "ns-anti-affinity": _apart("green", required=True, namespaces=()),
    "ns-preferred-affinity": _together("red", HOSTNAME, required=False, namespaces=()),
    "ns-preferred-anti-affinity": _apart("green", required=False, namespaces=()),
    "node-affinity": _on_labelled_nodes,
    "spread": _spread("DoNotSchedule"),
    "preferred-spread": _spread("ScheduleAnyway"),
    "node-inclusion": _over_nodes_that_count,
    "daemonset": _on_the_named_node,
    "low-priority": _of_priority("900m", 0),
    "high-priority": _of_priority("3000m", 10),
    "high-priority-9cpu": _of_priority("9", 10),
    "fortieth-of-a-node": _of_priority("100m", 0),
    "half-a-node-apart": _half_a_node_apart,
    "waits-for-nobody": _waiting_for_nobody,
    "light": _light,
    "light-with-finalizer": _light_with_finalizer,
    "host-port": _on_a_host_port,
    "labelled": _labelled,
    "gated": _gated,
    "gated-with-affinity": _gated_and_together,
    "extended-resource": lambda pod: _requests(pod, "100m", "500Mi", **{EXTENDED_RESOURCE: "1"}),
}


# --------------------------------------------------------------------------------------------------------------- others


def a_namespace(name: str) -> Namespace:
    """One of the team's."""
    namespace = Namespace()
    namespace.metadata.name = name
    namespace.metadata.labels.update(TEAM)
    defaulting.default(namespace)
    return namespace


def a_service(namespace: str, name: str) -> Service:
    """Selects the labelled pods."""
    service = Service()
    service.metadata.name, service.metadata.namespace = name, namespace
    service.spec.selector["app"] = "scheduler-perf"
    defaulting.default(service)
    return service
