"""What the SchedulerActor knows of each pod, and how its knowledge changes: the vocabulary between cache and scheduler core.

Named tuples, as they are made for each change of a pod: a frozen dataclass takes five times as long to make.
"""

from __future__ import annotations

from typing import NamedTuple

from rayched.api.kinds import AnyObject
from rayched.api.node_difference import EVERYTHING, NodeDifference
from rayched.api.stages import Stage
from rayched.snapshot.templates import PodTemplate
from rayched.v1.core_pb2 import Node, Pod, PodStatus
from rayched.v1.storage_pb2 import GroupPlan, Stored


def told_by(status: PodStatus) -> tuple[str, bool, bool]:
    """What a KeptPod knows of its pod's status: `nominated`, `has_started` and `is_bare`."""
    return status.nominated_node_name, status.HasField("start_time"), not status.conditions


class KeptPod:
    """The object of a pending pod, read out of its value when it is first asked for: most replicas never do."""

    __slots__ = ("_mod_revision", "_pod", "_value", "has_started", "is_bare", "nominated")

    def __init__(
        self,
        value: bytes,
        mod_revision: int,
        nominated: str,
        has_started: bool = False,
        is_bare: bool = False,
    ) -> None:
        """`value` is known to be readable."""
        self._value = value
        self._mod_revision = mod_revision
        self._pod: Pod | None = None
        self.nominated = nominated
        """The node that its status nominates, "" for none."""
        self.has_started = has_started
        """Its status says since when it runs, which is odd for a pending pod."""
        self.is_bare = is_bare
        """It is known that it has no conditions: a binding has none to replace."""

    @property
    def pod(self) -> Pod:
        """Not to be changed."""
        if self._pod is None:
            self._pod = Stored.FromString(self._value).object.pod
            self._pod.metadata.resource_version = str(self._mod_revision)
        return self._pod

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeptPod):
            return NotImplemented
        return (self.pod, self.nominated, self.has_started) == (other.pod, other.nominated, other.has_started)

    __hash__ = None  # type: ignore[assignment]


class PodRecord(NamedTuple):
    """A pod as of one revision."""

    uid: str
    name: str
    """namespace/name."""
    key: bytes
    """Its key in the store."""
    mod_revision: int
    create_revision: int
    stage: Stage
    node_name: str
    """Empty unless the pod has a node."""
    template: PodTemplate
    bound_by: str
    """Attempt id of the binding, where the last leader's write was one."""
    kept: KeptPod | None
    """Of a pending pod: only a binding needs it."""
    value: bytes = b""
    """What it was read from, kept while the pod is pending or bound: then it may become the victim of a preemption."""
    is_ending: bool = False
    """Of a bound pod: it was told to end."""

    @property
    def pod(self) -> Pod | None:
        """The object of a pending pod. Not to be changed."""
        return None if self.kept is None else self.kept.pod


def nominated_in(record: PodRecord | None) -> str:
    """The node that a pending pod's status nominates, "" for none."""
    return "" if record is None or record.kept is None else record.kept.nominated


class PodChanged(NamedTuple):
    """A pod came (`old` is None), changed, or went (`new` is None)."""

    old: PodRecord | None
    new: PodRecord | None


class NodeChanged(NamedTuple):
    """A node came, changed, or went. The objects are not to be changed."""

    old: Node | None
    new: Node | None
    difference: NodeDifference = EVERYTHING
    """Of a node that changed."""


class ObjectChanged(NamedTuple):
    """An object of another kind came, changed, or went."""

    kind: str
    old: AnyObject | None
    new: AnyObject | None


class RecordedPlan(NamedTuple):
    """The plan of a group as it lies in the store."""

    revision: int
    plan: GroupPlan | None
    """None: it cannot be read. Not to be changed."""
    decided_at: int = 0


class PlanChanged(NamedTuple):
    """The plan of a group, named by namespace/name, came, changed, or went (`new` is None)."""

    group: str
    new: RecordedPlan | None


CacheChange = PodChanged | NodeChanged | ObjectChanged | PlanChanged
