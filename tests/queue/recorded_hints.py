"""Stand-ins for the queueing hints of the in-tree plugins, for the recorded cases only.

The recorded cases ran kube-scheduler's queue with the hints of its plugins. Here each hint is restated over messages, in the
reduced form that the recorded pods and nodes need (label equality, cpu and memory, host ports), so that the queue can be judged
apart from the plugins. `REGISTERED` is what kube-scheduler 1.34 registers by default. A plugin without an entry in HINTS raises
HintMissing when it is asked; the case that needs it is counted as not run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rayched.queue.cluster_event import Action, ClusterEvent, Resource
from rayched.queue.hints import Hint, HintFunction, HintTable, Registration
from rayched.v1.core_pb2 import Node, Pod, PodAffinityTerm, TopologySpreadConstraint
from rayched.v1.meta_pb2 import LabelSelector

_SUFFIXES = {"m": 1, "": 1000, "Ki": 1000 * 2**10, "Mi": 1000 * 2**20, "Gi": 1000 * 2**30}

_ALWAYS = "always"
_PER_EVENT = "hint"

REGISTERED: Mapping[str, tuple[tuple[Resource, Action, str], ...]] = {
    "SchedulingGates": ((Resource.POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, _PER_EVENT),),
    "NodeUnschedulable": (
        (Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, _PER_EVENT),
        (Resource.POD, Action.UPDATE_POD_TOLERATION, _PER_EVENT),
    ),
    "NodeName": ((Resource.NODE, Action.ADD, _ALWAYS),),
    "TaintToleration": (
        (Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, _PER_EVENT),
        (Resource.POD, Action.UPDATE_POD_TOLERATION, _PER_EVENT),
    ),
    "NodeAffinity": ((Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, _PER_EVENT),),
    "NodePorts": (
        (Resource.POD, Action.DELETE, _PER_EVENT),
        (Resource.NODE, Action.ADD, _ALWAYS),
    ),
    "NodeResourcesFit": (
        (Resource.POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN, _PER_EVENT),
        (Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, _PER_EVENT),
    ),
    "PodTopologySpread": (
        (Resource.POD, Action.ADD | Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION | Action.DELETE, _PER_EVENT),
        (Resource.NODE, Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT, _PER_EVENT),
    ),
    "InterPodAffinity": (
        (Resource.POD, Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE, _PER_EVENT),
        (Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, _PER_EVENT),
    ),
    "VolumeBinding": ((Resource.CSI_NODE, Action.ADD | Action.UPDATE, _ALWAYS),),
}


class HintMissing(Exception):
    """The recorded answer comes from a hint that nobody has restated yet."""


def hint_table(hints: Mapping[str, HintFunction], missing: set[str]) -> HintTable:
    """The registrations of 1.34 with these hint functions; asking for another one is noted in `missing`."""

    def absent(plugin: str) -> HintFunction:
        def ask(pod: Pod, old: Any, new: Any) -> Hint:
            missing.add(plugin)
            raise HintMissing(plugin)

        return ask

    return HintTable(
        {
            "default-scheduler": {
                plugin: [
                    Registration(ClusterEvent(resource, action), None if kind == _ALWAYS else hints.get(plugin) or absent(plugin))
                    for resource, action, kind in events
                ]
                for plugin, events in REGISTERED.items()
            }
        }
    )


# ------------------------------------------------------------------------------------------------------------ the hints


def _of(queue: bool) -> Hint:
    return Hint.QUEUE if queue else Hint.SKIP


def _scheduling_gates(pod: Pod, old: Pod, new: Pod) -> Hint:
    return _of(pod.metadata.uid == new.metadata.uid)


def _node_unschedulable(pod: Pod, old: Any, new: Any) -> Hint:
    if isinstance(new, Pod):
        tolerant = any(_tolerates(t, "node.kubernetes.io/unschedulable", "", "NoSchedule") for t in new.spec.tolerations)
        return _of(new.metadata.uid == pod.metadata.uid and tolerant)
    return _of(not new.spec.unschedulable and (old is None or old.spec.unschedulable))


def _taint_toleration(pod: Pod, old: Any, new: Any) -> Hint:
    if isinstance(new, Pod):
        return _of(new.metadata.uid == pod.metadata.uid)
    return _of((old is None or _untolerated(pod, old)) and not _untolerated(pod, new))


def _node_affinity(pod: Pod, old: Node | None, new: Node) -> Hint:
    return _of(_selects(pod, new) and (old is None or not _selects(pod, old)))


def _node_ports(pod: Pod, old: Pod, new: None) -> Hint:
    return _of(bool(old.spec.node_name) and bool(_host_ports(pod) & _host_ports(old)))


def _node_resources_fit(pod: Pod, old: Any, new: Any) -> Hint:
    if isinstance(old, Pod) or isinstance(new, Pod):
        return _of(_fit_after_pod(pod, old, new))
    wanted = _requests(pod)
    there = _allocatable(new)
    if there.get("pods", 0) < 1000 or any(amount > there.get(name, 0) for name, amount in wanted.items()):
        return Hint.SKIP
    if old is None:
        return Hint.QUEUE
    before = _allocatable(old)
    return _of(any(there.get(name, 0) > before.get(name, 0) for name in ("pods", *(n for n, a in wanted.items() if a))))


def _fit_after_pod(pod: Pod, old: Pod, new: Pod | None) -> bool:
    if new is None:
        return bool(old.spec.node_name)
    if new.metadata.uid == pod.metadata.uid:
        return True
    before, after = _requests(old), _requests(new)
    return bool(old.spec.node_name) and any(
        amount and before.get(name, 0) > after.get(name, 0) for name, amount in _requests(pod).items()
    )


def _pod_topology_spread(pod: Pod, old: Any, new: Any) -> Hint:
    constraints = [c for c in pod.spec.topology_spread_constraints if c.when_unsatisfiable == "DoNotSchedule"]
    if isinstance(old, Node) or isinstance(new, Node):
        return _of(_spread_after_node(constraints, old, new))
    if any(other is not None and not _involved(other, pod) for other in (old, new)):
        return Hint.SKIP
    if old is None or new is None:
        labels = (new or old).metadata.labels
        return _of(any(_matches(c.label_selector, labels) for c in constraints))
    if new.metadata.uid == pod.metadata.uid and list(new.spec.tolerations) != list(old.spec.tolerations):
        return _of(any(c.node_taints_policy == "Honor" for c in constraints))
    return _of(
        any(
            _matches(c.label_selector, old.metadata.labels) != _matches(c.label_selector, new.metadata.labels)
            for c in constraints
        )
    )


def _spread_after_node(constraints: list[TopologySpreadConstraint], old: Node | None, new: Node | None) -> bool:
    keys = [c.topology_key for c in constraints]

    def has_all(node: Node | None) -> bool:
        return node is not None and all(key in node.metadata.labels for key in keys)

    if old is None or new is None:
        return has_all(old) or has_all(new)
    if has_all(old) != has_all(new):
        return True
    moved = any(old.metadata.labels.get(key) != new.metadata.labels.get(key) for key in keys)
    return has_all(new) and (moved or list(old.spec.taints) != list(new.spec.taints))


def _involved(other: Pod, pod: Pod) -> bool:
    same = other.metadata.uid == pod.metadata.uid
    return same or (bool(other.spec.node_name) and other.metadata.namespace == pod.metadata.namespace)


def _inter_pod_affinity(pod: Pod, old: Any, new: Any) -> Hint:
    terms = list(pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution)
    anti_terms = list(pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution)
    if isinstance(old, Node) or isinstance(new, Node):
        return _of(_affinity_after_node(terms, anti_terms, old, new))
    if any(other is not None and not other.spec.node_name for other in (old, new)):
        return Hint.SKIP

    def all_match(of: list[PodAffinityTerm], other: Pod) -> bool:
        return bool(of) and all(
            other.metadata.namespace == pod.metadata.namespace and _matches(term.label_selector, other.metadata.labels)
            for term in of
        )

    if new is None:
        return _of(all_match(anti_terms, old))
    if old is None:
        return _of(all_match(terms, new))
    helped = not all_match(terms, old) and all_match(terms, new)
    return _of(helped or (all_match(anti_terms, old) and not all_match(anti_terms, new)))


def _affinity_after_node(terms: list[PodAffinityTerm], anti_terms: list[PodAffinityTerm], old: Node | None, new: Node) -> bool:
    def value(node: Node | None, term: PodAffinityTerm) -> str | None:
        return None if node is None else node.metadata.labels.get(term.topology_key)

    if any(value(new, term) is not None and value(new, term) != value(old, term) for term in terms):
        return True
    if old is None:
        return bool(anti_terms)
    return any(value(old, term) is not None and value(new, term) != value(old, term) for term in anti_terms)


HINTS: Mapping[str, Callable[..., Hint]] = {
    "SchedulingGates": _scheduling_gates,
    "NodeUnschedulable": _node_unschedulable,
    "TaintToleration": _taint_toleration,
    "NodeAffinity": _node_affinity,
    "NodePorts": _node_ports,
    "NodeResourcesFit": _node_resources_fit,
    "PodTopologySpread": _pod_topology_spread,
    "InterPodAffinity": _inter_pod_affinity,
}

# ---------------------------------------------------------------------------------------------- what the hints look at


def required_terms_or_spread_match(pod: Pod, rejectors: frozenset[str], assigned: Pod) -> bool:
    """What AssignedPodAdded of 1.34 filters unschedulable pods by before it asks their hints."""
    if "PodTopologySpread" in rejectors and pod.metadata.namespace == assigned.metadata.namespace:
        return True
    return any(
        assigned.metadata.namespace == pod.metadata.namespace and _matches(term.label_selector, assigned.metadata.labels)
        for term in pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution
    )


def _matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.match_labels.items())


def _selects(pod: Pod, node: Node) -> bool:
    return all(node.metadata.labels.get(key) == value for key, value in pod.spec.node_selector.items())


def _untolerated(pod: Pod, node: Node) -> bool:
    return any(
        not any(_tolerates(toleration, taint.key, taint.value, taint.effect) for toleration in pod.spec.tolerations)
        for taint in node.spec.taints
        if taint.effect in ("NoSchedule", "NoExecute")
    )


def _tolerates(toleration: Any, key: str, value: str, effect: str) -> bool:
    return (
        toleration.effect in ("", effect)
        and toleration.key in ("", key)
        and (toleration.operator == "Exists" or toleration.value == value)
    )


def _host_ports(pod: Pod) -> set[int]:
    return {port.host_port for container in pod.spec.containers for port in container.ports if port.host_port}


def _requests(pod: Pod) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in pod.spec.containers:
        for name, amount in container.resources.requests.items():
            total[name] = total.get(name, 0) + _thousandths(amount.string)
    return total


def _allocatable(node: Node) -> dict[str, int]:
    return {name: _thousandths(amount.string) for name, amount in node.status.allocatable.items()}


def _thousandths(text: str) -> int:
    digits = text.rstrip("mKiG M")
    return int(digits) * _SUFFIXES[text[len(digits) :]]
