"""The writes of pod groups: a placement as one transaction, and the condition that says why a group has none.

```
If   epoch, the PodGroup, each member, each distinct node, and what tells of pods that took room there, are as they were,
     and there is no plan for the group
Then put every member with its node, and the PodGroup with its condition
Else read them
```

* The PodGroup carries the attempt, so that an answer that was lost is told from a refusal; where the PodGroup has gone meanwhile,
  its members tell.
* Small placements share a request, each as a transaction of its own within it: one may be refused, and the others written.
* A refusal is a lost race: all of it is taken back, and the group is decided again when the cache shows what refused it.
* A group whose member, or whose own object, has a status write under way waits for that.

No I/O. Owner: the SchedulerCore. Cost: about 10 µs a member.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rayched.api.conditions import set_condition
from rayched.api.kinds import POD_GROUP
from rayched.core.cache.cache import Cache
from rayched.core.groups.group_cycle import GroupFailure, GroupPlacement
from rayched.core.groups.membership import GroupState
from rayched.core.writes.bindings import Bindings, is_as_decided
from rayched.core.writes.event_reasons import REASON_SCHEDULED
from rayched.core.writes.pod_patches import REASON_ERROR, REASON_UNSCHEDULABLE, BindingValues
from rayched.core.writes.recognition import is_on
from rayched.core.writes.statuses import STATUS_PERIOD_SECONDS, StatusWrites
from rayched.scheduler.attempt import Attempt, AttemptFailure
from rayched.scheduler.scheduler import Scheduler
from rayched.store.codec import encode
from rayched.store.transactions import BYTES_MAX, WRITES_MAX, Committed, Conflict, GuardedPut, Outcome, TogetherPut, further_max
from rayched.v1.meta_pb2 import Condition
from rayched.v1.storage_pb2 import LeaderWrite
from rayched.v1.workloads_pb2 import Object, PodGroup

_SHARED_BYTES_MAX: Final = BYTES_MAX // 2
"""A transaction with so many bytes takes no further placement."""
OP_GROUP: Final = "group"
"""What a leader's write of a PodGroup is for."""
INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
BEST_EFFORT: Final = "Members differ or have rules among each other: two orders were tried, in another one they might fit."
DISRUPTED: Final = "DisruptionTarget"
"""It ends as a whole, to make room."""


@dataclass(frozen=True, slots=True, eq=False)
class DecidedGroup:
    """A placement on its way to the store, and what it was decided on."""

    state: GroupState
    uid: str
    """Of the PodGroup."""
    began: int
    attempts: tuple[Attempt, ...]
    guards: tuple[tuple[bytes, int], ...]
    """Of the distinct nodes."""
    decided_at: int


@dataclass(frozen=True, slots=True)
class UnsentGroup:
    """A placement that is not sent and was taken back; without a failure it is worth another attempt at once."""

    decided: DecidedGroup
    failure: AttemptFailure | None = None


def condition_of(group: PodGroup) -> Condition | None:
    """Whether it was scheduled, as its status says."""
    return next((one for one in group.status.conditions if one.type == INITIALLY_SCHEDULED), None)


def with_condition(
    group: PodGroup, status: str, reason: str, message: str, now_unix: float, kind: str = INITIALLY_SCHEDULED
) -> Object:
    """The group with a condition of this type as it is now; that it was scheduled once stands for good."""
    item = Object(pod_group=group)
    was = condition_of(group)
    if kind == INITIALLY_SCHEDULED and was is not None and was.status == "True" and status != "True":
        return item
    condition = set_condition(item.pod_group.status.conditions, kind, status, reason, message, now_unix)
    condition.observed_generation = group.metadata.generation
    return item


