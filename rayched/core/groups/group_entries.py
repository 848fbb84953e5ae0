"""Pod groups as entries of the queue, from when they enter it until an attempt has ended there.

What a failed attempt comes to is told to the group's members, its own object, the queue and by an Event.

Owner: `PodGroups`. Cost: about 1 µs a member that waits, for an attempt that failed.
"""

from __future__ import annotations

from rayched.api.occurrences import cut
from rayched.core.attempt_outcomes import CONDITION_BYTES_MAX, AttemptEnds
from rayched.core.exchange.queue_session import QueueLink
from rayched.core.groups import group_queue
from rayched.core.groups.group_cycle import GroupCycle, GroupFailure
from rayched.core.groups.group_measures import WAITING
from rayched.core.groups.group_rooms import GroupRooms
from rayched.core.groups.group_writes import GroupConditions, conditions_words
from rayched.core.groups.held_back import HeldGroups
from rayched.core.groups.incomplete_groups import IncompleteGroups, subject_of
from rayched.core.groups.membership import GroupMembership, GroupState
from rayched.core.parts import CoreParts
from rayched.core.writes import event_reasons as occurrences
from rayched.core.writes.pod_patches import NotScheduled
from rayched.scheduler.attempt import AttemptFailure


class GroupEntries:
    """What the queue has of groups, and what they come to there."""

    def __init__(
        self,
        parts: CoreParts,
        ends: AttemptEnds,
        membership: GroupMembership,
        cycle: GroupCycle,
        conditions: GroupConditions,
        held: HeldGroups,
        incomplete: IncompleteGroups,
        rooms: GroupRooms,
    ) -> None:
        self._scheduler, self._statuses, self._events = parts.scheduler, parts.statuses, parts.events
        self._wall_clock, self._ends, self._measures = parts.ports.wall_clock, ends, ends.measures.groups
        self._membership, self._cycle, self._conditions = membership, cycle, conditions
        self._held, self._incomplete, self._rooms = held, incomplete, rooms

    def follow(self, state: GroupState, now: float, *, came: bool = False, eased: bool = False) -> None:
        """The group changed: it enters the queue, leaves it, or is woken. `came`: a member waits since now."""
        link = self._ends.link
        if link is None or (state.in_flight and not came and not eased):
            return
        if state.terms and not any(self._scheduler.knows(terms.scheduler_name) for terms in state.terms):
            return
        if state.in_flight:
            state.grown = True
            return
        hold = state.hold()
        is_another = state.group is None or state.group.metadata.uid != state.uid
        if state.is_told and (hold is not None or not state.waiting or is_another):
            eased = True
            group_queue.leave(state, link)
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
        record = next(self._cycle.free(state), None)
        if self._incomplete.is_incomplete(state):
            # Before all others of its priority.
            state.since = 0.0
        group_queue.enter(state, record, link, now)

    def failed(self, state: GroupState, uid: str, failure: GroupFailure, began: int, now: float) -> None:
        """The group's attempt failed: told to the queue, its members, its own object and by an Event."""
        rejected, link = failure.failure.rejected, self._ends.link
        state.in_flight = False
        state.since = None
        result = "unschedulable" if rejected else "error"
        self._ends.attempts[result] += 1
        self._measures.ends(uid, WAITING if failure.waits else result)
        if link is None:
            return
        if state.hold() is not None or state.group is None or state.group.metadata.uid != uid:
            self.over(state, uid, link, now)
            return
        # What its members came to while it was in flight.
        self._incomplete.follow(state, None, now, link)
        told = self._tell(state, failure, now, link)
        state.has_failed = True
        if not link.failed(uid, began, told):
            self._enter(state, link, now)
        elif state.grown:
            state.has_failed = False
            link.activate((state.entry_name,))
        state.grown = False

    def _tell(self, state: GroupState, failure: GroupFailure, now: float, link: QueueLink) -> AttemptFailure:
        """Everybody but the queue, which is to be told what comes back."""
        failed = failure.failure
        reason, message = conditions_words(state, failure)
        message = cut(message, CONDITION_BYTES_MAX)
        for member in state.waiting:
            self._statuses.want(member, NotScheduled(reason, message, failure.nominated.get(member, "")), now)
        self._conditions.want(state, reason, message, now)
        some = failure.first or next(iter(state.waiting.values()))
        self._ends.measures.failed(state.uid, some.template.scheduler_name, failed, now, state.entry_name)
        told = occurrences.group_failed(subject_of(state), some.template.scheduler_name, message)
        self._events.emit(told, now, self._wall_clock())
        group_queue.stand_in(state, some, link, now)
        return AttemptFailure(failed.status, message, failed.unschedulable_plugins, failed.pending_plugins)

    def over(self, state: GroupState, uid: str, link: QueueLink, now: float) -> None:
        """The queue's entry ends; whoever is left makes another one."""
        state.in_flight = state.is_told = state.grown = False
        link.ended(uid)
        self._incomplete.follow(state, None, now, link)
        self.follow(state, now, eased=True)

    def try_again(self, state: GroupState, uid: str, now: float) -> None:
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
        self.over(state, uid, link, now)
