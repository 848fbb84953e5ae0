"""Attempts for groups that rest between two pieces, as the search for victims takes long (ADR 58).

Such a group is in flight. Its attempt goes on when no pod is in the hand, and else with a quarter of the time, one piece at a
time; of several the one that rests longest. While nobody waits for the thread a piece is longer (`search_time`). It goes on while
the group is as it was when the attempt began: its spec, how many members count, and those that are to be placed. Otherwise it
comes to nothing, and the group is tried again.

No I/O. Owner: PodGroups. Cost: 1 µs a member for each piece.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

from rayched.core.groups.deciding import Decided
from rayched.core.groups.group_cycle import GroupCycle
from rayched.core.groups.membership import GroupState

OTHERS_SHARE: Final = 3.0
"""While pods are in the hand others have so many times what a piece took."""

Standing = tuple[str, bytes, int, dict[str, int]]


@dataclass(frozen=True, slots=True, eq=False)
class PausedAttempt:
    """An attempt that has begun."""

    state: GroupState
    uid: str
    began: int
    pieces: Generator[None, None, Decided]
    standing: Standing
    """What it was about."""


class PausedAttempts:
    """Those that rest. Times in seconds of the core's clock."""

    def __init__(self, cycle: GroupCycle, others_wait: Callable[[], bool]) -> None:
        self._cycle, self._others_wait = cycle, others_wait
        self._is_pressed = True
        """Others wait for the piece that runs to end."""
        self._waiting: deque[PausedAttempt] = deque()
        self._due = 0.0
        """When others have had their share."""

    def __len__(self) -> int:
        return len(self._waiting)

    def standing(self, state: GroupState) -> Standing:
        """What an attempt for the group depends on."""
        group = state.group
        uid, spec = ("", b"") if group is None else (group.metadata.uid, group.spec.SerializeToString(deterministic=True))
        return uid, spec, state.satisfied, {one.uid: one.template.id for one in self._cycle.free(state)}

    def is_as_it_was(self, paused: PausedAttempt) -> bool:
        return self.standing(paused.state) == paused.standing

    def add(self, paused: PausedAttempt) -> None:
        self._waiting.append(paused)

    def others_wait(self) -> bool:
        """Whether a piece is to end as soon as its time is over."""
        return self._is_pressed or self._others_wait()

    def take(self, now: float, *, in_hand: bool, has_decided: bool) -> PausedAttempt | None:
        """The next one, if it is its turn. `has_decided`: placements wait to be sent."""
        if not self._waiting or (in_hand and now < self._due):
            return None
        self._is_pressed = in_hand or has_decided
        return self._waiting.popleft()

    def took(self, began: float, ended: float) -> None:
        """A piece ran."""
        self._is_pressed = True
        self._due = ended + OTHERS_SHARE * (ended - began)

    def stop(self) -> None:
        """The term is over, or the queue begins anew: nothing goes on."""
        while self._waiting:
            self._waiting.pop().pieces.close()
