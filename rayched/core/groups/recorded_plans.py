"""Groups that no single transaction takes: bound by a plan in the store, which any later leader finishes and none decides anew.

```
 decided ──▶ plan written ──▶ members bound, a batch at a time ──▶ the group's condition written, the plan deleted
    │ lost race    ▲  │ a node changed, a plugin turned a member down
    ▼              └──┘ other places, in a plan that replaces the one in force
 decided anew
```

* The plan's first write is the decision: it compares the epoch, the group, that there is no plan, and each node; or, where these
  are too many, that no node was written since. After it nothing is undone.
* Each binding compares pod, node and the plan in force, so that none lands on a place that was given up.
* A leader takes over a plan that lies in the store before it decides anything: members without nodes hold room on theirs.
* A member that has gone leaves a hole. One whose place is no good any more gets another one. It drops out of the plan when there
  is none, or when plugins turned its binding down REFUSALS_MAX times. What that makes of the group is judged at the plan's end.
* A group that was deleted, or made again, ends its plan: members keep what they have.

No I/O. Owner: the SchedulerCore. Cost: about 15 µs a member beyond its binding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from rayched.core.cache.records import RecordedPlan
from rayched.core.groups.group_writes import (
    OP_GROUP,
    DecidedGroup,
    GroupConditions,
    UnsentGroup,
    bound_words,
    condition_of,
    object_of,
    still_wanted,
    with_condition,
)
from rayched.core.groups.membership import GroupState
from rayched.core.groups.planned_group import PlannedGroup, plan_of
from rayched.core.groups.planned_places import PlannedPlaces
from rayched.core.parts import CoreParts
from rayched.core.writes.bindings import AttemptEnd, EndedAttempt, is_as_decided, lost_race
from rayched.core.writes.event_reasons import REASON_SCHEDULED
from rayched.core.writes.pod_patches import OP_BIND, BindingValues
from rayched.core.writes.recognition import is_on
from rayched.core.writes.window import Send
from rayched.framework.status import error
from rayched.scheduler.attempt import AttemptFailure, AttemptPhase
from rayched.store.codec import encode, encode_plan
from rayched.store.transactions import (
    BYTES_MAX,
    WRITES_MAX,
    Committed,
    Conflict,
    Fenced,
    Guard,
    GuardedDelete,
    GuardedPut,
    Outcome,
    TogetherPut,
    TransactionRefused,
    Write,
)
from rayched.v1.storage_pb2 import LeaderWrite

OP_PLAN: Final = "group-plan"
"""What a leader's write of a plan is for."""
GUARDS_MAX: Final = 100
"""Keys of nodes that a plan compares one by one; with more it compares all nodes at once."""