class GroupConditions:
    """Says why groups wait, at most once in STATUS_PERIOD_SECONDS each; that a group was scheduled once stands for good."""

    def __init__(self, cache: Cache, incarnation: str) -> None:
        self._cache, self._incarnation = cache, incarnation
        self._number = 0
        self._wanted: dict[str, tuple[GroupState, float, str, str]] = {}
        self._written: dict[str, float] = {}
        self._sent: dict[str, str] = {}
        """Uids by attempt."""
        self._busy: dict[str, tuple[bytes, int | None]] = {}
        """Groups with a write under way: its key, and the revision that the cache has to reach, once that is known."""

    def want(self, state: GroupState, reason: str, message: str, now: float) -> None:
        """To be written when the group's turn comes; the newest text counts."""
        if state.group is None:
            return
        uid = state.group.metadata.uid
        due = max(now, self._written.get(uid, now - STATUS_PERIOD_SECONDS) + STATUS_PERIOD_SECONDS)
        self._wanted[uid] = state, due, reason, message

    def drop(self, uid: str) -> None:
        self._wanted.pop(uid, None)

    def clear(self) -> None:
        """The term is over. What is under way stays busy until its answer comes."""
        self._wanted.clear()
        self._written.clear()

    def forget_sent(self) -> None:
        """The epoch is over: answers still to come are ignored."""
        self._busy.clear()
        self._sent.clear()

    def next_due(self) -> float | None:
        """Those that wait for an earlier write are woken by its answer."""
        return min((due for uid, (_, due, _, _) in self._wanted.items() if not self.is_busy(uid)), default=None)

    def is_busy(self, uid: str) -> bool:
        """A write is under way, or the cache has not shown it yet."""
        busy = self._busy.get(uid)
        if busy is None:
            return False
        key, revision = busy
        if revision is not None and not 0 < self._cache.revision_of(key) < revision:
            del self._busy[uid]
            return False
        return True

    def batch(self, epoch: int, now: float, now_unix: float, most: int) -> list[GuardedPut]:
        """The writes that are due. They count as sent."""
        writes: list[GuardedPut] = []
        if self._wanted:
            self._written = {uid: at for uid, at in self._written.items() if at + STATUS_PERIOD_SECONDS > now}
        for uid, (state, due, reason, message) in list(self._wanted.items()):
            if due > now or self.is_busy(uid) or len(writes) == most:
                continue
            del self._wanted[uid]
            write = self._write(state, uid, reason, message, epoch, now_unix)
            if write is not None:
                self._written[uid] = now
                self._sent[write.attempt] = uid
                self._busy[uid] = write.key, None
                writes.append(write)
        return writes

    def wrote(self, uid: str, key: bytes, revision: int | None) -> None:
        """Another write of the group's object is under way (None), or was committed at this revision; 0: it was not."""
        self._busy[uid] = key, revision

    def is_mine(self, write: GuardedPut) -> bool:
        return write.attempt in self._sent

    def outcome(self, write: GuardedPut, outcome: Outcome) -> None:
        uid = self._sent.pop(write.attempt)
        self._busy[uid] = write.key, outcome.revision if isinstance(outcome, Committed) else 0

    def _write(self, state: GroupState, uid: str, reason: str, message: str, epoch: int, now_unix: float) -> GuardedPut | None:
        found = object_of(self._cache, state)
        if found is None or found[2].metadata.uid != uid:
            return None
        key, revision, group = found
        said = condition_of(group)
        if said is not None and (said.status == "True" or (said.reason, said.message) == (reason, message)):
            return None
        self._number += 1
        attempt = f"{self._incarnation}-group-status-{self._number}"
        write = LeaderWrite(op=OP_GROUP, epoch=epoch, attempt=attempt, decided_at_revision=self._cache.revision)
        return GuardedPut(
            key, revision, encode(with_condition(group, "False", reason, message, now_unix), write), attempt=attempt
        )


def object_of(cache: Cache, state: GroupState) -> tuple[bytes, int, PodGroup] | None:
    """The group's object as the cache has it, with key and revision."""
    namespace, _, name = state.name.partition("/")
    found = cache.object_of(POD_GROUP, namespace, name)
    if found is None:
        return None
    key, revision, message = found
    assert isinstance(message, PodGroup)
    return key, revision, message


