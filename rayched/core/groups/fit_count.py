"""How many members of a group find nodes, counted in pieces while the thread decides about others.

Members are placed as an attempt places them, one after the other, so that the next sees what the ones before took. Where a piece
is over and somebody waits all of them are lifted; the next piece puts them where they were and goes on. Who does not fit there
any more, as others have taken the room, is counted anew.

Where to put them back takes half a piece, time and again while others wait, no more are counted: so many fit at least.

Owner: one look. Cost: that of the members' cycles, and about 10 µs for each that is lifted and put back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

from rayched.core.cache.records import PodRecord
from rayched.core.groups.group_cycle import GroupCycle, GroupQuestion
from rayched.core.groups.search_time import NoRoomInTime, SearchTime
from rayched.scheduler.attempt import Attempt, AttemptFailure
from rayched.scheduler.scheduler import Scheduler
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate
from rayched.snapshot.work_budget import AttemptOverBudget

STEP_SECONDS_MIN: Final = 0.001
"""Of the scheduler's time for one member; what a longer step has computed stays, and the next piece goes on with it."""
STEPS_MAX: Final = 16
"""Pieces in which one member is tried."""
PUT_AT_A_STRETCH: Final = 32
LIFT_SECONDS: Final = 0.000005
"""For one member."""
AT_LEAST: Final = "it and those after it were not tried:"


@dataclass(frozen=True, slots=True)
class Fits:
    """What was counted."""

    n_members: int
    next: str = ""
    """The first one that finds no node, or was not tried; namespace/name."""
    reason: str = ""
    """What stands against it; "": all that wait fit, or a plan takes no more."""
    is_error: bool = False
    """None would be bound, as something failed that should not."""
    free_share: float = 0.0
    """What would be left of the domain, from 0 to 1."""


class FitCount:
    """One count. The members hold no room when it begins, and when it is over."""

    def __init__(
        self,
        snapshot: Snapshot,
        scheduler: Scheduler,
        cycle: GroupCycle,
        asked: GroupQuestion,
        time: SearchTime,
        beyond: frozenset[int] | None,
    ) -> None:
        """`time` runs already. `beyond`: rows that are out of the question."""
        self._snapshot, self._scheduler, self._cycle = snapshot, scheduler, cycle
        self._asked, self._time, self._beyond = asked, time, beyond
        self._left = deque(asked.members)
        self._placed: list[tuple[PodRecord, Attempt]] = []
        self._failed: set[PodTemplate] = set()
        self._first: tuple[PodRecord, AttemptFailure] | None = None
        self._why = ""
        """Why no more are tried."""
        self._n_lifted = 0
        """Members that found nodes, and could not be put back on them."""

    def count(self) -> Generator[None, None, Fits]:
        """Where it rests the members hold no room; whoever does not go on closes it. At its end those that fit hold theirs, until
        `lift`. Raises PluginError."""
        room, steps = self._cycle.room(), 0
        try:
            while self._left and not self._why:
                if self._time.is_piece_over and not (yield from self._rest()):
                    break
                member = self._left[0]
                if member.template in self._failed:
                    self._left.popleft()
                    continue
                try:
                    self._time.spend()
                    result = self._try(member)
                except NoRoomInTime:
                    self._why = f"{AT_LEAST} to count them takes more than {self._time.in_all:g} s of the scheduler's time"
                    break
                except AttemptOverBudget:
                    steps += 1
                    if steps == STEPS_MAX:
                        self._why = f"{AT_LEAST} its affinity and topology spread constraints take too long to look at"
                        break
                    yield from self._rest()
                    continue
                steps = 0
                self._left.popleft()
                if isinstance(result, Attempt):
                    self._placed.append((member, result))
                    self._time.kept += LIFT_SECONDS
                    if not room.takes(member, result.node_name, len(self._placed)):
                        self._scheduler.roll_back(self._placed.pop()[1])
                        break
                elif not self._failed_is_tolerable(member, result):
                    return Fits(0, member.name, result.message, is_error=True)
            return self._result()
        except BaseException:
            self.lift()
            raise

    def lift(self) -> None:
        """As if it had never been: nobody else has seen the room taken."""
        n_freed = len(self._scheduler.freed)
        while self._placed:
            self._scheduler.roll_back(self._placed.pop()[1])
        del self._scheduler.freed[n_freed:]

    def _try(self, member: PodRecord) -> Attempt | AttemptFailure:
        allowed = self._time.left_of_piece(STEP_SECONDS_MIN)
        return self._cycle.place_one(member, self._asked, self._beyond, allowed, goes_on=True)

    def _failed_is_tolerable(self, member: PodRecord, failure: AttemptFailure) -> bool:
        self._first = self._first or (member, failure)
        self._failed.add(member.template)
        return failure.rejected

    def _result(self) -> Fits:
        n_members = len(self._placed) + self._n_lifted
        if self._first is not None:
            return Fits(n_members, self._first[0].name, self._first[1].message)
        return Fits(n_members, self._left[0].name if self._left and self._why else "", self._why)

    def _rest(self) -> Generator[None, None, bool]:
        """Lifts the members and puts them back. False: that was in vain too often, as `_why` says, and none holds room."""
        places = [(member, attempt.node_name) for member, attempt in self._placed]
        self.lift()
        is_in_place = False
        while not is_in_place:
            revision = self._snapshot.revision
            self._time.rest()
            yield
            self._time.begin()
            try:
                is_in_place = self._put_back(places, is_as_it_was=self._snapshot.revision == revision)
            except NoRoomInTime:
                self._why, self._n_lifted = f"{AT_LEAST} others have come between each time", len(places)
                self.lift()
                return False
        self._time.resumed()
        return True

    def _put_back(self, places: list[tuple[PodRecord, str]], *, is_as_it_was: bool) -> bool:
        """False: that was in vain, and none holds room. Raises NoRoomInTime where it was so too often."""
        anew = []
        for count, (member, node_name) in enumerate(places, 1):
            result: Attempt | AttemptFailure | None = None
            if is_as_it_was or self._cycle.fits(member, node_name):
                result = self._cycle.put(member, self._asked, node_name)
            if isinstance(result, Attempt):
                self._placed.append((member, result))
            else:
                anew.append(member)
            if not count % PUT_AT_A_STRETCH and self._time.is_in_vain():
                self.lift()
                return False
        self._left.extendleft(reversed(anew))
        return True
