"""The writes of preemptions: from a decision to make room for a pod to what became of it.

```
  decided ──▶ waiting ──▶ sent ──▶ made: the pod is told why it waits, and waits for its victims to end
                │ ▲         │ conflict
      victims not │         ▼
      settled yet ┘     lost: tried again when the cache shows what refused it
```

* One write makes room: the pod's nomination and condition, the cleared nominations, the victims' deletion timestamps and their
  condition DisruptionTarget; all of it happens, or nothing. It compares each of these pods as it is in the cache, and the epoch.
  Victims beyond what one write takes follow one by one, each until it is ending.
* A victim that is only assumed on the node is waited for until it is seen there, or is not coming. One that ended meanwhile, or
  is ending, needs no write.
* What a hard budget allows is taken from it in the same write, conditional on its revision; where it allows less by now, the
  decision is void.
* Two preemptions that concern the same pod are not under way at the same time, as the second would be refused.
* The queue waits for the outcome, so the pod is not tried meanwhile, and nobody else waits.

No I/O. Owner: the SchedulerCore. Source: prepareCandidate of kube-scheduler 1.34, where each of these is a call of its own.
Cost: about 20 µs for each pod that is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rayched.actors.budget_spending import spend
from rayched.actors.cache import Cache
from rayched.actors.pod_changes import OP_PREEMPT, NotScheduled, nominated_value, not_scheduled_value, preempted_value
from rayched.actors.records import PodRecord, nominated_in
from rayched.actors.status_writes import StatusWrites
from rayched.api.stages import Stage
from rayched.scheduler.attempt import Failure, Preemption
from rayched.scheduler.scheduler import Scheduler
from rayched.snapshot.templates import PodTemplate
from rayched.store.transactions import ALSO_MAX, BYTES_MAX, WRITES_MAX, Committed, Conflict, GuardedPut, Outcome
from rayched.v1.storage_pb2 import LeaderWrite

VALUES_BYTES_MAX: Final = BYTES_MAX // 4
"""Of the pods that one preemption writes at one stroke."""


@dataclass(frozen=True, slots=True)
class Room:
    """A preemption that was decided."""

    uid: str
    template: PodTemplate
    """What the decision looked at."""
    began: int
    failure: Failure
    why: NotScheduled
    preemption: Preemption
    decided_at: int
    """The revision that the decision had seen."""


@dataclass(frozen=True, slots=True)
class _Follower:
    """A victim that did not fit into the write that made room."""

    uid: str
    node_name: str
    preemptor: str
    scheduler_name: str
    decided_at: int


@dataclass(frozen=True, slots=True)
class _Sent:
    for_whom: Room | _Follower
    keys: tuple[bytes, ...]
    victims: tuple[str, ...]
    """Those that end with this write."""
    later: tuple[str, ...] = ()
    """Those that follow."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of a write."""

    room: Room | None
    """None: it was about victims that follow."""
    victims: tuple[str, ...] = ()
    """uids of those that end with it; none unless it was committed."""
    whom: tuple[str, str, str] = ("", "", "")
    """The node that they leave, the uid of the pod that takes their room, and the name of its scheduler."""


