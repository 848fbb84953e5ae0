"""A pending pod: what the caller hands in, what the queue keeps about it, and what it tells about its moves.

`PendingPod` is the caller's value. `QueuedPodInfo` is the queue's own record of it, changed only by this room; callers read it.
A pod is identified by its uid and, among the pods that are pending, by namespace/name.

The Pod message may be the pod's own, or one that all pods of its template share (then name, uid and status are empty in it and
come from the other fields). `template` is any hashable that is equal exactly for pods with equal spec, labels and namespace.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, NamedTuple

from rayched.v1.core_pb2 import Pod

if TYPE_CHECKING:
    from rayched.queue.hint_index import HintEntry

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"

NO_PLUGINS: Final[frozenset[str]] = frozenset()


class Place(enum.StrEnum):
    """Where a pending pod is. It is in exactly one place."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    ERROR_BACKOFF = "error_backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in_flight"
    NOWHERE = "nowhere"


class PendingPod(NamedTuple):
    """A pod without a node, as the caller knows it."""

    uid: str
    key: str
    """namespace/name."""
    pod: Pod
    priority: int = 0
    scheduler_name: str = DEFAULT_SCHEDULER_NAME
    template: Hashable | None = None
    """None: nothing is shared with other pods."""
    nominated_node_name: str = ""
    members: int = 1
    """Of a pod group: those that wait."""
    is_group: bool = False
    """It stands for a pod group."""

    @classmethod
    def of(cls, pod: Pod, template: Hashable | None = None) -> PendingPod:
        """Reads everything out of the pod's own message."""
        metadata, spec = pod.metadata, pod.spec
        return cls(
            uid=metadata.uid,
            key=f"{metadata.namespace}/{metadata.name}",
            pod=pod,
            priority=spec.priority,
            scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER_NAME,
            template=template,
            nominated_node_name=pod.status.nominated_node_name,
        )


class Move(NamedTuple):
    """A pod came into a place of the queue; `event` is the label of what brought it there."""

    uid: str
    key: str
    event: str
    place: Place


Moves = tuple[Move, ...]


class QueuedPodInfo:
    """The queue's record of one pending pod. Times are in seconds."""

    __slots__ = (
        "askings",
        "attempts",
        "backoff_until",
        "consecutive_errors",
        "flush_due",
        "gating_plugin",
        "gating_reasons",
        "initial_attempt",
        "is_group",
        "key",
        "members",
        "nominated_node_name",
        "pending_plugins",
        "place",
        "pod",
        "priority",
        "scheduler_name",
        "seen_through",
        "template",
        "timestamp",
        "uid",
        "unschedulable_count",
        "unschedulable_plugins",
        "woken_at",
        "woken_by",
    )

    def __init__(self, pending: PendingPod, now: float) -> None:
        self.uid = pending.uid
        self.key = pending.key
        self.pod = pending.pod
        self.priority = pending.priority
        self.scheduler_name = pending.scheduler_name
        self.template = pending.template
        self.members = pending.members
        self.is_group = pending.is_group
        self.nominated_node_name = pending.nominated_node_name
        """What the pod's own status says; the nominator may know more."""
        self.timestamp = now
        """When the pod entered the queue this time."""
        self.initial_attempt: float | None = None
        """When it first entered activeQ."""
        self.attempts = 0
        self.unschedulable_count = 0
        """Attempts that ended with a rejection."""
        self.consecutive_errors = 0
        """Attempts that ended with an error since the last rejection."""
        self.unschedulable_plugins = NO_PLUGINS
        """Who rejected the last attempt, or gates the pod."""
        self.pending_plugins = NO_PLUGINS
        """Who answered PENDING in the last attempt."""
        self.gating_plugin = ""
        self.gating_reasons: tuple[str, ...] = ()
        self.backoff_until: float | None = None
        """The second in which the backoff ends; kept until the next pop."""
        self.flush_due: float | None = None
        """After this the pod is tried again whatever happens; set while it is among the unschedulable ones."""
        self.askings: tuple[HintEntry, ...] = ()
        """Where it lies under what the hints ask about it, while it is unschedulable."""
        self.place = Place.NOWHERE
        self.seen_through: int
        """Of a pod that was rejected: position in the log up to which its last attempt has seen everything, or its hints have
        judged it as it is now."""
        self.woken_by: str
        """Label of what brought it to its place."""
        self.woken_at: int
        """Position in the log of the event that was worth this attempt; 0 where it was none, or the pod has changed since."""

    @property
    def gated(self) -> bool:
        return self.gating_plugin != ""

    @property
    def rejectors(self) -> frozenset[str]:
        """Every plugin that holds the pod."""
        return self.unschedulable_plugins | self.pending_plugins if self.pending_plugins else self.unschedulable_plugins

    def absorb(self, pending: PendingPod) -> None:
        """Takes over the newest object; what the queue knows of the pod stays. A pod's scheduler name never changes."""
        self.pod = pending.pod
        self.priority = pending.priority
        self.template = pending.template
        self.members = pending.members
        self.nominated_node_name = pending.nominated_node_name

    def __repr__(self) -> str:
        return f"QueuedPodInfo({self.key}, {self.place}, attempts={self.attempts})"
