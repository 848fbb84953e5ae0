"""What the scheduler writes into a pod: its node, its nomination, the condition PodScheduled, and that it was preempted.

Each function returns the changed copy as the store's value; the pod given stays as it is.

Source: core/v1 PodCondition PodScheduled; DefaultBinder, handleSchedulingFailure and updatePodStatus of kube-scheduler 1.34.
Cost: 1 µs for a binding of a pod without conditions; else about 7 µs.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from rayched.api.conditions import set_condition
from rayched.api.termination import GROUP_INCOMPLETE, PREEMPTION_BY_SCHEDULER, ask_to_end, mark_disrupted
from rayched.api.wire import field_tag, varint
from rayched.core.cache.records import PodRecord
from rayched.store.codec import encode
from rayched.v1.core_pb2 import Pod, PodSpec
from rayched.v1.storage_pb2 import LeaderWrite, Stored
from rayched.v1.workloads_pb2 import Object

OP_BIND: Final = "bind"
OP_STATUS: Final = "status"
OP_PREEMPT: Final = "preempt"
"""What a leader's write is for, as it stands beside the object."""

POD_SCHEDULED: Final = "PodScheduled"
REASON_UNSCHEDULABLE: Final = "Unschedulable"
REASON_ERROR: Final = "SchedulerError"
REASON_GATED: Final = "SchedulingGated"
GATED_MESSAGE: Final = "Scheduling is blocked due to non-empty scheduling gates"


@dataclass(frozen=True, slots=True)
class NotScheduled:
    """Why a pod has no node, as its condition says it. `nominated_node_name` None leaves the pod's nomination alone."""

    reason: str
    message: str
    nominated_node_name: str | None = None

    def is_said_by(self, pod: Pod) -> bool:
        """The pod's status says exactly this already."""
        if self.nominated_node_name not in (None, pod.status.nominated_node_name):
            return False
        return any(
            condition.type == POD_SCHEDULED
            and (condition.status, condition.reason, condition.message) == ("False", self.reason, self.message)
            for condition in pod.status.conditions
        )


_OBJECT, _LEADER_WRITE = field_tag(Stored, "object"), field_tag(Stored, "leader_write")
_POD, _SPEC, _NODE_NAME = field_tag(Object, "pod"), field_tag(Pod, "spec"), field_tag(PodSpec, "node_name")
_ATTEMPT: Final = field_tag(LeaderWrite, "attempt")

GATED: Final = NotScheduled(REASON_GATED, GATED_MESSAGE)


class BindingValues:
    """Makes the values of bindings that are written together; what they have in common is encoded once."""

    __slots__ = ("_decided_at", "_epoch", "_head", "_now_unix", "_status", "_tail")

    def __init__(self, epoch: int, now_unix: float) -> None:
        self._epoch = epoch
        self._now_unix = now_unix
        self._head = LeaderWrite(op=OP_BIND, epoch=epoch).SerializeToString()
        self._status = _status_bound_at(int(now_unix))
        self._decided_at = 0
        self._tail = b""

    def value(self, record: PodRecord, node_name: str, attempt: str, decided_at: int) -> bytes:
        """The pending pod of the record on its node.

        Where nothing has to be replaced the change is put behind what is stored: protobuf merges messages that follow each
        other, so that the pod need not be read, copied and encoded as a whole.
        """
        kept = record.kept
        assert kept is not None
        if not kept.is_bare:
            write = LeaderWrite(op=OP_BIND, epoch=self._epoch, attempt=attempt, decided_at_revision=decided_at)
            return _bound_anew(kept.pod, node_name, write, self._now_unix)
        if decided_at != self._decided_at:
            self._decided_at = decided_at
            self._tail = LeaderWrite(decided_at_revision=decided_at).SerializeToString()
        return record.value + _bound_change(node_name, self._status, self._head, attempt.encode(), self._tail)


def _bound_anew(pod: Pod, node_name: str, write: LeaderWrite, now_unix: float) -> bytes:
    item = Object(pod=pod)
    item.pod.spec.node_name = node_name
    if pod.spec.scheduling_group.pod_group_name:
        # As in Kubernetes 1.37, which has groups: a nomination ends with the binding.
        item.pod.status.nominated_node_name = ""
    set_condition(item.pod.status.conditions, POD_SCHEDULED, "True", "", "", now_unix)
    return encode(item, write)


