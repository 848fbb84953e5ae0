"""Queueing hints of PodTopologySpread: which pods and nodes can help a pod whose hard constraints no node met.

* Assigned pod of the same namespace: helps when its coming, its going, or its new labels change what a constraint counts.
* The pod itself: new labels in the same way; new tolerations where a constraint leaves out tainted nodes.
* Node: helps when it has all topology keys, before or after, and came, went, changed its domains or its taints.
* Service: only where the profile's default constraints are hard, as they count the pods of the pod's services.

A pod without constraints of its own has the profile's default ones, whose selectors come from services and owners. Nothing here
knows those, so every pod of the namespace counts for them.
Source: isSchedulableAfterPodChange, isSchedulableAfterNodeChange of kube-scheduler 1.34. Services are not registered for there.
Cost: compiling the pod's constraints once; then a comparison of labels for each constraint that may count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rayched.api.selectors import Operator, Requirement
from rayched.framework.cluster_event import Action, ClusterEvent, Resource
from rayched.framework.queueing_hints import (
    ANYTHING,
    Handle,
    Hint,
    Labels,
    Look,
    PreparedHint,
    Registration,
    Way,
    handles_of,
    queue_if,
)
from rayched.plugins.pod_topology_spread.constraints import DO_NOT_SCHEDULE, HONOR
from rayched.snapshot.pod_selection import LabelConditions, conditions_of, hold
from rayched.v1.core_pb2 import Node, Pod, Service, TopologySpreadConstraint


def registrations(default_constraints: Sequence[TopologySpreadConstraint]) -> Sequence[Registration]:
    """The events of the plugin, with these constraints for pods that have none."""
    hints = _Hints(tuple(constraint for constraint in default_constraints if constraint.when_unsatisfiable == DO_NOT_SCHEDULE))
    pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE | Action.UPDATE_POD_TOLERATION
    nodes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
    found = [
        Registration(ClusterEvent(Resource.POD, pods), PreparedHint(hints.after_pod, _pods)),
        Registration(ClusterEvent(Resource.NODE, nodes), PreparedHint(hints.after_node, _nodes)),
    ]
    if hints.defaults:
        found.append(Registration(ClusterEvent(Resource.SERVICE, Action.ALL), PreparedHint(_AfterService.of, _services)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Hints:
    """What the hints ask, which needs the profile's hard default constraints."""

    defaults: tuple[TopologySpreadConstraint, ...]

    def after_pod(self, pod: Pod) -> _SpreadPodHint:
        own, labels = pod.spec.topology_spread_constraints, pod.metadata.labels
        if not own:
            honors = any(one.node_taints_policy == HONOR for one in self.defaults)
            return _SpreadPodHint(pod.metadata.namespace, pod.metadata.uid, honors, bool(self.defaults), ())
        hard = _hard(own)
        counted = tuple(_counted(one, labels) for one in hard)
        honors = any(one.node_taints_policy == HONOR for one in hard)
        return _SpreadPodHint(pod.metadata.namespace, pod.metadata.uid, honors, counts_all=False, counted=counted)

    def after_node(self, pod: Pod) -> _SpreadNodeHint:
        constraints = _hard(pod.spec.topology_spread_constraints) if pod.spec.topology_spread_constraints else self.defaults
        return _SpreadNodeHint(tuple(constraint.topology_key for constraint in constraints))


def _hard(constraints: Sequence[TopologySpreadConstraint]) -> list[TopologySpreadConstraint]:
    return [constraint for constraint in constraints if constraint.when_unsatisfiable == DO_NOT_SCHEDULE]


def _counted(constraint: TopologySpreadConstraint, labels: Labels) -> LabelConditions:
    """Which labels it counts: those that its selector and the pod's own values of matchLabelKeys select."""
    conditions = conditions_of(constraint.label_selector if constraint.HasField("label_selector") else None)
    if conditions is None:
        return None
    keys = (key for key in constraint.match_label_keys if key in labels)
    return (*conditions, *(Requirement(key, Operator.IN, frozenset((labels[key],))) for key in keys))


# ---------------------------------------------------------------------------------------------------------------- pods


