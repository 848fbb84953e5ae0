"""What an update of an object means for scheduling: which cluster events it is.

A pod's update gives one event for each property that can make a pod schedulable, or UPDATE_POD_OTHER; a node's update gives as
many as apply, perhaps none. `is_pod_updated` tells whether anything that people set has changed, leaving out what the system
itself writes; an update without such a change wakes nobody, or the status that a failed attempt writes would wake its own pod.

Known from 1.34 and kept: cordoning is no event, uncordoning is a change of taints; tolerations are compared by their number, as
they can only be added. What of a node differs `api.node_difference` tells.

Source: PodSchedulingPropertiesChange, NodeSchedulingPropertiesChange, isPodUpdated of kube-scheduler 1.34.
Cost: a comparison of both messages.
"""

from __future__ import annotations

from typing import Final

from rayched.api import resources
from rayched.api.node_difference import NodeDifference
from rayched.framework.cluster_event import (
    NODE_ALLOCATABLE_UPDATE,
    NODE_ANNOTATION_UPDATE,
    NODE_CONDITION_UPDATE,
    NODE_LABEL_UPDATE,
    NODE_TAINT_UPDATE,
    Action,
    ClusterEvent,
    Resource,
)
from rayched.v1.core_pb2 import Pod
from rayched.v1.meta_pb2 import ObjectMeta

_WRITTEN_BY_THE_SYSTEM: Final = ("resource_version", "generation", "finalizers")


def is_pod_updated(old: Pod, new: Pod) -> bool:
    """Whether the pods differ in more than resourceVersion, generation, finalizers and status."""
    if old is new:
        return False
    return old.spec != new.spec or (old.metadata != new.metadata and _set_by_people(old.metadata) != _set_by_people(new.metadata))


def pod_change_events(old: Pod, new: Pod) -> tuple[ClusterEvent, ...]:
    """The events of a pod's update; at least one."""
    resource = Resource.ASSIGNED_POD if new.spec.node_name else Resource.UNSCHEDULABLE_POD
    actions: list[Action] = []
    if old.metadata.labels != new.metadata.labels:
        actions.append(Action.UPDATE_POD_LABEL)
    if _scaled_down(old, new):
        actions.append(Action.UPDATE_POD_SCALE_DOWN)
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        actions.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    if len(old.spec.tolerations) != len(new.spec.tolerations):
        actions.append(Action.UPDATE_POD_TOLERATION)
    return tuple(ClusterEvent(resource, action) for action in actions or [Action.UPDATE_POD_OTHER])


def node_change_events(difference: NodeDifference) -> tuple[ClusterEvent, ...]:
    """The events of a node's update; empty where scheduling reads nothing of what changed."""
    events: list[ClusterEvent] = []
    if difference.uncordoned:
        events.append(NODE_TAINT_UPDATE)
    if difference.allocatable:
        events.append(NODE_ALLOCATABLE_UPDATE)
    if difference.labels:
        events.append(NODE_LABEL_UPDATE)
    if difference.taints:
        events.append(NODE_TAINT_UPDATE)
    if difference.conditions:
        events.append(NODE_CONDITION_UPDATE)
    if difference.annotations:
        events.append(NODE_ANNOTATION_UPDATE)
    return tuple(events)


def _set_by_people(metadata: ObjectMeta) -> ObjectMeta:
    kept = ObjectMeta()
    kept.CopyFrom(metadata)
    for field in _WRITTEN_BY_THE_SYSTEM:
        kept.ClearField(field)
    return kept


def _scaled_down(old: Pod, new: Pod) -> bool:
    """Whether any resource is asked for less than before, or no longer."""
    if old.spec == new.spec and old.status == new.status:
        return False
    now_requested = resources.requested(new, in_force=True)
    for name, amount in resources.requested(old, in_force=True).items():
        now_amount = now_requested.get(name)
        if now_amount is None or amount.milli_value() > now_amount.milli_value():
            return True
    return False
