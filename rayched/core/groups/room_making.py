"""From the decision that pods have to go for a group to their end: batches are sent, and what became of each is told.

Owner: PodGroups. Cost: that of the batches (`group_rooms`), and of asking again before each further one (`deciding`).
"""

from __future__ import annotations

from collections.abc import Iterator

from rayched.core.groups.clearings import Clearing
from rayched.core.groups.deciding import GroupDecider, RoomStep
from rayched.core.groups.group_cycle import GroupFailure
from rayched.core.groups.group_entries import GroupEntries
from rayched.core.groups.group_measures import ERROR, SUCCESS, GroupMeasures
from rayched.core.groups.group_rooms import GroupRooms
from rayched.core.groups.incomplete_groups import IncompleteGroups
from rayched.core.groups.membership import GroupState
from rayched.core.parts import CoreParts
from rayched.core.writes import event_reasons as occurrences
from rayched.core.writes.pod_patches import OP_PREEMPT
from rayched.core.writes.window import Send
from rayched.framework.status import error
from rayched.scheduler.attempt import AttemptFailure
from rayched.store.transactions import Committed, Conflict, Guard, GuardedPut, Outcome, TogetherPut, TransactionRefused


class RoomMaking:
    """Makes the room that was decided on."""

    def __init__(
        self,
        parts: CoreParts,
        rooms: GroupRooms,
        decider: GroupDecider,
        incomplete: IncompleteGroups,
        entries: GroupEntries,
        measures: GroupMeasures,
        lost: dict[str, GroupState],
    ) -> None:
        """`lost`: groups that wait for the cache to show what refused them, by uid; shared with the owner."""
        self._window, self._bindings, self._events = parts.window, parts.bindings, parts.events
        self._wall_clock = parts.ports.wall_clock
        self._rooms, self._decider, self._incomplete = rooms, decider, incomplete
        self._entries, self._measures, self._lost = entries, measures, lost

    def begin(self, clearing: Clearing) -> None:
        self._rooms.begin(clearing)
        self._measures.makes_room(clearing.uid)

    def send(self, guard: Guard, now: float, now_unix: float) -> Iterator[Send]:
        """What may go now, each in a transaction of its own."""
        for clearing in list(self._rooms.ready()):
            if not self._window.room:
                return
            with self._incomplete.lent(clearing.state):
                step = self._decider.step(clearing, guard.epoch, now, now_unix)
            if isinstance(step, TogetherPut):
                yield self._window.send([step], guard, op=OP_PREEMPT)
            elif isinstance(step, GroupFailure):
                self._measures.made_room(clearing.uid, SUCCESS if step.waits else ERROR)
                self._entries.failed(clearing.state, clearing.uid, step, clearing.began, now)
            elif step is RoomStep.AGAIN:
                self._measures.made_room(clearing.uid, None)
                self._entries.try_again(clearing.state, clearing.uid, now)

    def answered(self, write: GuardedPut, outcome: Outcome, now: float) -> None:
        """What became of a batch."""
        clearing, ended = self._rooms.outcome(write, outcome)
        for victim in ended:
            self._events.emit(occurrences.preempted_by_group(victim, clearing.state.name), now, self._wall_clock())
        if isinstance(outcome, Committed):
            return
        self._rooms.give_up(clearing)
        self._measures.made_room(clearing.uid, ERROR)
        if isinstance(outcome, Conflict):
            self._lost[clearing.uid] = clearing.state
            self._bindings.lose(clearing.uid, write, outcome)
        elif isinstance(outcome, TransactionRefused):
            why = f"the store refused to end {sum(len(unit.victims) for unit in clearing.sent)} pods at once: {outcome.error}"
            failed = GroupFailure(AttemptFailure(error(why), why), 0, None)
            self._entries.failed(clearing.state, clearing.uid, failed, clearing.began, now)
        else:
            self._entries.try_again(clearing.state, clearing.uid, now)