def bound_behind(stored: bytes, value: bytes) -> tuple[str, str] | None:
    """The node, and the attempt, of a binding that was put behind a stored pod and changed nothing else. None: it is no such."""
    if not value.startswith(stored):
        return None
    behind = value[len(stored) :]
    try:
        change = Stored.FromString(behind)
    except DecodeError:
        return None
    pod, write = change.object.pod, change.leader_write
    node_name, conditions = pod.spec.node_name, pod.status.conditions
    if not node_name or len(conditions) != 1 or write.op != OP_BIND:
        return None
    head = LeaderWrite(op=OP_BIND, epoch=write.epoch).SerializeToString()
    tail = LeaderWrite(decided_at_revision=write.decided_at_revision).SerializeToString()
    status = _status_bound_at(conditions[0].last_transition_time.seconds)
    if _bound_change(node_name, status, head, write.attempt.encode(), tail) != behind:
        return None
    return node_name, write.attempt


def _bound_change(node_name: str, status: bytes, head: bytes, attempt: bytes, tail: bytes) -> bytes:
    """A Stored with the node, the status and the leader's write, and nothing else, as protobuf would encode it.

    `head` and `tail` are the fields of the leader's write before and behind the attempt.
    """
    spec = _spec_on(node_name)
    before_write, before_attempt = _around_attempt(len(attempt), len(head) + len(tail))
    before = _before_pod(len(spec) + len(status))
    return b"".join((before, spec, status, before_write, head, before_attempt, attempt, tail))


@functools.lru_cache(maxsize=8_192)
def _spec_on(node_name: str) -> bytes:
    """The field of a pod that has a spec with the node and nothing else."""
    name = node_name.encode()
    field = b"".join((_NODE_NAME, varint(len(name)), name))
    return b"".join((_SPEC, varint(len(field)), field))


@functools.lru_cache(maxsize=1_024)
def _before_pod(pod: int) -> bytes:
    """What stands before the pod's fields, which take so many bytes."""
    size = varint(pod)
    return b"".join((_OBJECT, varint(1 + len(size) + pod), _POD, size))


@functools.lru_cache(maxsize=1_024)
def _around_attempt(attempt: int, others: int) -> tuple[bytes, bytes]:
    """What stands before the leader's write and before its attempt, where that and the other fields take so many bytes."""
    size = varint(attempt)
    return _LEADER_WRITE + varint(others + 1 + len(size) + attempt), _ATTEMPT + size


@functools.lru_cache(maxsize=8)
def _status_bound_at(seconds: int) -> bytes:
    """The field of a pod that has the condition of a bound one and nothing else."""
    pod = Pod()
    set_condition(pod.status.conditions, POD_SCHEDULED, "True", "", "", seconds)
    return pod.SerializeToString()


def not_scheduled_value(pod: Pod, why: NotScheduled, write: LeaderWrite, now_unix: float) -> bytes:
    """The pod with the condition that says why it has no node."""
    item = Object(pod=pod)
    set_condition(item.pod.status.conditions, POD_SCHEDULED, "False", why.reason, why.message, now_unix)
    if why.nominated_node_name is not None:
        item.pod.status.nominated_node_name = why.nominated_node_name
    return encode(item, write)


def nominated_value(pod: Pod, node_name: str, write: LeaderWrite) -> bytes:
    """The pod nominated to a node, "" for none."""
    item = Object(pod=pod)
    item.pod.status.nominated_node_name = node_name
    return encode(item, write)


def preempted_value(value: bytes, scheduler_name: str, write: LeaderWrite, now_unix: float) -> bytes:
    """A victim, given as it is stored: told to end, with the time that its own spec grants it, and why.

    Without such time it is given a second: its agent removes it, as only that knows that nothing of it runs any more.
    """
    message = f"{scheduler_name}: preempting to accommodate a higher priority pod"
    return _told_to_end(value, PREEMPTION_BY_SCHEDULER, message, write, now_unix)


def released_value(value: bytes, group: str, write: LeaderWrite, now_unix: float) -> bytes:
    """A member of an incomplete group, given as it is stored: told to end, as a victim is."""
    return _told_to_end(value, GROUP_INCOMPLETE, f"pod group {group} has too few members", write, now_unix)


def _told_to_end(value: bytes, reason: str, message: str, write: LeaderWrite, now_unix: float) -> bytes:
    item = Object()
    item.CopyFrom(Stored.FromString(value).object)
    pod, now_seconds = item.pod, int(now_unix)
    ask_to_end(pod, max(1, pod.spec.termination_grace_period_seconds), now_seconds)
    mark_disrupted(pod, reason, message, now_seconds)
    return encode(item, write)
