"""Pod groups in the core: from members that come to a group that is bound, or waits in the queue as one entry.

```
 held back ──(all that the minimum needs is there)──▶ in the queue ──▶ in flight ──▶ committed in one transaction, or by a plan
     ▲                                                    ▲               │
     └──── a member goes, has gates, or the object goes ──┴── it fails ◀──┘
```

* The queue has a group as one entry, under the uid of its object and a name that no pod has; its members are in no queue. The
  entry stands for one member: at first any of them, later the one that failed first, whose plugins decide what wakes the group.
* A group that is held back is not in the queue at all. Its members' conditions say why.
* Members that come while the group is in flight are in its next attempt, which follows at once. After a commit those that are
  left over enter the queue with the time that the group had.

Owner: the SchedulerCore. Pods that name no group cost one look at an attribute of their template.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rayched.api.kinds import POD_GROUP
from rayched.core.attempt_outcomes import AttemptEnds
from rayched.core.cache.records import CacheChange, NodeChanged, ObjectChanged, PlanChanged, PodChanged, PodRecord
from rayched.core.costly_pods import DEATHS_MAX
from rayched.core.exchange.queue_session import QueueLink
from rayched.core.groups import group_queue
from rayched.core.groups.clearings import Clearing
from rayched.core.groups.deciding import Decided, GroupDecider
from rayched.core.groups.following import GroupFollowing
from rayched.core.groups.group_cycle import GroupCycle, GroupFailure
from rayched.core.groups.group_entries import GroupEntries
from rayched.core.groups.group_measures import COMMITTED_AS_ONE, COMMITTED_BY_PLAN
from rayched.core.groups.group_preemption import GroupPreemption
from rayched.core.groups.group_rooms import GroupRooms
from rayched.core.groups.group_writes import OP_GROUP, GroupCommits, GroupConditions, UnsentGroup
from rayched.core.groups.held_back import HeldGroups
from rayched.core.groups.incomplete_groups import OP_RELEASE, IncompleteGroups
from rayched.core.groups.looking import GroupLooks
from rayched.core.groups.membership import GroupMembership, GroupState
from rayched.core.groups.paused_attempts import PausedAttempt, PausedAttempts
from rayched.core.groups.recorded_plans import RecordedPlans
from rayched.core.groups.room_making import RoomMaking
from rayched.core.groups.terminating_groups import TerminatingGroups
from rayched.core.parts import CoreParts
from rayched.core.writes.bindings import AttemptEnd, EndedAttempt
from rayched.core.writes.window import Send
from rayched.framework.status import error
from rayched.scheduler.attempt import AttemptFailure
from rayched.store.transactions import WRITES_MAX, Conflict, Guard, GuardedPut, Outcome, TransactionRefused, Write

GROUPS_UNSENT_MAX: Final = 16
"""Placements that wait to be sent; with more nothing is decided until the store takes some."""
UNREADABLE: Final = "its plan in the store cannot be read"


class PodGroups:
    """All that the core knows and does about groups."""

    def __init__(self, parts: CoreParts, ends: AttemptEnds, incarnation: str) -> None:
        self._ports, self._cache, self._scheduler = parts.ports, parts.cache, parts.scheduler
        self._events, self._bindings, self._window, self._ends = parts.events, parts.bindings, parts.window, ends
        self._membership = GroupMembership()
        self._lost: dict[str, GroupState] = {}
        """Groups that wait for the cache to show what refused their placement, by the uid of their object."""
        self._measures = ends.measures.groups
        self._measures.pending = self._membership.pending
        self._cycle = GroupCycle(parts.snapshot, parts.scheduler, parts.ports.progress, self._measures)
        self._conditions = GroupConditions(parts.cache, incarnation)
        self._commits = GroupCommits(parts.cache, parts.scheduler, parts.statuses, parts.bindings, self._conditions)
        self._plans = RecordedPlans(parts, self._conditions)
        self._held = HeldGroups(parts, self._conditions)
        self._incomplete = IncompleteGroups(parts, incarnation)
        self._rooms = GroupRooms(parts, self._conditions, incarnation)
        told = self._conditions, self._held, self._incomplete, self._rooms
        self._entries = GroupEntries(parts, ends, self._membership, self._cycle, *told)
        preemption = GroupPreemption(parts.snapshot, parts.scheduler, self._cycle, self._membership.by_name)
        self._paused = PausedAttempts(self._cycle, parts.ports.others_wait)
        asked = parts.ports.clock, self._paused.others_wait
        self._decider = GroupDecider(self._cycle, preemption, self._rooms, self._measures, *asked)
        self._room = RoomMaking(parts, self._rooms, self._decider, self._incomplete, self._entries, self._measures, self._lost)
        self._terminating = TerminatingGroups(parts.cache)
        followed = self._incomplete, self._entries, self._terminating
        self.following = GroupFollowing(ends, self._membership, *followed)
        self.looks = GroupLooks(parts, ends, self._membership, self._paused, self._incomplete, self._decider)

    # --------------------------------------------------------------------------------------------------------- following

    def absorb(self, change: CacheChange, now: float) -> None:
        """A change of a member or of a PodGroup; others do nothing here.

        `following` is settled before other pods' changes, and in the end.
        """
        if isinstance(change, PodChanged):
            self.following.member_changed(change, now)
            return
        self.following.settle()
        if isinstance(change, ObjectChanged) and change.kind == POD_GROUP.name:
            found = self._membership.object_changed(change)
            if found is not None:
                state, old_group = found
                is_other = old_group is None or state.group is None or old_group.metadata.uid != state.group.metadata.uid
                before = None if old_group is None else old_group.spec.scheduling_policy.gang.min_count
                eased = is_other or (before is not None and state.min_count < before)
                self.following.group_changed(state, None, now, eased=eased)
        elif isinstance(change, PlanChanged):
            state = self._membership.state_of(change.group)
            state.plan_problem = UNREADABLE if change.new is not None and change.new.plan is None else ""
            self._take_over(state, now)
            self._entries.follow(state, now, eased=True)
        elif isinstance(change, NodeChanged) and change.difference.labels:
            for state in self._membership.failed_in_other_domain(change):
                self._entries.follow(state, now, eased=True)

    def begin(self, now: float) -> None:
        """A session begins: its queue has no group yet."""
        self._lost.clear()
        self._held.clear()
        self._paused.stop()
        for group in self._cache.plans:
            self._take_over(self._membership.state_of(group), now)
        for state in self._membership:
            state.is_told = state.grown = state.has_failed = False
            state.in_flight = self._commits.has(state.uid) or self._plans.has(state.name) or self._rooms.has(state.uid)
            state.since, state.is_held = None, False
            self._incomplete.follow(state, None, now, self._ends.link)
            self._terminating.follow(state)
            self._entries.follow(state, now, eased=True)

    def _take_over(self, state: GroupState, now: float) -> None:
        """A plan goes on: that of an earlier leader, or one's own after an interruption."""
        recorded, link = self._cache.plans.get(state.name), self._ends.link
        if recorded is None or link is None or (state.in_flight and not self._plans.has(state.name)):
            return
        self._plans.adopt(state, recorded, link.cycle_begins(), now)
        if self._plans.has(state.name):
            state.in_flight = True
            if state.is_told:
                group_queue.leave(state, link)

    def stop(self) -> None:
        """The term is over or interrupted: nothing more is sent."""
        self._paused.stop()
        self._commits.stop()
        self._plans.stop()
        self._rooms.stop()
        self._terminating.stop()
        self._incomplete.expire(float("inf"), None)
        self._incomplete.clear()
        self._conditions.clear()

    def end_epoch(self) -> None:
        """The epoch is over: nothing more is sent, and answers still to come are ignored."""
        self.stop()
        self._commits.forget_sent()
        self._plans.forget()
        self._rooms.forget_sent()
        self._terminating.forget_sent()
        for state in self._membership:
            state.in_flight = False
        self._conditions.forget_sent()

    def store_takes(self, n_keys: int) -> None:
        """It is known that the store takes no transaction of more keys."""
        self._cycle.was_too_large(n_keys + 1)

    def n_queued(self) -> int:
        """Groups that the queue has, or had when it handed them out."""
        return sum(state.is_told for state in self._membership)

    def counts(self) -> tuple[int, int, float]:
        """Groups that are bound by a plan, those that are incomplete, and the age of the oldest plan in seconds."""
        return len(self._plans), len(self._incomplete), self._plans.oldest_seconds(self._ports.wall_clock())

    def knows(self, uid: str) -> bool:
        """Whether it is the uid of a group, not of a pod."""
        return self._membership.by_uid(uid) is not None

    def worth_trying(self, uids: Iterable[str]) -> dict[str, int]:
        """Those of the pods and groups handed out that are still worth trying, with their priorities."""
        priorities: dict[str, int] = {}
        for uid in uids:
            record = self._cache.pod(uid)
            if record is not None:
                if self._ends.is_to_be_tried(record):
                    priorities[uid] = record.template.priority
            elif (state := self._membership.by_uid(uid)) is not None and state.group is not None:
                priorities[uid] = state.group.spec.priority
        return priorities

    # ---------------------------------------------------------------------------------------------------------- deciding

    def decide(self, uid: str, record: PodRecord | None, link: QueueLink, now_unix: float) -> None:
        """One cycle for the group of this uid. Where there is none it is a pod's that is not to be tried any more: that ends."""
        state = None if record is not None else self._membership.by_uid(uid)
        if state is None:
            link.ended(uid)
            return
        now = self._ports.clock()
        if state.in_flight or state.hold() is not None or next(self._cycle.free(state), None) is None:
            link.ended(uid)
            if not state.in_flight:
                state.is_told = False
                self._entries.follow(state, now)
            return
        self._ports.deciding(uid)
        self._measures.begins(uid, next(iter(state.terms)).scheduler_name)
        began = link.cycle_begins()
        state.in_flight = True
        deaths = self._cache.suspects.get(uid, 0)
        if deaths >= DEATHS_MAX:
            why = f"schedulers ended in {deaths} attempts for this group; it is tried again when that is an hour ago"
            self._entries.failed(state, uid, GroupFailure(AttemptFailure(error(why), why), 0, None), began, now)
            return
        self._incomplete.lend(state)
        pieces = self._decider.attempt(state, began, now, now_unix)
        self._go_on(PausedAttempt(state, uid, began, pieces, self._paused.standing(state)), now)

    @property
    def n_paused(self) -> int:
        """Attempts that rest."""
        return len(self._paused)

    def go_on(self, *, in_hand: int, decided: int) -> bool:
        """A piece of an attempt that takes long, where it is its turn. So many pods are in the hand, and were decided about."""
        now = self._ports.clock()
        paused = self._paused.take(now, in_hand=in_hand > 0, has_decided=decided > 0)
        if paused is None:
            return False
        if not self._paused.is_as_it_was(paused):
            paused.pieces.close()
            self._entries.try_again(paused.state, paused.uid, now)
            self._paused.took(now, now)
            return True
        self._ports.deciding(paused.uid)
        self._incomplete.lend(paused.state)
        self._go_on(paused, now)
        self._paused.took(now, self._ports.clock())
        return True

    def _go_on(self, paused: PausedAttempt, now: float) -> None:
        """The next piece; the last one brings what the attempt comes to."""
        state, uid = paused.state, paused.uid
        try:
            next(paused.pieces)
        except StopIteration as end:
            found: Decided = end.value
        else:
            self._incomplete.take_back(state)
            self._paused.add(paused)
            return
        self._measures.decided(uid, "unschedulable" if isinstance(found, GroupFailure | Clearing) else "scheduled")
        if isinstance(found, GroupFailure | Clearing):
            self._incomplete.take_back(state)
        if isinstance(found, GroupFailure):
            self._entries.failed(state, uid, found, paused.began, now)
        elif isinstance(found, Clearing):
            self._room.begin(found)
        else:
            self._incomplete.placed(state)
            decided = self._commits.decided(state, found, paused.began)
            if not found.is_one:
                self._plans.decided(decided, self._ports.wall_clock())

    # ----------------------------------------------------------------------------------------------------------- writing

    @property
    def is_used(self) -> bool:
        """There is a group, or a pod that names one."""
        return len(self._membership) > 0

    def is_mine(self, write: Write) -> bool:
        if self._plans.is_mine(write) or self._terminating.is_mine(write):
            return True
        return isinstance(write, GuardedPut) and any(
            part.is_mine(write) for part in (self._commits, self._conditions, self._incomplete, self._rooms)
        )

    def next_due(self) -> float | None:
        """When something is to be said."""
        dues = (part.next_due() for part in (self._conditions, self._held, self._incomplete, self._rooms, self._terminating))
        return min((due for due in dues if due is not None), default=None)

    @property
    def n_unsent(self) -> int:
        return len(self._commits) + self._plans.n_unsent + len(self._rooms)

    @property
    def is_placing(self) -> bool:
        """A placement is to be sent, room is to be made, or a plan goes on."""
        return any(len(part) > 0 for part in (self._commits, self._rooms, self._plans))

    def send_placements(self, guard: Guard, now: float, now_unix: float) -> Iterator[Send]:
        """Placements that may go now, room that is made, and what plans have come to."""
        yield from self._room.send(guard, now, now_unix)
        yield from self._plans.send(guard, now, now_unix)
        self._settle_plans(now)
        unsent: list[UnsentGroup] = []
        while self._window.room:
            writes = self._commits.batch(guard.epoch, now_unix, unsent)
            if not writes:
                break
            yield self._window.send(writes, guard, op=OP_GROUP)
        self._end_unsent(unsent, now)

    def _end_unsent(self, unsent: Iterable[UnsentGroup], now: float) -> None:
        """Placements that were not sent, or not taken."""
        for one in unsent:
            if one.failure is None:
                self._entries.try_again(one.decided.state, one.decided.uid, now)
            else:
                self._entries.failed(
                    one.decided.state, one.decided.uid, GroupFailure(one.failure, 0, None), one.decided.began, now
                )

    def send_conditions(self, guard: Guard, now: float, now_unix: float) -> Iterator[Send]:
        """What groups and their members are told, last of all: why they wait, or that they end."""
        self._incomplete.expire(now, self._ends.link)
        ends = self._incomplete.batch(guard.epoch, now, now_unix) if len(self._incomplete) and self._window.room else []
        if ends:
            yield self._window.send(ends, guard, op=OP_RELEASE)
        self._held.say(now)
        free = tuple(state.entry_name for state in map(self._membership.by_uid, self._rooms.over(now)) if state is not None)
        if free and self._ends.link is not None:
            self._ends.link.activate(free)
        gone = self._terminating.batch() if self._window.room else []
        if gone:
            yield self._window.send(gone, guard, op=OP_GROUP)
        writes = self._conditions.batch(guard.epoch, now, now_unix, WRITES_MAX) if self._window.room else []
        if writes:
            yield self._window.send(writes, guard, op=OP_GROUP, once=True)

    def _settle_plans(self, now: float) -> None:
        """What plans, and their members, have come to since this was last asked."""
        plans = self._plans
        ended, plans.ended = plans.ended, []
        self._ends.end_all(ended)
        unsent, plans.unsent = plans.unsent, []
        self._end_unsent(unsent, now)
        over, plans.over = plans.over, []
        for planned in over:
            self._ends.measures.forget(planned.uid)
            self._measures.ends(planned.uid, "scheduled")
            self._measures.commits[COMMITTED_BY_PLAN] += 1
            if self._ends.link is not None:
                self._entries.over(planned.state, planned.uid, self._ends.link, now)

    def outcome(self, write: Write, outcome: Outcome, now: float) -> None:
        """What became of a write of a group."""
        if self._terminating.is_mine(write):
            self._terminating.outcome(write)
            return
        if self._plans.is_mine(write):
            self._plans.outcome(write, outcome)
            self._settle_plans(now)
            return
        assert isinstance(write, GuardedPut)
        if isinstance(outcome, TransactionRefused) and self._commits.is_mine(write):
            # It is too large for this store, whose limits nobody told us.
            self._cycle.was_too_large(1 + len(write.also))
            self._plans.decided(self._commits.too_large(write), self._ports.wall_clock())
            return
        for part in (self._conditions, self._incomplete):
            if part.is_mine(write):
                part.outcome(write, outcome)
                return
        if self._rooms.is_mine(write):
            self._room.answered(write, outcome, now)
            return
        decided, attempts, is_bound = self._commits.outcome(write, outcome)
        state, link = decided.state, self._ends.link
        if is_bound:
            self._ends.measures.forget(decided.uid)
            self._measures.ends(decided.uid, "scheduled")
            self._measures.commits[COMMITTED_AS_ONE] += 1
            self._ends.end_all(EndedAttempt(attempt.uid, AttemptEnd.BOUND, attempt) for attempt in attempts)
            if link is not None:
                self._entries.over(state, decided.uid, link, now)
        elif isinstance(outcome, Conflict):
            self._lost[decided.uid] = state
            self._bindings.lose(decided.uid, write, outcome)
        else:
            self._entries.try_again(state, decided.uid, now)

    def others(self, resolved: Iterable[EndedAttempt], now: float) -> Iterator[EndedAttempt]:
        """Lost races that the cache shows by now: those of groups end here, those of pods are given on."""
        for one in resolved:
            state = self._lost.pop(one.uid, None)
            if state is None:
                yield one
            else:
                self._entries.try_again(state, one.uid, now)
