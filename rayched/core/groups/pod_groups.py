"""Pod groups in the core: from members that come to a group that is bound, or waits in the queue as one entry.

```
 held back ──(all that the minimum needs is there)──▶ in the queue ──▶ in flight ──▶ committed in one transaction
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
from rayched.api.occurrences import Subject, cut
from rayched.core.attempt_outcomes import CONDITION_BYTES_MAX, AttemptEnds
from rayched.core.cache.records import CacheChange, NodeChanged, ObjectChanged, PodChanged, PodRecord
from rayched.core.costly_pods import DEATHS_MAX
from rayched.core.exchange.messages import PendingPodGone, PendingPodSeen
from rayched.core.exchange.queue_session import QueueLink
from rayched.core.groups.deciding import GroupDecider, RoomStep
from rayched.core.groups.group_cycle import GroupCycle, GroupFailure
from rayched.core.groups.group_measures import WAITING
from rayched.core.groups.group_preemption import GroupPreemption
from rayched.core.groups.group_rooms import Clearing, GroupRooms
from rayched.core.groups.group_writes import (
    OP_GROUP,
    GroupCommits,
    GroupConditions,
    UnsentGroup,
    conditions_words,
)
from rayched.core.groups.held_back import HeldGroups
from rayched.core.groups.membership import GroupMembership, GroupState
from rayched.core.parts import CoreParts
from rayched.core.writes import event_reasons as occurrences
from rayched.core.writes.bindings import AttemptEnd, EndedAttempt
from rayched.core.writes.pod_patches import OP_PREEMPT, NotScheduled
from rayched.core.writes.window import Send
from rayched.framework.status import error
from rayched.scheduler.attempt import AttemptFailure
from rayched.store.transactions import (
    WRITES_MAX,
    Committed,
    Conflict,
    Guard,
    GuardedPut,
    Outcome,
    TogetherPut,
    TransactionRefused,
)
from rayched.v1.services_pb2 import GroupExplanation

GROUPS_UNSENT_MAX: Final = 16
"""Placements that wait to be sent; with more nothing is decided until the store takes some."""


class PodGroups:
    """All that the core knows and does about groups."""

    def __init__(self, parts: CoreParts, ends: AttemptEnds, incarnation: str) -> None:
        self._ports, self._cache, self._scheduler = parts.ports, parts.cache, parts.scheduler
        self._statuses, self._events, self._bindings = parts.statuses, parts.events, parts.bindings
        self._window, self._ends = parts.window, ends
        self._membership = GroupMembership()
        self._lost: dict[str, GroupState] = {}
        """Groups that wait for the cache to show what refused their placement, by the uid of their object."""
        self._measures = ends.measures.groups
        self._measures.pending = self._membership.pending
        self._cycle = GroupCycle(parts.snapshot, parts.cache, parts.scheduler, parts.ports.progress, self._measures)
        self._conditions = GroupConditions(parts.cache, incarnation)
        self._held = HeldGroups(parts, self._conditions)
        self._commits = GroupCommits(parts.cache, parts.scheduler, parts.statuses, parts.bindings, self._conditions)
        self._rooms = GroupRooms(parts, self._conditions, incarnation)
        preemption = GroupPreemption(parts.snapshot, parts.scheduler, self._cycle, self._membership.by_name)
        self._decider = GroupDecider(self._cycle, preemption, self._rooms, self._measures, parts.ports.clock)

    # --------------------------------------------------------------------------------------------------------- following

    def absorb(self, change: CacheChange, now: float) -> None:
        """A change of a member or of a PodGroup; others do nothing here."""
        if isinstance(change, PodChanged):
            old, new = change
            state = self._membership.member_changed(change)
            if state is not None:
                is_waiting = new is not None and new.uid in state.waiting
                came = is_waiting and (old is None or new is None or old.template is not new.template)
                self._follow(state, now, new.uid if came and new is not None else "")
        elif isinstance(change, ObjectChanged) and change.kind == POD_GROUP.name:
            found = self._membership.object_changed(change)
            if found is not None:
                state, old_group = found
                is_other = old_group is None or state.group is None or old_group.metadata.uid != state.group.metadata.uid
                before = None if old_group is None else old_group.spec.scheduling_policy.gang.min_count
                self._follow(state, now, eased=is_other or (before is not None and state.min_count < before))
        elif isinstance(change, NodeChanged) and change.difference.labels and change.new is not None:
            self._relabelled(change, now)

    def _relabelled(self, change: NodeChanged, now: float) -> None:
        """The node may be in another domain now, and no plugin of a member knows of domains."""
        for state in self._membership if change.new is not None else ():
            key = state.topology
            before = "" if change.old is None else change.old.metadata.labels.get(key, "")
            if key and state.has_failed and change.new is not None and change.new.metadata.labels.get(key, "") != before:
                self._follow(state, now, eased=True)

    def begin(self, now: float) -> None:
        """A session begins: its queue has no group yet."""
        self._lost.clear()
        self._held.clear()
        for state in self._membership:
            state.is_told = state.grown = state.has_failed = False
            state.in_flight = self._commits.has(state.uid) or self._rooms.has(state.uid)
            state.since, state.is_held = None, False
            self._follow(state, now, eased=True)

    def stop(self) -> None:
        """The term is over or interrupted: nothing more is sent."""
        self._commits.stop()
        self._rooms.stop()
        self._conditions.clear()

    def end_epoch(self) -> None:
        """The epoch is over: nothing more is sent, and answers still to come are ignored."""
        self.stop()
        self._commits.forget_sent()
        self._rooms.forget_sent()
        self._conditions.forget_sent()

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

    def _follow(self, state: GroupState, now: float, came: str = "", *, eased: bool = False) -> None:
        """The group changed: it enters the queue, leaves it, or is woken. `came`: the uid of a member that waits since now."""
        link = self._ends.link
        if link is None or (state.terms and not any(self._scheduler.knows(terms.scheduler_name) for terms in state.terms)):
            return
        if state.in_flight:
            state.grown |= bool(came) or eased
            return
        hold = state.hold()
        is_another = state.group is None or state.group.metadata.uid != state.uid
        if state.is_told and (hold is not None or not state.waiting or is_another):
            eased = True
            self._leave(state, link)
        if hold is not None:
            self._rooms.end_wait(state.uid)
            self._held.hold(state, now)
        elif not state.is_told:
            if came or eased or state.is_held:
                self._enter(state, link, now)
        elif (came or eased) and state.has_failed:
            state.has_failed = False
            link.activate((state.entry_name,))
        self._membership.prune(state)

    def _enter(self, state: GroupState, link: QueueLink, now: float) -> None:
        state.is_held = False
        record = next(self._cycle.free(state), None)
        if record is None or state.group is None:
            state.since = None
            return
        state.uid, state.is_told, state.has_failed = state.group.metadata.uid, True, False
        state.since = now if state.since is None else state.since
        state.template = record.template.id
        priority = state.group.spec.priority
        link.tell(PendingPodSeen(state.uid, state.entry_name, record.template.id, priority, state.since), (record.template,))

    @staticmethod
    def _leave(state: GroupState, link: QueueLink) -> None:
        link.tell(PendingPodGone(state.uid, state.entry_name))
        state.is_told, state.since = False, None

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
                self._follow(state, now)
            return
        self._ports.deciding(uid)
        self._measures.begins(uid, next(iter(state.terms)).scheduler_name)
        began = link.cycle_begins()
        state.in_flight = True
        deaths = self._cache.suspects.get(uid, 0)
        if deaths >= DEATHS_MAX:
            why = f"schedulers ended in {deaths} attempts for this group; it is tried again when that is an hour ago"
            self._failed(state, uid, GroupFailure(AttemptFailure(error(why), why), 0, None), began, now)
            return
        found = self._decider.decide(state, began, now, now_unix)
        self._measures.decided(uid, "unschedulable" if isinstance(found, GroupFailure | Clearing) else "scheduled")
        if isinstance(found, GroupFailure):
            self._failed(state, uid, found, began, now)
        elif isinstance(found, Clearing):
            self._rooms.begin(found)
        else:
            self._commits.decided(state, found, began)

    def _failed(self, state: GroupState, uid: str, failure: GroupFailure, began: int, now: float) -> None:
        """The group's attempt failed: told to the queue, its members, its own object and by an Event."""
        failed, first, link = failure.failure, failure.first, self._ends.link
        state.in_flight = False
        state.since = None
        self._ends.attempts["unschedulable" if failed.rejected else "error"] += 1
        self._measures.ends(uid, WAITING if failure.waits else "unschedulable" if failed.rejected else "error")
        if link is None:
            return
        reason, message = conditions_words(state, failure)
        message = cut(message, CONDITION_BYTES_MAX)
        if state.hold() is not None or state.group is None or state.group.metadata.uid != uid:
            self._over(state, uid, link, now)
            return
        for member in state.waiting:
            self._statuses.want(member, NotScheduled(reason, message, failure.nominated.get(member, "")), now)
        self._conditions.want(state, reason, message, now)
        some = first or next(iter(state.waiting.values()))
        self._ends.measures.failed(uid, some.template.scheduler_name, failed, now, state.entry_name)
        namespace, _, name = state.name.partition("/")
        subject = Subject(POD_GROUP.name, namespace, name, uid, POD_GROUP.api_version)
        told = occurrences.group_failed(subject, some.template.scheduler_name, message)
        self._events.emit(told, now, self._ports.wall_clock())
        if some.template.id != state.template and link.is_known(uid):
            # Its plugins decide from now on what may help.
            state.template = some.template.id
            priority = state.group.spec.priority
            seen = PendingPodSeen(uid, state.entry_name, some.template.id, priority, now, is_new=False)
            link.tell(seen, (some.template,))
        state.has_failed = True
        if not link.failed(
            uid, began, AttemptFailure(failed.status, message, failed.unschedulable_plugins, failed.pending_plugins)
        ):
            self._enter(state, link, now)
        elif state.grown:
            state.has_failed = False
            link.activate((state.entry_name,))
        state.grown = False

    def _over(self, state: GroupState, uid: str, link: QueueLink, now: float) -> None:
        """The queue's entry ends; whoever is left makes another one."""
        state.in_flight = state.is_told = state.grown = False
        link.ended(uid)
        self._follow(state, now, eased=True)

    def look(self, name: str) -> GroupExplanation | None:
        """What would become of the group of this namespace/name now; None: there is none. Nothing changes."""
        state, now = self._membership.by_name(name), self._ports.clock()
        return None if state is None else self._decider.look(state, now, self._ports.wall_clock())

    # ----------------------------------------------------------------------------------------------------------- writing

    @property
    def is_used(self) -> bool:
        """There is a group, or a pod that names one."""
        return len(self._membership) > 0

    def is_mine(self, write: GuardedPut) -> bool:
        return self._commits.is_mine(write) or self._conditions.is_mine(write) or self._rooms.is_mine(write)

    def next_due(self) -> float | None:
        """When something is to be said."""
        dues = (self._conditions.next_due(), self._rooms.next_due(), self._held.next_due())
        return min((due for due in dues if due is not None), default=None)

    @property
    def n_unsent(self) -> int:
        return len(self._commits) + len(self._rooms)

    def send_placements(self, guard: Guard, now: float, now_unix: float) -> Iterator[Send]:
        """Placements that may go now, and room that is made, each in a transaction of its own."""
        yield from self._make_room(guard, now, now_unix)
        unsent: list[UnsentGroup] = []
        while self._window.room:
            write = self._commits.next(guard.epoch, now_unix, unsent)
            if write is None:
                break
            yield self._window.send([write], guard, op=OP_GROUP)
        for one in unsent:
            if one.failure is None:
                self._try_again(one.decided.state, one.decided.uid, now)
            else:
                self._failed(one.decided.state, one.decided.uid, GroupFailure(one.failure, 0, None), one.decided.began, now)

    def _make_room(self, guard: Guard, now: float, now_unix: float) -> Iterator[Send]:
        for clearing in list(self._rooms.ready()):
            step = self._decider.step(clearing, guard.epoch, now, now_unix) if self._window.room else RoomStep.LATER
            if isinstance(step, TogetherPut):
                yield self._window.send([step], guard, op=OP_PREEMPT)
            elif isinstance(step, GroupFailure):
                self._failed(clearing.state, clearing.uid, step, clearing.began, now)
            elif step is RoomStep.AGAIN:
                self._try_again(clearing.state, clearing.uid, now)

    def _room_answered(self, write: GuardedPut, outcome: Outcome, now: float) -> None:
        clearing, ended = self._rooms.outcome(write, outcome)
        for victim in ended:
            self._events.emit(occurrences.preempted_by_group(victim, clearing.state.name), now, self._ports.wall_clock())
        if isinstance(outcome, Committed):
            return
        self._rooms.give_up(clearing)
        if isinstance(outcome, Conflict):
            self._lost[clearing.uid] = clearing.state
            self._bindings.lose(clearing.uid, write, outcome)
        elif isinstance(outcome, TransactionRefused):
            why = f"the store refused to end {sum(len(unit.victims) for unit in clearing.sent)} pods at once: {outcome.error}"
            failed = GroupFailure(AttemptFailure(error(why), why), 0, None)
            self._failed(clearing.state, clearing.uid, failed, clearing.began, now)
        else:
            self._try_again(clearing.state, clearing.uid, now)

    def send_conditions(self, guard: Guard, now: float, now_unix: float) -> Iterator[Send]:
        """What groups and their members are told, last of all."""
        self._held.say(now)
        late = tuple(state.entry_name for state in map(self._membership.by_uid, self._rooms.over(now)) if state is not None)
        if late and self._ends.link is not None:
            self._ends.link.activate(late)
        writes = self._conditions.batch(guard.epoch, now, now_unix, WRITES_MAX) if self._window.room else []
        if writes:
            yield self._window.send(writes, guard, op=OP_GROUP, once=True)

    def outcome(self, write: GuardedPut, outcome: Outcome, now: float) -> None:
        """What became of a write of a group."""
        if self._conditions.is_mine(write):
            self._conditions.outcome(write, outcome)
            return
        if self._rooms.is_mine(write):
            self._room_answered(write, outcome, now)
            return
        decided, attempts, is_bound = self._commits.outcome(write, outcome)
        state, link = decided.state, self._ends.link
        if is_bound:
            self._ends.measures.forget(decided.uid)
            self._measures.ends(decided.uid, "scheduled")
            self._ends.end_all(EndedAttempt(attempt.uid, AttemptEnd.BOUND, attempt) for attempt in attempts)
            if link is not None:
                self._over(state, decided.uid, link, now)
        elif isinstance(outcome, Conflict):
            self._lost[decided.uid] = state
            self._bindings.lose(decided.uid, write, outcome)
        elif isinstance(outcome, TransactionRefused):
            why = f"the store refused to bind {len(decided.attempts)} pods at once: {outcome.error}"
            self._failed(state, decided.uid, GroupFailure(AttemptFailure(error(why), why), 0, None), decided.began, now)
        else:
            self._try_again(state, decided.uid, now)

    def others(self, resolved: Iterable[EndedAttempt], now: float) -> Iterator[EndedAttempt]:
        """Lost races that the cache shows by now: those of groups end here, those of pods are given on."""
        for one in resolved:
            state = self._lost.pop(one.uid, None)
            if state is None:
                yield one
            else:
                self._try_again(state, one.uid, now)

    def _try_again(self, state: GroupState, uid: str, now: float) -> None:
        """The placement is void, and the group is worth another attempt at once."""
        link = self._ends.link
        state.in_flight = False
        if link is None:
            return
        if (
            state.hold() is None
            and state.waiting
            and state.group is not None
            and state.group.metadata.uid == uid
            and link.give_back(uid)
        ):
            state.grown = False
            return
        self._over(state, uid, link, now)
