"""One batch of victims of a group as a transaction in the making: who ends by it, and what is written with them (`group_rooms`).

No I/O. Owner: GroupRooms. Cost: about 20 µs for each pod that is written.
"""

from __future__ import annotations

from rayched.api.stages import Stage
from rayched.api.termination import PREEMPTION_BY_SCHEDULER
from rayched.core.cache.records import PodRecord, nominated_in
from rayched.core.groups.clearings import Clearing
from rayched.core.groups.group_writes import DISRUPTED, OP_GROUP, object_of, with_condition
from rayched.core.groups.membership import GroupState
from rayched.core.groups.victim_units import VictimUnit
from rayched.core.parts import CoreParts
from rayched.core.writes.budgets import VictimWrite, held_by, spend
from rayched.core.writes.pod_patches import (
    OP_PREEMPT,
    OP_STATUS,
    REASON_UNSCHEDULABLE,
    NotScheduled,
    nominated_value,
    not_scheduled_value,
    preempted_value,
)
from rayched.store.codec import decode_stored, encode
from rayched.store.transactions import BYTES_MAX, TOGETHER_MAX, TogetherPut
from rayched.v1.storage_pb2 import LeaderWrite
from rayched.v1.workloads_pb2 import PodGroup


class RoomBatch:
    """One transaction in the making."""

    def __init__(self, parts: CoreParts, clearing: Clearing, epoch: int, attempt: str, now_unix: float) -> None:
        self._parts, self._clearing, self._epoch, self._attempt, self._now_unix = parts, clearing, epoch, attempt, now_unix
        self._decided_at = parts.cache.revision
        self._also: list[tuple[bytes, int]] = []
        self._puts: list[tuple[bytes, bytes]] = []
        self.graces: dict[str, float] = {}

    def _stamp(self, op: str) -> LeaderWrite:
        return LeaderWrite(op=op, epoch=self._epoch, attempt=self._attempt, decided_at_revision=self._decided_at)

    def _put(self, key: bytes, revision: int, value: bytes) -> None:
        self._also.append((key, revision))
        self._puts.append((key, value))

    def nominate(self, members: list[PodRecord]) -> None:
        stamp = self._stamp(OP_STATUS)
        for member in members:
            pod = member.pod
            assert pod is not None
            why = NotScheduled(REASON_UNSCHEDULABLE, self._clearing.message, self._clearing.room.nodes[member.uid])
            self._put(member.key, member.mod_revision, not_scheduled_value(pod, why, stamp, self._now_unix))

    def end_units(self, units: list[VictimUnit]) -> str:
        """ "": they end with this batch; else why they cannot."""
        stamp, now = self._stamp(OP_PREEMPT), int(self._now_unix)
        parts: list[VictimWrite] = []
        state = self._clearing.state
        priority = state.group.spec.priority if state.group is not None else 0
        scheduler_name = next(iter(state.terms)).scheduler_name
        for unit in units:
            for victim in unit.victims:
                record = self._parts.cache.pod(victim.uid)
                bound = self._parts.snapshot.bound(victim.uid)
                if record is None or record.stage is not Stage.BOUND or bound is None or bound.terminating:
                    continue
                value = preempted_value(record.value, scheduler_name, stamp, self._now_unix)
                budgets = self._parts.scheduler.budgets
                parts.append(VictimWrite(record, value, held_by(self._parts.cache, budgets, record), is_victim=True))
                self.graces[victim.uid] = grace_of(record)
        spent = spend(parts, stamp, now)
        if spent is None:
            return "a hard disruption budget does not allow it any more"
        for one in spent:
            self._put(one.key, one.mod_revision, one.value)
        for part in parts:
            self._put(part.record.key, part.record.mod_revision, part.value)
        self._clear_lower(sorted({victim.pod.node_name for unit in units for victim in unit.victims}), priority)
        for name in dict.fromkeys(unit.whole for unit in units if unit.whole):
            self._mark(name)
        return ""

    def _clear_lower(self, nodes: list[str], priority: int) -> None:
        """Pods of lower priority lose their nominations to these nodes."""
        nominations, stamp = self._parts.scheduler.nominations, self._stamp(OP_STATUS)
        for node in nodes:
            for uid in nominations.below(priority, node):
                nominations.forget(uid)
                record = self._parts.cache.pod(uid)
                if record is not None and record.pod is not None and nominated_in(record) == node:
                    self._put(record.key, record.mod_revision, nominated_value(record.pod, "", stamp))

    def _mark(self, name: str) -> None:
        """The group that ends as a whole says why."""
        found = object_of(self._parts.cache, GroupState(name))
        if found is not None:
            key, revision, group = found
            by = f"pod group {self._clearing.state.name}"
            message = f"preempted as a whole to make room for {by}"
            item = with_condition(group, "True", PREEMPTION_BY_SCHEDULER, message, self._now_unix, DISRUPTED)
            self._put(key, revision, encode(item, self._stamp(OP_GROUP)))

    def write(self, key: bytes, revision: int, group: PodGroup) -> TogetherPut | str:
        item = with_condition(group, "False", REASON_UNSCHEDULABLE, self._clearing.message, self._now_unix)
        value = encode(item, self._stamp(OP_GROUP))
        size = len(value) + sum(len(put) for _, put in self._puts)
        if len(self._also) >= TOGETHER_MAX or size > BYTES_MAX // 2:
            return f"{len(self._puts)} objects of {size} bytes would have to be written at once, which is too much"
        return TogetherPut(key, revision, value, tuple(self._also), tuple(self._puts), self._attempt)


def grace_of(record: PodRecord) -> float:
    """Seconds that a pod is given to end."""
    pod = decode_stored(record.value, record.mod_revision).object.pod
    if pod.metadata.HasField("deletion_timestamp"):
        return float(pod.metadata.deletion_grace_period_seconds)
    return float(pod.spec.termination_grace_period_seconds)