@dataclass(frozen=True, slots=True)
class _SpreadPodHint:
    namespace: str
    uid: str
    honors_taints: bool
    """Any of the constraints leaves out tainted nodes."""
    counts_all: bool
    """It is not known which pods are counted."""
    counted: tuple[LabelConditions, ...]
    """Of each constraint."""

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(one.key for conditions in self.counted for one in conditions or ())

    @property
    def ways(self) -> tuple[Way, ...]:
        if self.counts_all or self.honors_taints:
            return ((frozenset[Handle]({(self.namespace,)}),),)
        return tuple(handles_of(one, (self.namespace,)) for one in self.counted if one is not None)

    def __call__(self, look: Look) -> Hint:
        rest = look.rest
        assert isinstance(rest, _PodsRead)
        if not all(self._is_involved(look.namespace, is_placed, uid) for is_placed, uid in rest.pods):
            return Hint.SKIP
        before, after = look.before, look.after
        if before is None or after is None:
            labels = after if before is None else before
            return queue_if(labels is not None and (self.counts_all or any(hold(one, labels) for one in self.counted)))
        if rest.new_tolerations and self._is_itself(*rest.pods[1]) and self.honors_taints:
            return Hint.QUEUE
        if before == after:
            return Hint.SKIP
        return queue_if(self.counts_all or any(hold(one, before) != hold(one, after) for one in self.counted))

    def _is_involved(self, namespace: str, is_placed: bool, uid: str) -> bool:
        """Whether the constraints may count a pod, or are its own."""
        return self._is_itself(is_placed, uid) or (is_placed and namespace == self.namespace)

    def _is_itself(self, is_placed: bool, uid: str) -> bool:
        return not is_placed and uid == self.uid


@dataclass(frozen=True, slots=True)
class _PodsRead:
    """What is read of the pods before and after, beside their labels."""

    pods: tuple[tuple[bool, str], ...]
    """Of each that there is: whether it has a node, and the uid of one that has none."""
    new_tolerations: bool
    new_labels: bool
    """Any of them, also such as no constraint reads."""


def _pods(old: Pod | None, new: Pod | None) -> Look:
    pods = [pod for pod in (old, new) if pod is not None]
    before, after = (None if pod is None else dict(pod.metadata.labels) for pod in (old, new))
    rest = _PodsRead(
        pods=tuple((bool(pod.spec.node_name), "" if pod.spec.node_name else pod.metadata.uid) for pod in pods),
        new_tolerations=old is not None and new is not None and list(old.spec.tolerations) != list(new.spec.tolerations),
        new_labels=before != after,
    )
    return Look(rest, before, after, pods[0].metadata.namespace if pods else "")


# --------------------------------------------------------------------------------------------------------------- nodes


@dataclass(frozen=True, slots=True)
class _SpreadNodeHint:
    topology_keys: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return self.topology_keys

    @property
    def ways(self) -> tuple[Way, ...]:
        return (tuple(frozenset[Handle]({(None, key)}) for key in self.topology_keys) or (ANYTHING,),)

    def __call__(self, look: Look) -> Hint:
        keys, before, after = self.topology_keys, look.before, look.after
        counted_before, counted_after = _has_all(keys, before), _has_all(keys, after)
        if before is None or after is None:
            return queue_if(counted_before or counted_after)
        if counted_before != counted_after:
            return Hint.QUEUE
        moved = any(before.get(key) != after.get(key) for key in keys)
        return queue_if(counted_after and (moved or bool(look.rest)))


def _nodes(old: Node | None, new: Node | None) -> Look:
    before, after = (None if node is None else dict(node.metadata.labels) for node in (old, new))
    new_taints = old is not None and new is not None and list(old.spec.taints) != list(new.spec.taints)
    return Look(new_taints, before, after)


def _has_all(keys: Sequence[str], labels: Labels | None) -> bool:
    return labels is not None and all(key in labels for key in keys)


# ------------------------------------------------------------------------------------------------------------ services


@dataclass(frozen=True, slots=True)
class _AfterService:
    namespace: str
    """"" where the pod has constraints of its own, which look at no service."""

    @classmethod
    def of(cls, pod: Pod) -> _AfterService:
        return cls("" if pod.spec.topology_spread_constraints else pod.metadata.namespace)

    @property
    def keys(self) -> tuple[str, ...]:
        return ()

    @property
    def ways(self) -> tuple[Way, ...]:
        return ((frozenset[Handle]({(self.namespace,)}),),) if self.namespace else ()

    def __call__(self, look: Look) -> Hint:
        return queue_if(self.namespace != "" and look.namespace == self.namespace)


def _services(old: Service | None, new: Service | None) -> Look:
    service = old if new is None else new
    return Look(namespace="" if service is None else service.metadata.namespace)
