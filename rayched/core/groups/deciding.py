"""What one attempt for a group comes to: a placement, room that is to be made for it, or a failure.

* Free room is used first: only where the minimum does not fit is it asked who could go. A gang of which members are bound already
  has room made for all that are left before it binds a part of them; a basic group never does.
* Nobody goes for a group with preemptionPolicy Never, nor while victims of it have yet to end.
* Its members keep no room from each other: their nominations are off while it is decided, and on again while it waits.

Owner: PodGroups. Cost: that of its parts.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Generator, Iterable
from dataclasses import replace
from math import inf
from typing import ClassVar, Protocol

from rayched.core.cache.records import PodRecord
from rayched.core.groups.clearings import Clearing, GroupWait
from rayched.core.groups.group_cycle import GroupCycle, GroupFailure, GroupPlacement, GroupQuestion
from rayched.core.groups.group_measures import GroupMeasures
from rayched.core.groups.group_preemption import PIECE_SECONDS, GroupPreemption, RoomForGroup, run
from rayched.core.groups.group_rooms import GroupRooms
from rayched.core.groups.group_writes import conditions_words
from rayched.core.groups.membership import GroupState
from rayched.core.groups.search_time import NoRoomInTime, somebody
from rayched.framework.plugin_error import PluginError
from rayched.scheduler.preemption import NEVER, PREEMPT_NEVER, STILL_ENDING
from rayched.store.transactions import TogetherPut

Decided = GroupPlacement | GroupFailure | Clearing
"""What one attempt comes to."""


class RoomStep(enum.Enum):
    """What becomes of a clearing, where it is neither written nor over."""

    LATER = "later"
    AGAIN = "again"
    """The group is worth another attempt at once."""


class MemberNominations(Protocol):
    """Where members wait for room that is made for them: `GroupRooms`, and what stands for it where nothing is written."""

    @property
    def overdue(self) -> Collection[str]:
        """Victims that were to be gone by now, by uid."""

    def lift(self, members: Iterable[PodRecord]) -> dict[str, str]: ...

    def nominate(self, nodes: dict[str, str]) -> None: ...

    def waits_on(self, uid: str, nodes: dict[str, str], priority: int, now: float, /) -> GroupWait | None: ...

    def end_wait(self, uid: str, /) -> None: ...


class GroupAttempts:
    """One attempt for a group."""

    def __init__(
        self,
        cycle: GroupCycle,
        preemption: GroupPreemption,
        nominations: MemberNominations,
        measures: GroupMeasures,
        clock: Callable[[], float],
        others_wait: Callable[[], bool] = somebody,
    ) -> None:
        self._cycle, self._preemption, self._nominations = cycle, preemption, nominations
        self._measures, self._clock, self._others_wait = measures, clock, others_wait

    def decide(self, state: GroupState, began: int, now: float, now_unix: float) -> Decided:
        """One attempt, in one piece. At least one member is free."""
        return run(self.attempt(state, began, now, now_unix, piece=inf))

    def attempt(
        self, state: GroupState, began: int, now: float, now_unix: float, piece: float | None = None
    ) -> Generator[None, None, Decided]:
        """The same in pieces. Where it rests nothing of it is in the snapshot; it goes on with the group as it was, or not."""
        piece = PIECE_SECONDS if piece is None else piece
        asked = self._cycle.question(state, began, now, now_unix)
        nodes = self._nominations.lift(asked.members)
        found = self._cycle.decide(asked)
        if isinstance(found, GroupPlacement):
            left = found.left
            if left is None or not left.failure.rejected or not state.is_gang or not state.satisfied:
                self._nominations.end_wait(state.uid)
                return found
            # A later attempt of a gang: room for all that are left comes before a part of them.
            self._cycle.undo(found)
            whole = yield from self._with_room(replace(asked, needed=len(asked.members)), left, nodes, piece)
            if not isinstance(whole, str):
                return whole
            found = self._cycle.decide(asked)
        if isinstance(found, GroupPlacement) or not found.failure.rejected:
            self._nominations.end_wait(state.uid)
            return found
        made = yield from self._with_room(asked, found, nodes, piece)
        return _because(found, made) if isinstance(made, str) else made

    def _with_room(
        self, asked: GroupQuestion, failure: GroupFailure, nodes: dict[str, str], piece: float
    ) -> Generator[None, None, GroupFailure | Clearing | str]:
        """What becomes of the failed attempt if pods go; a text: why that does not help."""
        state, group = asked.state, asked.state.group
        assert group is not None
        if group.spec.preemption_policy == PREEMPT_NEVER:
            return NEVER
        wait = self._nominations.waits_on(state.uid, nodes, group.spec.priority, asked.now)
        if wait is not None:
            self._nominations.nominate(wait.nodes)
            return replace(_because(failure, STILL_ENDING), nominated=wait.nodes, waits=True)
        searched = self._clock()
        try:
            room = yield from self._in_pieces(asked, nodes, piece)
        except (NoRoomInTime, PluginError) as problem:
            return str(problem)
        if isinstance(room, str):
            self._measures.searched(searched, None)
            return room
        self._measures.searched(searched, len(room.victims), len(room.units), room.rank[0])
        words = f"{len(room.victims)} pods of lower priority have to end for it."
        told = _because(failure, words)
        message = conditions_words(state, told)[1]
        return Clearing(state, state.uid, asked.began, failure, message, room, [*room.units])

    def _in_pieces(self, asked: GroupQuestion, nodes: dict[str, str], piece: float) -> Generator[None, None, RoomForGroup | str]:
        """The search. While it rests members wait with their nominations, as they did before."""
        search = self._preemption.search(asked, self._nominations.overdue, piece=piece, others_wait=self._others_wait)
        try:
            while True:
                try:
                    next(search)
                except StopIteration as end:
                    found: RoomForGroup | str = end.value
                    return found
                self._nominations.nominate(nodes)
                yield
                self._nominations.lift(asked.members)
        finally:
            search.close()


class GroupDecider(GroupAttempts):
    """Attempts for groups, and what follows where room is made."""

    RULE_ROOM_IS_WANTED: ClassVar[bool] = True
    """Broken by tests alone."""

    def __init__(
        self,
        cycle: GroupCycle,
        preemption: GroupPreemption,
        rooms: GroupRooms,
        measures: GroupMeasures,
        clock: Callable[[], float],
        others_wait: Callable[[], bool],
    ) -> None:
        super().__init__(cycle, preemption, rooms, measures, clock, others_wait)
        self._rooms = rooms

    def for_looks(self) -> tuple[GroupCycle, GroupPreemption, MemberNominations]:
        """What a look at a group asks."""
        return self._cycle, self._preemption, self._nominations

    def step(self, clearing: Clearing, epoch: int, now: float, now_unix: float) -> TogetherPut | GroupFailure | RoomStep:
        """The next batch of a clearing, or what it comes to."""
        state = clearing.state
        is_for_nobody = state.hold() is not None or not any(True for _ in self._cycle.free(state))
        if state.group is None or state.group.metadata.uid != clearing.uid or (is_for_nobody and self.RULE_ROOM_IS_WANTED):
            self._rooms.give_up(clearing)
            return RoomStep.AGAIN
        is_first = not clearing.victims
        if clearing.left and not is_for_nobody and (not is_first or self._has_changed(clearing)):
            self._ask_again(clearing, now, now_unix)
            if is_first and not clearing.left:
                self._rooms.give_up(clearing)
                return RoomStep.AGAIN
        written: TogetherPut | str | None = ""
        if clearing.left:
            written = self._rooms.write(clearing, epoch, now_unix)
        if written is None:
            return RoomStep.LATER
        if isinstance(written, TogetherPut):
            return written
        if written and is_first:
            self._rooms.give_up(clearing)
            return _because(clearing.failure, written)
        self._rooms.end(clearing, now)
        return replace(_because(clearing.failure, _ending(clearing)), nominated=clearing.room.nodes, waits=True)

    def _has_changed(self, clearing: Clearing) -> bool:
        """What was decided on is not what is there: while it waits to be written members come and go."""
        return self._rooms.lacks_members(clearing) or self._preemption.have_grown(clearing.left)

    def _ask_again(self, clearing: Clearing, now: float, now_unix: float) -> None:
        """Who of those that were not told to end has to go by now; none, where the group would not fit all the same."""
        asked = self._cycle.question(clearing.state, clearing.began, now, now_unix)
        self._rooms.lift(asked.members)
        left = {victim.uid for unit in clearing.left for victim in unit.victims}
        try:
            room: RoomForGroup | str = self._preemption.room(asked, self._rooms.overdue, left)
        except (NoRoomInTime, PluginError) as problem:
            room = str(problem)
        if isinstance(room, RoomForGroup):
            clearing.room, clearing.left = room, [*room.units]
        else:
            clearing.left = []
        self._rooms.nominate(clearing.room.nodes)


def _because(failure: GroupFailure, why: str) -> GroupFailure:
    """The failure with what stands against making room, or came of it."""
    failed = replace(failure.failure, message=f"{failure.failure.message} preemption: {why}")
    return replace(failure, failure=failed)


def _ending(clearing: Clearing) -> str:
    return f"{len(clearing.victims) + len(clearing.room.leaving)} pods of lower priority end for it."
