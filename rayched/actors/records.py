"""What the SchedulerActor knows of each pod, and how its knowledge changes: the vocabulary between cache and scheduler core.

Named tuples, as they are made for each change of a pod: a frozen dataclass takes five times as long to make.
"""

from __future__ import annotations

from typing import NamedTuple

from rayched.api.kinds import AnyObject
from rayched.api.stages import Stage
from rayched.snapshot.templates import PodTemplate
from rayched.v1.core_pb2 import Node, Pod


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
    pod: Pod | None
    """The object, kept while the pod is pending: a binding needs it, and nobody else does. Not to be changed."""
    value: bytes = b""
    """What it was read from, kept while the pod is pending or bound: then it may become the victim of a preemption."""


def nominated_in(record: PodRecord | None) -> str:
    """The node that a pending pod's status nominates, "" for none."""
    return "" if record is None or record.pod is None else record.pod.status.nominated_node_name


class PodChanged(NamedTuple):
    """A pod came (`old` is None), changed, or went (`new` is None)."""

    old: PodRecord | None
    new: PodRecord | None


class NodeChanged(NamedTuple):
    """A node came, changed, or went. The objects are not to be changed."""

    old: Node | None
    new: Node | None


class ObjectChanged(NamedTuple):
    """An object of another kind came, changed, or went."""

    kind: str
    old: AnyObject | None
    new: AnyObject | None


CacheChange = PodChanged | NodeChanged | ObjectChanged