class RecordedPlans:
    """All plans of this leader, from the decision until they are gone."""

    RULE_THE_PLAN_COMES_FIRST: ClassVar[bool] = True
    RULE_PLANS_COMPARE_THE_GROUP: ClassVar[bool] = True
    RULE_PLANS_ARE_TAKEN_OVER: ClassVar[bool] = True
    RULE_PLANNED_BINDINGS_ARE_GUARDED: ClassVar[bool] = True
    RULE_THE_CONDITION_COMES_LAST: ClassVar[bool] = True
    """Broken by tests alone."""

    def __init__(self, parts: CoreParts, conditions: GroupConditions) -> None:
        self._cache, self._scheduler, self._statuses = parts.cache, parts.scheduler, parts.statuses
        self._bindings, self._window = parts.bindings, parts.window
        self._conditions, self._places = conditions, PlannedPlaces(parts)
        self._planned: dict[str, PlannedGroup] = {}
        """By namespace/name of the group."""
        self._by_attempt: dict[str, tuple[PlannedGroup, str]] = {}
        """Bindings under way: whose, and of which member."""
        self._writing: dict[bytes, PlannedGroup] = {}
        """Writes of plans under way, by their keys."""
        self.ended: list[EndedAttempt] = []
        """Members whose attempts have ended. Whoever tells of them takes them out, as of the next two."""
        self.unsent: list[UnsentGroup] = []
        """Placements that came to nothing."""
        self.over: list[PlannedGroup] = []
        """Groups whose plan has ended."""

    def __len__(self) -> int:
        """Groups that are bound by a plan, or are to be."""
        return len(self._planned)

    @property
    def n_unsent(self) -> int:
        """Placements whose plan is not sent."""
        return sum(not planned.is_committed and not planned.writing for planned in self._planned.values())

    def has(self, name: str) -> bool:
        return name in self._planned

    def oldest_seconds(self, now_unix: float) -> float:
        """Since the plan that was made first; 0: there is none."""
        return max((now_unix - planned.plan.made_at_ms / 1000 for planned in self._planned.values()), default=0.0)

    # ------------------------------------------------------------------------------------------------------- coming in

    def decided(self, decided: DecidedGroup, now_unix: float) -> None:
        """A placement that takes a plan; its attempts hold room."""
        state = decided.state
        found = object_of(self._cache, state)
        revision = 0 if found is None else found[1]
        plan = plan_of(decided.uid, revision, state.min_count, decided.attempts, int(now_unix * 1000))
        planned = PlannedGroup(state, decided.uid, self._cache.plan_key(state.name), plan, decided=decided)
        for attempt in decided.attempts:
            planned.take(attempt, decided.decided_at)
        self._planned[state.name] = planned

    def adopt(self, state: GroupState, recorded: RecordedPlan, began: int, now: float) -> None:
        """A plan that lies in the store: its members without nodes take the room that they do not hold yet."""
        plan, planned = recorded.plan, self._planned.get(state.name)
        if plan is None or not self.RULE_PLANS_ARE_TAKEN_OVER:
            return
        if planned is None:
            key = self._cache.plan_key(state.name)
            planned = self._planned[state.name] = PlannedGroup(state, plan.group_uid, key, plan, revision=recorded.revision)
        if planned.revision == recorded.revision:
            self._places.take_over(planned, recorded, began, now)

    def stop(self) -> None:
        """The term is over or interrupted: what was not sent is undone. What lies in the store is taken up again from there."""
        for name, planned in list(self._planned.items()):
            if planned.is_committed:
                self._give_up(planned)
            elif not planned.writing:
                self._take_back(planned)
                del self._planned[name]

    def forget(self) -> None:
        """The epoch is over: answers still to come are ignored, and what lies in the store is read from there."""
        self._planned.clear()
        self._by_attempt.clear()
        self._writing.clear()

    # --------------------------------------------------------------------------------------------------------- writing

    def send(self, guard: Guard, now: float, now_unix: float) -> Iterator[Send]:
        """What may go now."""
        for name, planned in list(self._planned.items()):
            if planned.writing or (planned.wait is not None and not planned.wait.is_shown(self._cache)):
                continue
            planned.wait = None
            if planned.is_lost:
                assert planned.decided is not None
                del self._planned[name]
                self.unsent.append(UnsentGroup(planned.decided))
            elif not planned.is_committed:
                yield from self._send_first(planned, guard, now_unix)
            elif self._is_gone(planned):
                self._give_up(planned)
                if not planned.sent:
                    self._over(planned)
            else:
                yield from self._go_on(planned, guard, now, now_unix)

    def _send_first(self, planned: PlannedGroup, guard: Guard, now_unix: float) -> Iterator[Send]:
        if not self._window.room or self._conditions.is_busy(planned.uid):
            return
        decided = planned.decided
        assert decided is not None
        found = still_wanted(self._cache, self._scheduler, planned.state, planned.uid)
        if found is None:
            self._void(planned)
            return
        nodes = [attempt.node_name for attempt in decided.attempts]
        for attempt in decided.attempts:
            record = self._cache.pod(attempt.uid)
            is_taken = self._cache.is_taken_since(attempt.node_name, decided.decided_at)
            if record is None or record.kept is None or not is_as_decided(record, attempt) or is_taken:
                self._void(planned)
                return
        guards = dict(self._cache.guards_of(nodes, decided.decided_at, GUARDS_MAX))
        # As each node was when it was chosen.
        guards.update((key, revision) for key, revision in decided.guards if key in guards)
        group = ((found[0], found[1]),) if self.RULE_PLANS_COMPARE_THE_GROUP else ()
        planned.plan.group_revision, planned.plan.min_count = found[1], planned.state.min_count
        if self.RULE_THE_PLAN_COMES_FIRST:
            yield self._send_plan(planned, guard, decided.decided_at, (*group, *guards.items()))
            return
        for writes in self._batches(planned, guard.epoch, now_unix, 0.0):
            yield self._window.send(writes, guard, op=OP_BIND)
        yield self._send_plan(planned, guard, decided.decided_at, ())

    def _send_plan(self, planned: PlannedGroup, guard: Guard, decided_at: int, also: tuple[tuple[bytes, int], ...]) -> Send:
        attempt = self._bindings.next_id()
        write = LeaderWrite(op=OP_PLAN, epoch=guard.epoch, attempt=attempt, decided_at_revision=max(decided_at, guard.epoch))
        put = TogetherPut(planned.key, planned.revision, encode_plan(planned.written or planned.plan, write), also, (), attempt)
        planned.writing = "plan"
        self._writing[planned.key] = planned
        return self._window.send([put], guard, op=OP_PLAN)

    def _go_on(self, planned: PlannedGroup, guard: Guard, now: float, now_unix: float) -> Iterator[Send]:
        """Of a plan in the store: look at its members, then replace it, send bindings or end it."""
        group = planned.state.group
        if group is None or group.metadata.uid != planned.uid:
            self._give_up(planned)
        if not self._window.room:
            # Whatever is found now can be found when it can be written.
            return
        self._places.look_at(planned, now, now_unix)
        if planned.is_changed:
            yield self._replace(planned, guard, now_unix)
            return
        if not self.RULE_THE_CONDITION_COMES_LAST:
            yield from self._end(planned, guard, now_unix)
        for writes in self._batches(planned, guard.epoch, now_unix, now):
            yield self._window.send(writes, guard if self.RULE_PLANNED_BINDINGS_ARE_GUARDED else None, op=OP_BIND)
        if not planned.attempts and not planned.unseen and not planned.writing and self._window.room:
            yield from self._end(planned, guard, now_unix)

    def _replace(self, planned: PlannedGroup, guard: Guard, now_unix: float) -> Send:
        before = planned.planned_on()
        moved = [one.node_name for uid, one in planned.attempts.items() if before.get(uid) != one.node_name]
        planned.written = planned.changed_plan(int(now_unix * 1000))
        planned.is_changed = False
        revision = self._cache.revision
        return self._send_plan(planned, guard, revision, self._cache.guards_of(moved, revision, GUARDS_MAX))

    def _batches(self, planned: PlannedGroup, epoch: int, now_unix: float, now: float) -> Iterator[list[GuardedPut]]:
        """Bindings that may go, as many as the window takes. They count as sent."""
        values = BindingValues(epoch, now_unix)
        waiting = [uid for uid in planned.attempts if uid not in planned.sent and uid not in planned.waits]
        writes: list[GuardedPut] = []
        size = 0
        for uid in waiting:
            if not self._window.room:
                return
            write = None if self._statuses.is_busy(uid) else self._binding(planned, uid, values, epoch, now, now_unix)
            if write is None:
                continue
            writes.append(write)
            size += len(write.value)
            if len(writes) == WRITES_MAX or size > BYTES_MAX // 2:
                yield writes
                writes, size = [], 0
        if writes:
            yield writes

    def _binding(
        self, planned: PlannedGroup, uid: str, values: BindingValues, epoch: int, now: float, now_unix: float
    ) -> GuardedPut | None:
        attempt, record = planned.attempts[uid], self._cache.pod(uid)
        assert record is not None
        if attempt.phase is not AttemptPhase.BINDING:
            failure = self._scheduler.begin_binding(attempt, self._bindings.next_id())
            if failure is not None:
                planned.refusals[uid] += 1
                self._places.move(planned, record, attempt, now, now_unix)
                return None
        value = values.value(record, attempt.node_name, attempt.id, max(planned.checked[uid], epoch))
        self._cache.expect(record.key, value, attempt.node_name, attempt.id)
        in_force = ((planned.key, planned.revision),) if planned.is_committed else ()
        guards = (self._cache.node_guard(attempt.node_name), self._cache.taken_guard(attempt.node_name), *in_force)
        planned.sent.add(uid)
        self._by_attempt[attempt.id] = planned, uid
        return GuardedPut(record.key, record.mod_revision, value, guards, (), attempt.id)

    def _end(self, planned: PlannedGroup, guard: Guard, now_unix: float) -> Iterator[Send]:
        """The plan has served: with it goes whatever it said, and the group says that it was bound where it was."""
        state, found = planned.state, object_of(self._cache, planned.state)
        delete = GuardedDelete(planned.key, planned.revision)
        if found is not None and found[2].metadata.uid == planned.uid:
            if self._conditions.is_busy(planned.uid):
                return
            key, revision, group = found
            said = condition_of(group)
            puts: tuple[tuple[bytes, bytes], ...] = ()
            is_whole = state.satisfied >= state.min_count or not self.RULE_THE_CONDITION_COMES_LAST
            if is_whole and (said is None or said.status != "True"):
                name = self._bindings.next_id()
                write = LeaderWrite(op=OP_GROUP, epoch=guard.epoch, attempt=name, decided_at_revision=self._cache.revision)
                words = bound_words(state, state.satisfied)
                puts = ((key, encode(with_condition(group, "True", REASON_SCHEDULED, words, now_unix), write)),)
            delete = GuardedDelete(planned.key, planned.revision, ((key, revision),), puts)
        planned.writing = "end"
        self._writing[planned.key] = planned
        yield self._window.send([delete], guard, op=OP_PLAN)

    # -------------------------------------------------------------------------------------------------------- outcomes

    def is_mine(self, write: Write) -> bool:
        if isinstance(write, GuardedPut) and write.attempt in self._by_attempt:
            return True
        return write.key in self._writing

    def outcome(self, write: Write, outcome: Outcome) -> None:
        """What became of a write: of a binding, or of a plan."""
        found = self._by_attempt.pop(write.attempt, None) if isinstance(write, GuardedPut) else None
        if found is not None:
            assert isinstance(write, GuardedPut)
            self._bound(*found, write, outcome)
            return
        planned = self._writing.pop(write.key)
        writing, planned.writing = planned.writing, ""
        match outcome:
            case Committed(revision) if writing == "plan":
                planned.revision, planned.plan = revision, planned.written or planned.plan
            case Committed():
                self._over(planned)
            case Conflict() if outcome.current is None and writing == "end":
                # Deleted by an earlier sending, whose answer was lost.
                self._over(planned)
            case Conflict() if planned.is_committed:
                planned.is_changed |= writing == "plan"
                planned.wait = lost_race(write, outcome)
            case Conflict():
                self._take_back(planned)
                planned.is_lost, planned.wait = True, lost_race(write, outcome)
            case TransactionRefused(problem) if not planned.is_committed:
                why = f"the store refused the plan of {len(planned.plan.members)} pods: {problem}"
                self._void(planned, AttemptFailure(error(why), why))
            case TransactionRefused():
                # Whoever is bound keeps the place; the plan is tried to be ended once more when something else is answered.
                self._give_up(planned)
            case _ if not planned.is_committed:
                self._void(planned)
            case _:
                pass  # Fenced: the term is over, and the next leader goes on.

    def _bound(self, planned: PlannedGroup, uid: str, write: GuardedPut, outcome: Outcome) -> None:
        """What became of a member's binding."""
        planned.sent.discard(uid)
        attempt = planned.attempts.get(uid)
        if attempt is None or attempt.id != write.attempt or self._scheduler.attempt(uid) is not attempt:
            # It was seen bound, or went, before the answer came.
            return
        if isinstance(outcome, Committed) or (isinstance(outcome, Conflict) and is_on(outcome.current, attempt)):
            self._scheduler.bound(attempt)
            planned.leave(uid)
            planned.unseen.add(uid)
            self.ended.append(EndedAttempt(uid, AttemptEnd.BOUND, attempt))
        elif isinstance(outcome, Conflict):
            planned.waits[uid] = lost_race(write, outcome)
        elif not isinstance(outcome, Fenced):
            self._scheduler.roll_back(attempt)
            planned.leave(uid)
            planned.refused.add(uid)
            planned.is_changed = True

    def _is_gone(self, planned: PlannedGroup) -> bool:
        """Somebody else took the plan away, or wrote another one."""
        recorded = self._cache.plans.get(planned.state.name)
        is_seen = self._cache.revision >= planned.revision
        return is_seen and (recorded is None or recorded.revision != planned.revision)

    def _give_up(self, planned: PlannedGroup) -> None:
        """Nobody else is bound by this plan, but those whose binding is under way."""
        planned.is_changed = False
        for uid, attempt in list(planned.attempts.items()):
            if uid not in planned.sent:
                self._scheduler.roll_back(attempt)
                planned.leave(uid)

    def _over(self, planned: PlannedGroup) -> None:
        # While the end was written the plan may have been seen, and its members may have taken their room again.
        self._give_up(planned)
        self._planned.pop(planned.state.name, None)
        self.over.append(planned)

    def _void(self, planned: PlannedGroup, failure: AttemptFailure | None = None) -> None:
        """A placement that comes to nothing."""
        assert planned.decided is not None
        self._take_back(planned)
        self._planned.pop(planned.state.name, None)
        self.unsent.append(UnsentGroup(planned.decided, failure))

    def _take_back(self, planned: PlannedGroup) -> None:
        for attempt in reversed(planned.attempts.values()):
            self._scheduler.roll_back(attempt)
        planned.attempts.clear()