class GroupCommits:
    """Placements of groups until the store has said what became of them."""

    def __init__(
        self, cache: Cache, scheduler: Scheduler, statuses: StatusWrites, bindings: Bindings, conditions: GroupConditions
    ) -> None:
        self._cache, self._scheduler, self._statuses, self._bindings = cache, scheduler, statuses, bindings
        self._conditions = conditions
        self._decided: list[DecidedGroup] = []
        self._sent: dict[str, DecidedGroup] = {}

    def __len__(self) -> int:
        """Placements that are not sent."""
        return len(self._decided)

    def has(self, uid: str) -> bool:
        """A placement of this group is on its way."""
        return any(one.uid == uid for one in (*self._decided, *self._sent.values()))

    def decided(self, state: GroupState, placement: GroupPlacement, began: int) -> DecidedGroup:
        """Remember what the placement was decided on. It is sent in one transaction where it fits."""
        cache = self._cache
        for attempt in placement.attempts:
            self._statuses.drop(attempt.uid)
        nodes = dict.fromkeys(attempt.node_name for attempt in placement.attempts)
        guards = tuple(cache.node_guard(node) for node in nodes)
        self._conditions.drop(state.uid)
        decided = DecidedGroup(state, state.uid, began, placement.attempts, guards, cache.revision)
        if placement.is_one:
            self._decided.append(decided)
        return decided

    def stop(self) -> None:
        """The term is over or interrupted: what was not sent is rolled back."""
        for decided in self._decided:
            self._take_back(decided)
        self._decided.clear()

    def forget_sent(self) -> None:
        """The epoch is over: answers still to come are ignored."""
        self._sent.clear()

    def batch(self, epoch: int, now_unix: float, unsent: list[UnsentGroup]) -> list[TogetherPut]:
        """The next writes of placements, as many as share a transaction, counted as sent. Those that end here go to `unsent`."""
        writes: list[TogetherPut] = []
        staying: list[DecidedGroup] = []
        size = longest = 0
        for place, decided in enumerate(self._decided):
            if self._conditions.is_busy(decided.uid) or any(self._statuses.is_busy(one.uid) for one in decided.attempts):
                staying.append(decided)
                continue
            # Members, their nodes, what tells of pods that took room there, and the plan.
            longest = max(longest, len(decided.attempts) + 2 * len(decided.guards) + 1)
            n_writes = len(writes) + 1
            if writes and (n_writes > WRITES_MAX or longest > further_max(n_writes) or size > _SHARED_BYTES_MAX):
                staying += self._decided[place:]
                break
            built = self._build(decided, epoch, now_unix)
            if isinstance(built, TogetherPut):
                self._sent[built.attempt] = decided
                writes.append(built)
                size += len(built.value) + sum(len(value) for _, value in built.with_puts)
            else:
                self._take_back(decided)
                unsent.append(built)
        self._decided = staying
        return writes

    def is_mine(self, write: GuardedPut) -> bool:
        return write.attempt in self._sent

    def too_large(self, write: GuardedPut) -> DecidedGroup:
        """The store takes no such transaction: the placement is on its way no more, and keeps its room."""
        return self._sent.pop(write.attempt)

    def outcome(self, write: GuardedPut, outcome: Outcome) -> tuple[DecidedGroup, list[Attempt], bool]:
        """What became of a placement: its attempts that had not ended, and whether they are bound; else they are undone."""
        decided = self._sent.pop(write.attempt)
        is_bound = isinstance(outcome, Committed) or (isinstance(outcome, Conflict) and _was_written(outcome, decided))
        open_ones = [one for one in decided.attempts if self._scheduler.attempt(one.uid) is one]
        for attempt in open_ones:
            if is_bound:
                self._scheduler.bound(attempt)
            else:
                self._scheduler.roll_back(attempt)
        return decided, open_ones, is_bound

    def _take_back(self, decided: DecidedGroup) -> None:
        for attempt in reversed(decided.attempts):
            self._scheduler.roll_back(attempt)

    def _build(self, decided: DecidedGroup, epoch: int, now_unix: float) -> TogetherPut | UnsentGroup:
        cache, state = self._cache, decided.state
        found = still_wanted(cache, self._scheduler, state, decided.uid)
        if found is None:
            return UnsentGroup(decided)
        key, revision, group = found
        for attempt in decided.attempts:
            record = cache.pod(attempt.uid)
            if record is None or record.kept is None or not is_as_decided(record, attempt):
                return UnsentGroup(decided)
            if cache.is_taken_since(attempt.node_name, decided.decided_at):
                return UnsentGroup(decided)
        values = BindingValues(epoch, now_unix)
        members: list[tuple[bytes, int]] = []
        puts: list[tuple[bytes, bytes]] = []
        for attempt in decided.attempts:
            record = cache.pod(attempt.uid)
            assert record is not None
            failure = self._scheduler.begin_binding(attempt, self._bindings.next_id())
            if failure is not None:
                return UnsentGroup(decided, failure)
            value = values.value(record, attempt.node_name, attempt.id, decided.decided_at)
            cache.expect(record.key, value, attempt.node_name, attempt.id)
            members.append((record.key, record.mod_revision))
            puts.append((record.key, value))
        taken = dict.fromkeys(cache.taken_guard(attempt.node_name) for attempt in decided.attempts)
        name = self._bindings.next_id()
        message = bound_words(state, state.satisfied + len(members))
        write = LeaderWrite(op=OP_GROUP, epoch=epoch, attempt=name, decided_at_revision=decided.decided_at)
        value = encode(with_condition(group, "True", REASON_SCHEDULED, message, now_unix), write)
        no_plan = cache.plan_key(state.name), 0
        return TogetherPut(key, revision, value, (*members, *decided.guards, *taken, no_plan), tuple(puts), name)


