"""Queueing hints of PodTopologySpread: which pods and nodes can help a pod whose hard constraints no node met.

* Assigned pod of the same namespace: helps when its coming, its going, or its new labels change what a constraint counts.
* The pod itself: new labels in the same way; new tolerations where a constraint leaves out tainted nodes.
* Node: helps when it has all topology keys, before or after, and came, went, changed its domains or its taints.
* Service: only where the profile's default constraints are hard, as they count the pods of the pod's services.

A pod without constraints of its own has the profile's default ones, whose selectors come from services and owners. Nothing here
knows those, so every pod of the namespace counts for them.
Source: isSchedulableAfterPodChange, isSchedulableAfterNodeChange of kube-scheduler 1.34. Services are not registered for there.
Cost: compiling the pod's constraints, once for each event that a template is asked about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rayched.api.selectors import LabelSelectorMatcher
from rayched.framework.cluster_event import Action, ClusterEvent, Resource
from rayched.framework.queueing_hints import Hint, Registration, is_itself, queue_if
from rayched.v1.core_pb2 import Node, Pod, Service, TopologySpreadConstraint

_DO_NOT_SCHEDULE: Final = "DoNotSchedule"
_HONOR: Final = "Honor"


def registrations(default_constraints: Sequence[TopologySpreadConstraint]) -> Sequence[Registration]:
    """The events of the plugin, with these constraints for pods that have none."""
    hints = _Hints(tuple(constraint for constraint in default_constraints if constraint.when_unsatisfiable == _DO_NOT_SCHEDULE))
    pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE | Action.UPDATE_POD_TOLERATION
    nodes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
    found = [
        Registration(ClusterEvent(Resource.POD, pods), hints.after_pod),
        Registration(ClusterEvent(Resource.NODE, nodes), hints.after_node),
    ]
    if hints.defaults:
        found.append(Registration(ClusterEvent(Resource.SERVICE, Action.ALL), hints.after_service))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Constraint:
    topology_key: str
    honors_taints: bool
    selector: LabelSelectorMatcher | None
    """None: it is not known which pods are counted."""
    wanted: Mapping[str, str]
    """Labels that matchLabelKeys add to the selector."""

    def counts(self, labels: Mapping[str, str]) -> bool:
        if self.selector is None:
            return True
        return self.selector.matches(labels) and all(labels.get(key) == value for key, value in self.wanted.items())


@dataclass(frozen=True, slots=True)
class _Hints:
    """The hint functions, which need the profile's hard default constraints."""

    defaults: tuple[TopologySpreadConstraint, ...]

    def after_pod(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        if any(other is not None and not _is_involved(other, pod) for other in (old, new)):
            return Hint.SKIP
        constraints = self._constraints(pod)
        if old is None or new is None:
            only = old if new is None else new
            return queue_if(only is not None and any(constraint.counts(only.metadata.labels) for constraint in constraints))
        if (
            is_itself(pod, new)
            and list(old.spec.tolerations) != list(new.spec.tolerations)
            and any(constraint.honors_taints for constraint in constraints)
        ):
            return Hint.QUEUE
        before, after = old.metadata.labels, new.metadata.labels
        if before == after:
            return Hint.SKIP
        return queue_if(any(one.selector is None or one.counts(before) != one.counts(after) for one in constraints))

    def after_node(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        keys = [constraint.topology_key for constraint in self._constraints(pod)]
        counted_before, counted_after = _has_all(keys, old), _has_all(keys, new)
        if old is None or new is None:
            return queue_if(counted_before or counted_after)
        if counted_before != counted_after:
            return Hint.QUEUE
        before, after = old.metadata.labels, new.metadata.labels
        moved = any(before.get(key) != after.get(key) for key in keys)
        return queue_if(counted_after and (moved or list(old.spec.taints) != list(new.spec.taints)))

    def after_service(self, pod: Pod, old: Service | None, new: Service | None) -> Hint:
        if pod.spec.topology_spread_constraints:
            return Hint.SKIP
        namespaces = {service.metadata.namespace for service in (old, new) if service is not None}
        return queue_if(pod.metadata.namespace in namespaces)

    def _constraints(self, pod: Pod) -> list[_Constraint]:
        """The pod's hard constraints."""
        own = pod.spec.topology_spread_constraints
        if not own:
            return [_Constraint(one.topology_key, one.node_taints_policy == _HONOR, None, {}) for one in self.defaults]
        labels = pod.metadata.labels
        return [
            _Constraint(
                one.topology_key,
                one.node_taints_policy == _HONOR,
                LabelSelectorMatcher(one.label_selector if one.HasField("label_selector") else None),
                {key: labels[key] for key in one.match_label_keys if key in labels},
            )
            for one in own
            if one.when_unsatisfiable == _DO_NOT_SCHEDULE
        ]


def _is_involved(other: Pod, pod: Pod) -> bool:
    """Whether the constraints of `pod` may count `other`, or are its own."""
    return is_itself(pod, other) or (bool(other.spec.node_name) and other.metadata.namespace == pod.metadata.namespace)


def _has_all(keys: Sequence[str], node: Node | None) -> bool:
    return node is not None and all(key in node.metadata.labels for key in keys)