class Preemptions:
    """See the module."""

    def __init__(self, cache: Cache, scheduler: Scheduler, statuses: StatusWrites, incarnation: str) -> None:
        self._cache = cache
        self._scheduler = scheduler
        self._statuses = statuses
        self._incarnation = incarnation
        self._number = 0
        self._waiting: dict[str, Room] = {}
        self._following: deque[_Follower] = deque()
        self._sent: dict[str, _Sent] = {}
        """By attempt id."""
        self._busy: dict[bytes, int | None] = {}
        """Keys of writes under way; once that is known, the revision that the cache has to reach."""
        self._under_way: set[str] = set()

    def __len__(self) -> int:
        """What waits to be written."""
        return len(self._waiting) + len(self._following)

    @property
    def is_quiet(self) -> bool:
        """Nothing waits to be written, and no outcome is awaited."""
        return not self._waiting and not self._following and not self._under_way

    def is_under_way(self, uid: str) -> bool:
        """Whether the outcome of a write that makes room for this pod is awaited."""
        return uid in self._under_way

    # ------------------------------------------------------------------------------------------------------- coming in

    def decided(self, room: Room) -> None:
        self._statuses.drop(room.uid)
        self._waiting[room.uid] = room

    def cancel(self, uid: str) -> None:
        """The pod is not pending any more. What was sent happens all the same."""
        self._waiting.pop(uid, None)

    def stop(self) -> None:
        """The queue is told of every pending pod anew, or the term is over: what was not sent is void."""
        self._waiting.clear()
        self._following.clear()

    def forget_sent(self) -> None:
        """The epoch is over: answers still to come concern nobody."""
        self._sent.clear()
        self._busy.clear()
        self._under_way.clear()

    # --------------------------------------------------------------------------------------------------------- writing

    def batch(self, epoch: int, now_unix: float, void: list[str]) -> list[GuardedPut]:
        """The next writes, as many as one transaction takes. They count as sent; pods whose decision is void go into `void`."""
        self._settle()
        writes: list[GuardedPut] = []
        size = 0
        for room in list(self._waiting.values()):
            if len(writes) >= WRITES_MAX or size >= BYTES_MAX // 2:
                return writes
            record = self._cache.pod(room.uid)
            if record is None or record.pod is None or not _is_as_decided(record, room):
                del self._waiting[room.uid]
                void.append(room.uid)
                continue
            write = self._make_room(room, record, epoch, now_unix, void)
            if write is not None:
                del self._waiting[room.uid]
                writes.append(write)
                size += len(write.value) + sum(len(value) for _, value in write.with_puts)
        for _ in range(len(self._following)):
            if len(writes) >= WRITES_MAX or size >= BYTES_MAX // 2:
                break
            follower = self._following.popleft()
            write = self._follow(follower, epoch, now_unix)
            if write is not None:
                writes.append(write)
                size += len(write.value)
        return writes

    def _make_room(self, room: Room, record: PodRecord, epoch: int, now_unix: float, void: list[str]) -> GuardedPut | None:
        """None: not yet, or not any more."""
        assert record.pod is not None
        preemption = room.preemption
        victims = self._still_there(preemption.victims, preemption.node_name)
        cleared = self._still_nominated(preemption.cleared, preemption.node_name)
        if victims is None or any(self._statuses.is_busy(uid) for uid in (room.uid, *(one.uid for one in cleared))):
            return None
        if any(one.key in self._busy for one in (record, *victims, *cleared)):
            return None
        attempt, stamp = self._stamp(epoch, room.decided_at)
        spent = spend(self._cache, self._scheduler.budgets, victims, stamp, int(now_unix))
        if spent is None:
            del self._waiting[room.uid]
            void.append(room.uid)
            return None
        if any(one.key in self._busy for one in spent):
            return None
        also: list[tuple[bytes, int]] = [(one.key, one.mod_revision) for one in spent]
        puts: list[tuple[bytes, bytes]] = [(one.key, one.value) for one in spent]
        size, at_once = 0, 0
        for other in (*cleared, *victims):
            value = self._value_of(other, room.template.scheduler_name, stamp, now_unix)
            size += len(value)
            if len(also) >= ALSO_MAX or size > VALUES_BYTES_MAX:
                break
            also.append((other.key, other.mod_revision))
            puts.append((other.key, value))
            at_once += other in victims
        written, later = victims[:at_once], victims[at_once:]
        value = not_scheduled_value(record.pod, room.why, stamp, now_unix)
        keys = (record.key, *(key for key, _ in also))
        self._under_way.add(room.uid)
        self._send(attempt, _Sent(room, keys, tuple(one.uid for one in written), tuple(one.uid for one in later)))
        return GuardedPut(record.key, record.mod_revision, value, tuple(also), tuple(puts), attempt=attempt)

    def _follow(self, follower: _Follower, epoch: int, now_unix: float) -> GuardedPut | None:
        """None: not yet, or it ended without."""
        found = self._still_there((follower.uid,), follower.node_name)
        if found is None or any(one.key in self._busy for one in found):
            self._following.append(follower)
            return None
        if not found:
            return None
        (victim,) = found
        attempt, stamp = self._stamp(epoch, follower.decided_at)
        value = self._value_of(victim, follower.scheduler_name, stamp, now_unix)
        self._send(attempt, _Sent(follower, (victim.key,), (follower.uid,)))
        return GuardedPut(victim.key, victim.mod_revision, value, attempt=attempt)

    def _still_there(self, victims: Iterable[str], node_name: str) -> list[PodRecord] | None:
        """Those that have to be written; None: one of them is on its way to the node and not seen there yet."""
        found: list[PodRecord] = []
        for uid in victims:
            record = self._cache.pod(uid)
            bound = self._scheduler.occupancy.on(uid)
            if record is None or bound is None or bound.node_name != node_name or bound.terminating:
                continue
            if record.stage is Stage.PENDING:
                return None
            found.append(record)
        return found

    def _still_nominated(self, cleared: Iterable[str], node_name: str) -> list[PodRecord]:
        """Those whose status says so. One that an attempt has a node for loses its nomination with its binding."""
        records = (self._cache.pod(uid) for uid in cleared)
        return [
            record
            for record in records
            if record is not None and nominated_in(record) == node_name and self._scheduler.occupancy.on(record.uid) is None
        ]

    def _value_of(self, record: PodRecord, scheduler_name: str, stamp: LeaderWrite, now_unix: float) -> bytes:
        """Of a pod that loses its nomination, or of a victim."""
        if record.pod is not None:
            return nominated_value(record.pod, "", stamp)
        return preempted_value(record.value, scheduler_name, stamp, now_unix)

    def _stamp(self, epoch: int, decided_at: int) -> tuple[str, LeaderWrite]:
        self._number += 1
        attempt = f"{self._incarnation}-preempt-{self._number}"
        return attempt, LeaderWrite(op=OP_PREEMPT, epoch=epoch, attempt=attempt, decided_at_revision=decided_at)

    def _send(self, attempt: str, sent: _Sent) -> None:
        self._sent[attempt] = sent
        self._busy.update(dict.fromkeys(sent.keys))

    def _settle(self) -> None:
        """Keys whose last write the cache shows are free again."""
        reached = [key for key, revision in self._busy.items() if revision is not None and revision <= self._cache.revision]
        for key in reached:
            del self._busy[key]

    # -------------------------------------------------------------------------------------------------------- outcomes

    def is_mine(self, write: GuardedPut) -> bool:
        return write.attempt in self._sent

    def outcome(self, write: GuardedPut, outcome: Outcome) -> Answered:
        sent = self._sent.pop(write.attempt)
        for key in sent.keys:
            if isinstance(outcome, Committed):
                self._busy[key] = outcome.revision
            else:
                del self._busy[key]
        if isinstance(sent.for_whom, _Follower):
            return self._followed(sent.for_whom, sent, outcome)
        room = sent.for_whom
        self._under_way.discard(room.uid)
        if isinstance(outcome, Committed):
            whom = room.preemption.node_name, room.uid, room.template.scheduler_name
            self._following.extend(_Follower(uid, *whom, room.decided_at) for uid in sent.later)
            return Answered(room, sent.victims, whom)
        for uid in room.preemption.cleared:
            record = self._cache.pod(uid)
            if record is not None and record.stage is Stage.PENDING:
                self._scheduler.nominations.nominate(uid, record.template, nominated_in(record))
        return Answered(room)

    def _followed(self, follower: _Follower, sent: _Sent, outcome: Outcome) -> Answered:
        match outcome:
            case Committed():
                return Answered(None, sent.victims, (follower.node_name, follower.preemptor, follower.scheduler_name))
            case Conflict(current) if current is not None:
                # A write before the cache shows what refused this one would be refused again.
                self._busy[current.key] = current.mod_revision
                self._following.append(follower)
            case _:
                # It is gone, or the term is over; or the store does not take it, and the pod will make room anew.
                pass
        return Answered(None)


def _is_as_decided(record: PodRecord, room: Room) -> bool:
    if record.stage is not Stage.PENDING:
        return False
    return record.template is room.template or record.template.content == room.template.content