def still_wanted(cache: Cache, scheduler: Scheduler, state: GroupState, uid: str) -> tuple[bytes, int, PodGroup] | None:
    """The group's key, revision and object, where a placement that was decided for it may be written; None: it may not."""
    found = object_of(cache, state)
    if found is None or found[2].metadata.uid != uid or state.hold() is not None or _falls_short(state, scheduler):
        return None
    return found


def _falls_short(state: GroupState, scheduler: Scheduler) -> bool:
    """Whether members that count, and those that hold room, are fewer than the group needs by now: its minimum may have been
    raised since a placement was decided."""
    missing = state.min_count - state.satisfied
    if missing <= 0 or not state.RULE_A_GROUP_IS_WHOLE:
        return False
    return sum(scheduler.occupancy.on(uid) is not None for uid in state.waiting) < missing


def _was_written(conflict: Conflict, decided: DecidedGroup) -> bool:
    """The PodGroup has gone, or was written to since; but a member is where this transaction has put it."""
    # Members are compared first, in the order of the attempts.
    return any(is_on(entry, attempt) for entry, attempt in zip(conflict.also, decided.attempts, strict=False))


def bound_words(state: GroupState, n_bound: int) -> str:
    """Message of a group that was bound."""
    return f"{n_bound} of {state.n_present} members are bound; {state.min_count} are needed"


def conditions_words(state: GroupState, failure: GroupFailure) -> tuple[str, str]:
    """Reason and message of a group whose attempt failed."""
    failed, name = failure.failure, "" if failure.first is None else failure.first.name
    where = f" {failure.where}" if failure.where else ""
    reason = REASON_UNSCHEDULABLE if failed.rejected else REASON_ERROR
    counts = f"{state.satisfied} bound, {failure.n_placed} placed, {state.min_count} needed, {state.n_present} members"
    order = f" {BEST_EFFORT}" if failure.best_effort and failed.rejected else ""
    return reason, f"{counts}{where}: {name + ': ' if name else ''}{failed.message}{order}"
