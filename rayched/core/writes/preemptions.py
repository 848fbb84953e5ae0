"""The writes of preemptions: from a decision to make room for a pod to what became of it.

```
  decided ──▶ waiting ──▶ sent ──▶ made: the pod is told why it waits, and waits for its victims to end
                │ ▲         │ conflict
      victims not │         ▼
      settled yet ┘     lost: tried again when the cache shows what refused it
```

* One write makes room: the pod's nomination and condition, the cleared nominations, the victims' deletion timestamps and their
  condition DisruptionTarget; all of it happens, or nothing. It compares each of these pods as it is in the cache, and the epoch.
  What goes beyond one write follows pod by pod: a victim until it is ending, a nomination until it is cleared.
* A victim that is only assumed on the node is waited for until it is seen there, or is not coming. One that ended meanwhile, or
  is ending, needs no write.
* What a hard budget allows is taken from it in the very write that ends the victim, conditional on its revision. Where budgets do
  not allow all the victims by now, the decision is void before anything is written. A victim that follows spends when
  its turn comes; where others were faster it stays, and the pod makes room anew.
* A victim whose end does not fit into any write (too many hard budgets, or too large ones) ends the attempt as an error of the
  pod that wants its room, and nobody is ended.
* Two preemptions that concern the same pod are not under way at the same time, as the second would be refused.
* The queue waits for the outcome, so the pod is not tried meanwhile, and nobody else waits.

No I/O. Owner: the SchedulerCore. Source: prepareCandidate of kube-scheduler 1.34, where each of these is a call of its own.
Cost: about 20 µs for each pod that is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rayched.api.stages import Stage
from rayched.core.cache.cache import Cache
from rayched.core.cache.records import PodRecord, nominated_in
from rayched.core.writes.budgets import ObjectRewrite, VictimWrite, as_many_as_fit, held_by, spend
from rayched.core.writes.pod_patches import OP_PREEMPT, NotScheduled, nominated_value, not_scheduled_value, preempted_value
from rayched.core.writes.statuses import StatusWrites
from rayched.scheduler.attempt import AttemptFailure, Preemption
from rayched.scheduler.scheduler import Scheduler
from rayched.snapshot.templates import PodTemplate
from rayched.store.transactions import BYTES_MAX, WRITES_MAX, Committed, Conflict, GuardedPut, Outcome, bytes_of
from rayched.v1.storage_pb2 import LeaderWrite


@dataclass(frozen=True, slots=True)
class DecidedPreemption:
    """A preemption that was decided."""

    uid: str
    template: PodTemplate
    """What the decision looked at."""
    began: int
    failure: AttemptFailure
    why: NotScheduled
    preemption: Preemption
    decided_at: int
    """The revision that the decision had seen."""


@dataclass(frozen=True, slots=True)
class PreemptionRefusal:
    """A preemption that no write can make."""

    room: DecidedPreemption
    problem: str


@dataclass(frozen=True, slots=True)
class _FollowingVictim:
    """A victim, or a pod that loses its nomination, that did not fit into the write that made room."""

    uid: str
    is_victim: bool
    node_name: str
    preemptor: str
    scheduler_name: str
    decided_at: int


@dataclass(frozen=True, slots=True)
class _SentPreemption:
    for_whom: DecidedPreemption | _FollowingVictim
    keys: tuple[bytes, ...]
    victims: tuple[str, ...] = ()
    """Those that end with this write."""
    later: tuple[_FollowingVictim, ...] = ()


class _Built(NamedTuple):
    write: GuardedPut
    sent: _SentPreemption


@dataclass(frozen=True, slots=True)
class PreemptionAnswer:
    """What became of a write."""

    room: DecidedPreemption | None
    """None: it was about victims that follow."""
    victims: tuple[str, ...] = ()
    """uids of those that end with it; none unless it was committed."""
    whom: tuple[str, str, str] = ("", "", "")
    """The node that they leave, the uid of the pod that takes their room, and the name of its scheduler."""


class Preemptions:
    """Preemptions that were decided, until their transaction is answered."""

    def __init__(self, cache: Cache, scheduler: Scheduler, statuses: StatusWrites, incarnation: str) -> None:
        self._cache = cache
        self._scheduler = scheduler
        self._statuses = statuses
        self._incarnation = incarnation
        self._number = 0
        self._waiting: dict[str, DecidedPreemption] = {}
        self._following: deque[_FollowingVictim] = deque()
        self._sent: dict[str, _SentPreemption] = {}
        """By attempt id."""
        self._busy: dict[bytes, int | None] = {}
        """Keys of writes under way; once that is known, the revision that the cache has to reach."""
        self._under_way: set[str] = set()
        self._stranded: dict[str, None] = {}

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

    def decided(self, room: DecidedPreemption) -> None:
        self._statuses.drop(room.uid)
        self._waiting[room.uid] = room

    def cancel(self, uid: str) -> None:
        """The pod is not pending any more. What was sent happens all the same."""
        self._waiting.pop(uid, None)

    def stop(self) -> None:
        """The queue is told of every pending pod anew, or the term is over: what was not sent is void."""
        self._waiting.clear()
        self._following.clear()
        self._stranded.clear()

    def forget_sent(self) -> None:
        """The epoch is over: answers still to come are ignored."""
        self._sent.clear()
        self._busy.clear()
        self._under_way.clear()

    def take_stranded(self) -> list[str]:
        """Pods, by uid, that do not get all the room that was made for them."""
        stranded = list(self._stranded)
        self._stranded.clear()
        return stranded

    # --------------------------------------------------------------------------------------------------------- writing

    def batch(self, epoch: int, now_unix: float, void: list[str], refused: list[PreemptionRefusal]) -> list[GuardedPut]:
        """The next writes, as many as one transaction takes. They count as sent.

        Pods whose decision is void go into `void`, and decisions that no write can carry out into `refused`.
        """
        self._settle()
        writes: list[GuardedPut] = []
        size = 0
        for room in list(self._waiting.values()):
            if len(writes) >= WRITES_MAX or size >= BYTES_MAX // 2:
                return writes
            built = self._make_room(room, epoch, now_unix, void, refused)
            if built is None:
                continue
            own = bytes_of(built.write)
            if writes and size + own > BYTES_MAX:
                return writes
            del self._waiting[room.uid]
            self._under_way.add(room.uid)
            self._send(built)
            writes.append(built.write)
            size += own
        for _ in range(len(self._following)):
            if len(writes) >= WRITES_MAX or size >= BYTES_MAX // 2:
                break
            follower = self._following.popleft()
            built = self._follow(follower, epoch, now_unix)
            if built is None:
                continue
            own = bytes_of(built.write)
            if writes and size + own > BYTES_MAX:
                self._following.appendleft(follower)
                break
            self._send(built)
            writes.append(built.write)
            size += own
        return writes

    def _make_room(
        self, room: DecidedPreemption, epoch: int, now_unix: float, void: list[str], refused: list[PreemptionRefusal]
    ) -> _Built | None:
        """None: not yet, or not any more."""
        record, preemption = self._cache.pod(room.uid), room.preemption
        if record is None or record.pod is None or not _is_as_decided(record, room):
            self._end_waiting(room)
            void.append(room.uid)
            return None
        victims = self._still_there(preemption.victims, preemption.node_name)
        cleared = self._still_nominated(preemption.cleared, preemption.node_name)
        if victims is None or any(self._statuses.is_busy(uid) for uid in (room.uid, *(one.uid for one in cleared))):
            return None
        attempt, stamp = self._stamp(epoch, room.decided_at)
        scheduler_name = room.template.scheduler_name
        parts = [self._part(other, False, scheduler_name, stamp, now_unix) for other in cleared]
        parts += [self._part(other, True, scheduler_name, stamp, now_unix) for other in victims]
        if record.key in self._busy or any(key in self._busy for part in parts for key in part.written_keys):
            return None
        if spend(parts, stamp, int(now_unix)) is None:
            self._end_waiting(room)
            void.append(room.uid)
            return None
        problem = next((found for part in parts if (found := part.problem()) is not None), None)
        if problem is not None:
            self._end_waiting(room)
            refused.append(PreemptionRefusal(room, problem))
            return None
        at_once = as_many_as_fit(parts)
        spent = spend(parts[:at_once], stamp, int(now_unix))
        assert spent is not None, "all parts together have been found to be allowed"
        written = (*spent, *(ObjectRewrite(part.record.key, part.record.mod_revision, part.value) for part in parts[:at_once]))
        also = tuple((one.key, one.mod_revision) for one in written)
        puts = tuple((one.key, one.value) for one in written)
        value = not_scheduled_value(record.pod, room.why, stamp, now_unix)
        later = tuple(
            _FollowingVictim(part.record.uid, part.is_victim, preemption.node_name, room.uid, scheduler_name, room.decided_at)
            for part in parts[at_once:]
        )
        ending = tuple(part.record.uid for part in parts[:at_once] if part.is_victim)
        write = GuardedPut(record.key, record.mod_revision, value, also, puts, attempt=attempt)
        return _Built(write, _SentPreemption(room, (record.key, *(key for key, _ in also)), ending, later))

    def _follow(self, follower: _FollowingVictim, epoch: int, now_unix: float) -> _Built | None:
        """None: not yet, in which case it is put down again, or it ended without."""
        find = self._still_there if follower.is_victim else self._still_nominated
        found = find((follower.uid,), follower.node_name)
        attempt, stamp = self._stamp(epoch, follower.decided_at)
        parts = [self._part(one, follower.is_victim, follower.scheduler_name, stamp, now_unix) for one in found or ()]
        is_busy = not follower.is_victim and self._statuses.is_busy(follower.uid)
        if found is None or is_busy or any(key in self._busy for part in parts for key in part.written_keys):
            self._following.append(follower)
            return None
        if not parts:
            return None
        (part,) = parts
        spent = spend(parts, stamp, int(now_unix))
        if spent is None or part.problem() is not None:
            # Its budgets have changed since the decision: it stays, and the pod makes room anew.
            self._stranded[follower.preemptor] = None
            return None
        also, puts = tuple((one.key, one.mod_revision) for one in spent), tuple((one.key, one.value) for one in spent)
        key, ending = part.record.key, (follower.uid,) if follower.is_victim else ()
        write = GuardedPut(key, part.record.mod_revision, part.value, also, puts, attempt=attempt)
        return _Built(write, _SentPreemption(follower, (key, *(one.key for one in spent)), ending))

    def _part(self, record: PodRecord, is_victim: bool, scheduler_name: str, stamp: LeaderWrite, now_unix: float) -> VictimWrite:
        held = held_by(self._cache, self._scheduler.budgets, record) if is_victim else []
        return VictimWrite(record, self._value_of(record, scheduler_name, stamp, now_unix), held, is_victim)

    def _end_waiting(self, room: DecidedPreemption) -> None:
        """It is not written, so no pod has lost a nomination to it."""
        del self._waiting[room.uid]
        self._give_nominations_back(room)

    def _give_nominations_back(self, room: DecidedPreemption) -> None:
        for uid in room.preemption.cleared:
            record = self._cache.pod(uid)
            if record is not None and record.stage is Stage.PENDING:
                self._scheduler.nominations.nominate(uid, record.template, nominated_in(record))

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

    def _send(self, built: _Built) -> None:
        self._sent[built.write.attempt] = built.sent
        self._busy.update(dict.fromkeys(built.sent.keys))

    def _settle(self) -> None:
        """Keys whose last write the cache shows are free again."""
        reached = [key for key, revision in self._busy.items() if revision is not None and revision <= self._cache.revision]
        for key in reached:
            del self._busy[key]

    # -------------------------------------------------------------------------------------------------------- outcomes

    def is_mine(self, write: GuardedPut) -> bool:
        return write.attempt in self._sent

    def outcome(self, write: GuardedPut, outcome: Outcome) -> PreemptionAnswer:
        sent = self._sent.pop(write.attempt)
        for key in sent.keys:
            if isinstance(outcome, Committed):
                self._busy[key] = outcome.revision
            else:
                del self._busy[key]
        if isinstance(sent.for_whom, _FollowingVictim):
            return self._followed(sent.for_whom, sent, write, outcome)
        room = sent.for_whom
        self._under_way.discard(room.uid)
        if isinstance(outcome, Committed):
            self._following.extend(sent.later)
            return PreemptionAnswer(room, sent.victims, (room.preemption.node_name, room.uid, room.template.scheduler_name))
        self._give_nominations_back(room)
        return PreemptionAnswer(room)

    def _followed(
        self, follower: _FollowingVictim, sent: _SentPreemption, write: GuardedPut, outcome: Outcome
    ) -> PreemptionAnswer:
        match outcome:
            case Committed():
                return PreemptionAnswer(None, sent.victims, (follower.node_name, follower.preemptor, follower.scheduler_name))
            case Conflict(current) if current is not None:
                # A write before the cache shows what refused this one would be refused again.
                compared = ((write.key, write.mod_revision), *write.also)
                for (key, revision), found in zip(compared, (current, *outcome.also), strict=True):
                    if found is not None and found.mod_revision != revision:
                        self._busy[key] = found.mod_revision
                self._following.append(follower)
            case _:
                # It is gone, or the term is over; or the store does not take it, and the pod will make room anew.
                pass
        return PreemptionAnswer(None)


def _is_as_decided(record: PodRecord, room: DecidedPreemption) -> bool:
    if record.stage is not Stage.PENDING:
        return False
    return record.template is room.template or record.template.content == room.template.content
