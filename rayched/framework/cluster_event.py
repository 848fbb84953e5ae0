"""Cluster events: what happened to which kind of object, as plugins register for it and as the queue is told of it.

An event names one resource and one or more actions on it. The same type is used for a registration ("I care about these") and for
an occurrence ("this came about"); `matches` is asked of the registration. The objects before and after are no part of the event:
whoever reports it hands them on beside it, and only queueing hints look at them.

Three resources are about pods: POD in a registration stands for both of the others, ASSIGNED_POD for pods that have a node,
UNSCHEDULABLE_POD for a pending pod itself.

Source: fwk.ClusterEvent, fwk.ActionType and the event labels of kube-scheduler 1.34. This file imports nothing of rayched.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Resource(enum.StrEnum):
    """Kinds of objects whose changes can make a pod schedulable."""

    POD = "Pod"
    ASSIGNED_POD = "AssignedPod"
    UNSCHEDULABLE_POD = "UnschedulablePod"
    NODE = "Node"
    NAMESPACE = "Namespace"
    SERVICE = "Service"
    POD_DISRUPTION_BUDGET = "PodDisruptionBudget"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    STORAGE_CLASS = "storage.k8s.io/StorageClass"
    CSI_NODE = "storage.k8s.io/CSINode"
    CSI_DRIVER = "storage.k8s.io/CSIDriver"
    CSI_STORAGE_CAPACITY = "storage.k8s.io/CSIStorageCapacity"
    VOLUME_ATTACHMENT = "storage.k8s.io/VolumeAttachment"
    RESOURCE_CLAIM = "resource.k8s.io/ResourceClaim"
    RESOURCE_SLICE = "resource.k8s.io/ResourceSlice"
    DEVICE_CLASS = "resource.k8s.io/DeviceClass"
    WILDCARD = "*"


class Action(enum.IntFlag):
    """What happened to an object."""

    ADD = enum.auto()
    DELETE = enum.auto()
    UPDATE_NODE_ALLOCATABLE = enum.auto()
    UPDATE_NODE_LABEL = enum.auto()
    UPDATE_NODE_TAINT = enum.auto()
    UPDATE_NODE_CONDITION = enum.auto()
    UPDATE_NODE_ANNOTATION = enum.auto()
    UPDATE_POD_LABEL = enum.auto()
    UPDATE_POD_SCALE_DOWN = enum.auto()
    UPDATE_POD_TOLERATION = enum.auto()
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = enum.auto()
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = enum.auto()
    UPDATE_POD_OTHER = enum.auto()
    """A pod changed in nothing that has an action of its own."""
    UPDATE = (
        UPDATE_NODE_ALLOCATABLE
        | UPDATE_NODE_LABEL
        | UPDATE_NODE_TAINT
        | UPDATE_NODE_CONDITION
        | UPDATE_NODE_ANNOTATION
        | UPDATE_POD_LABEL
        | UPDATE_POD_SCALE_DOWN
        | UPDATE_POD_TOLERATION
        | UPDATE_POD_SCHEDULING_GATES_ELIMINATED
        | UPDATE_POD_GENERATED_RESOURCE_CLAIM
        | UPDATE_POD_OTHER
    )
    ALL = ADD | DELETE | UPDATE


_ACTION_LABELS: Final = {
    Action.ADD: "Add",
    Action.DELETE: "Delete",
    Action.UPDATE_NODE_ALLOCATABLE: "UpdateNodeAllocatable",
    Action.UPDATE_NODE_LABEL: "UpdateNodeLabel",
    Action.UPDATE_NODE_TAINT: "UpdateNodeTaint",
    Action.UPDATE_NODE_CONDITION: "UpdateNodeCondition",
    Action.UPDATE_NODE_ANNOTATION: "UpdateNodeAnnotation",
    Action.UPDATE_POD_LABEL: "UpdatePodLabel",
    Action.UPDATE_POD_SCALE_DOWN: "UpdatePodScaleDown",
    Action.UPDATE_POD_TOLERATION: "UpdatePodToleration",
    Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED: "UpdatePodSchedulingGatesEliminated",
    Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM: "UpdatePodGeneratedResourceClaim",
    Action.UPDATE_POD_OTHER: "Update",
    Action.UPDATE: "Update",
    Action.ALL: "All",
}
"""Texts of the metric label. A mixture of actions, which only registrations use, is spelt out with bars."""

_POD_SUBSETS: Final = (Resource.ASSIGNED_POD, Resource.UNSCHEDULABLE_POD)


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """Actions on a resource."""

    resource: Resource
    action: Action
    custom_label: str = ""

    def __hash__(self) -> int:
        # Events are looked up for each binding; hashing the members themselves takes four times as long.
        return hash((self.resource._value_, self.action._value_))

    @property
    def label(self) -> str:
        """The value of the metric label `event`, as in kube-scheduler."""
        if self.custom_label:
            return self.custom_label
        known = _ACTION_LABELS.get(self.action)
        return self.resource + (known or "|".join(_ACTION_LABELS[one] for one in self.action))

    def parts(self) -> tuple[ClusterEvent, ...]:
        """The events with a label of their own that this registration covers."""
        if self.custom_label or self.action in _ACTION_LABELS:
            return (self,)
        return tuple(ClusterEvent(self.resource, one) for one in self.action)

    @property
    def is_wildcard(self) -> bool:
        """As an occurrence: wakes pods whatever holds them. As a registration: every event is of interest."""
        return self.resource is Resource.WILDCARD and self.action == Action.ALL

    def matches(self, incoming: ClusterEvent) -> bool:
        """Whether this registration covers the event that came about."""
        if self.is_wildcard:
            return True
        resource = self.resource
        same = (
            resource is Resource.WILDCARD
            or resource is incoming.resource
            or (resource is Resource.POD and incoming.resource in _POD_SUBSETS)
        )
        return same and bool(self.action & incoming.action)


EVERY_EVENT: Final = ClusterEvent(Resource.WILDCARD, Action.ALL)

NODE_ADD: Final = ClusterEvent(Resource.NODE, Action.ADD)
NODE_DELETE: Final = ClusterEvent(Resource.NODE, Action.DELETE)
NODE_ALLOCATABLE_UPDATE: Final = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE)
NODE_LABEL_UPDATE: Final = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
NODE_TAINT_UPDATE: Final = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
NODE_CONDITION_UPDATE: Final = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_CONDITION)
NODE_ANNOTATION_UPDATE: Final = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ANNOTATION)

ASSIGNED_POD_ADD: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
ASSIGNED_POD_DELETE: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
UNSCHEDULABLE_POD_ADD: Final = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.ADD)
UNSCHEDULABLE_POD_UPDATE: Final = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE)

FORCE_ACTIVATE: Final = ClusterEvent(Resource.WILDCARD, Action.ALL, "ForceActivate")
UNSCHEDULABLE_TIMEOUT: Final = ClusterEvent(Resource.WILDCARD, Action.ALL, "UnschedulableTimeout")

# Labels of moves that no object's change brought about.
SCHEDULE_ATTEMPT_FAILURE: Final = "ScheduleAttemptFailure"
BACKOFF_COMPLETE: Final = "BackoffComplete"
POP_FROM_BACKOFF_Q: Final = "PopFromBackoffQ"
GIVEN_BACK: Final = "GivenBack"
"""The pod was handed out, but its attempt had not begun when something more urgent came. Not a label of kube-scheduler."""
INVARIANT_REPAIR: Final = "InvariantRepair"
"""The queue's self-audit found the pod where it did not belong. Not a label of kube-scheduler."""
