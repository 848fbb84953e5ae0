"""Who is served next: levels with weights, in each level a line for each caller, and turns by deficit round robin. Pure.

    caller a ──▶ ▮▮▮ ─┐
    caller b ──▶ ▮ ───┼─▶ level "write" ──▶ its seats ─┐
    caller c ──▶ ▮▮ ──┘                                ├─▶ at most SEATS in all
    caller a ──▶ ▮ ──────▶ level "read" ───▶ its seats ┘

A call has seats while it is worked on: one, and more where it is large. Half of a level's seats is its own, whatever others hold;
the other half is lent while the level does not use it. A seat that comes free goes first to the level that uses the least of its
share, so that levels which all want more have what their weights say.

Within a level each caller has a line, first come first served. The callers whose lines are not empty have their turns in a ring:
a turn adds QUANTUM seats to what a caller may take, and it takes as long as that lasts. So callers get equal numbers of seats
however many calls they make, and however large these are. What a call turns out to cost beyond what it was let in with is its
caller's debt, for as long as the caller has anything here.

Beyond `flows_max` callers in a level the new ones share HASHED lines: each has a hand of some of them, always the same, and
joins the shortest. A caller that floods spoils its own hand, and hardly ever all of another's.

A call waits at most a quarter of its time, and WAIT_SECONDS_MAX (`patience`). Whoever carries the queues takes it out then and
refuses it, as one that finds its line full. Source: API Priority and Fairness of Kubernetes; deficit round robin of Shreedhar and
Varghese, 1996.

Owner: one thread. Cost: a dictionary look-up a call where nobody waits; a walk over the levels where somebody does.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class PriorityLevel(Enum):
    """What kind of call it is; the names are those of the metrics."""

    EXEMPT = "exempt"
    """Needs no seat."""
    NODE = "node"
    WRITE = "write"
    WATCH = "watch"
    READ = "read"
    CATCH_ALL = "catch-all"


WEIGHTS: Final[Mapping[PriorityLevel, int]] = {
    PriorityLevel.NODE: 40,
    PriorityLevel.WRITE: 40,
    PriorityLevel.WATCH: 10,
    PriorityLevel.READ: 30,
    PriorityLevel.CATCH_ALL: 5,
}
SEATS: Final = 64
COST_MAX: Final = 10
"""Seats that one call counts for at most."""
QUANTUM: Final = 2
WAIT_SECONDS_MAX: Final = 2.5
_PART_OF_DEADLINE: Final = 0.25
HASHED: Final = 128
HAND: Final = 6
_RETRY_SECONDS_MAX: Final = 5.0
_SHARES_A_SECOND: Final = 8


class LineFull(Exception):
    """The caller has as many calls waiting as it may."""


@dataclass(slots=True, eq=False)
class SeatRequest:
    """One call: what it costs, and whether it has its seats."""

    level: PriorityLevel
    flow: _Flow
    cost: int
    is_seated: bool = False


@dataclass(slots=True, eq=False)
class _Flow:
    """One caller in one level."""

    name: str
    waiting: deque[SeatRequest] = field(default_factory=deque)
    deficit: int = 0
    """What it may still take in this turn; below 0: what it owes."""
    seated: int = 0
    """Calls that have seats."""


@dataclass(slots=True, eq=False)
class _LevelState:
    share: int
    """Its seats where all levels want more."""
    used: int = 0
    waiting: int = 0
    flows: dict[str, _Flow] = field(default_factory=dict)
    ring: deque[_Flow] = field(default_factory=deque)
    """Those with somebody waiting."""

    @property
    def own(self) -> int:
        """Seats that are never lent."""
        return (self.share + 1) // 2


def cost_of(size: int, objects: int = 0) -> int:
    """Seats of a call with a request of so many bytes, or an answer of so many objects."""
    return min(COST_MAX, 1 + max(size // (64 << 10), objects // 100))


def patience(deadline_seconds: float) -> float:
    """How long a call that has so much time may wait for seats, in seconds."""
    return min(deadline_seconds * _PART_OF_DEADLINE, WAIT_SECONDS_MAX)


class FairQueues:
    """All levels of one replica."""

    def __init__(self, seats: int = SEATS, flows_max: int = 1_024, weights: Mapping[PriorityLevel, int] = WEIGHTS) -> None:
        self._seats = seats
        self._flows_max = flows_max
        self._levels = {level: _LevelState(share) for level, share in _shares(seats, weights).items()}

    def used(self, level: PriorityLevel) -> int:
        return self._levels[level].used

    def waiting(self, level: PriorityLevel) -> int:
        """Calls."""
        return self._levels[level].waiting

    def share(self, level: PriorityLevel) -> int:
        return self._levels[level].share

    def retry_seconds(self, level: PriorityLevel) -> float:
        """After which a refused call may be made again: a second for each eight times that the level's share is asked for."""
        state = self._levels[level]
        return min(_RETRY_SECONDS_MAX, max(1.0, (state.used + state.waiting) / (_SHARES_A_SECOND * state.share)))

    def ask(self, level: PriorityLevel, caller: str, cost: int, line_max: int) -> SeatRequest:
        """Seats for a call, at once or later: see `is_seated`. Raises LineFull."""
        state = self._levels[level]
        flow = self._flow(state, caller)
        request = SeatRequest(level, flow, cost)
        if not state.ring and self._has_room(state, cost) and not self._overtakes(state, cost):
            self._seat(state, request)
            return request
        if len(flow.waiting) >= line_max:
            self._forget(state, flow)
            raise LineFull
        if not flow.waiting:
            state.ring.append(flow)
        flow.waiting.append(request)
        state.waiting += 1
        return request

    def grow(self, request: SeatRequest, cost: int) -> None:
        """It turned out to cost more. It keeps its seats; those who come later wait for what it took."""
        more = cost - request.cost
        if more > 0:
            request.cost = cost
            self._levels[request.level].used += more
            request.flow.deficit -= more

    def give_back(self, request: SeatRequest) -> list[SeatRequest]:
        """A call is over, seated or waiting. Those who have seats now."""
        state, flow = self._levels[request.level], request.flow
        if request.is_seated:
            state.used -= request.cost
            flow.seated -= 1
            request.is_seated = False
        else:
            flow.waiting.remove(request)
            state.waiting -= 1
            if not flow.waiting:
                state.ring.remove(flow)
        self._forget(state, flow)
        return self._dispatch()

    def _dispatch(self) -> list[SeatRequest]:
        """Seats for all for whom there are some, the level with the least of its share first."""
        seated: list[SeatRequest] = []
        hungry = [state for state in self._levels.values() if state.ring]
        while hungry:
            state = min(hungry, key=lambda one: one.used / one.share)
            found = self._next(state)
            if found is None:
                hungry.remove(state)
                continue
            seated.append(found)
            if not state.ring:
                hungry.remove(state)
        return seated

    def _next(self, state: _LevelState) -> SeatRequest | None:
        """The turn of one call; None: there is no room for it, and it is not overtaken."""
        while True:
            flow = state.ring[0]
            first = flow.waiting[0]
            if flow.deficit < first.cost:
                flow.deficit += QUANTUM
                state.ring.rotate(-1)
                continue
            if not self._has_room(state, first.cost):
                return None
            flow.waiting.popleft()
            state.waiting -= 1
            flow.deficit -= first.cost
            if not flow.waiting:
                state.ring.popleft()
                # Turns are not saved up.
                flow.deficit = min(flow.deficit, 0)
            self._seat(state, first)
            return first

    def _seat(self, state: _LevelState, request: SeatRequest) -> None:
        request.is_seated = True
        request.flow.seated += 1
        state.used += request.cost

    def _has_room(self, state: _LevelState, cost: int) -> bool:
        # What costs more than the level has goes alone.
        if not state.used or state.used + cost <= state.own:
            return True
        others = [one for one in self._levels.values() if one is not state]
        kept = sum(max(one.used, one.own) for one in others)
        return state.used + cost + kept <= self._seats

    def _overtakes(self, state: _LevelState, cost: int) -> bool:
        """It would borrow while a level waits that uses less of its share."""
        if state.used + cost <= state.own:
            return False
        return any(one.ring and one.used * state.share < state.used * one.share for one in self._levels.values())

    def _flow(self, state: _LevelState, caller: str) -> _Flow:
        flow = state.flows.get(caller)
        if flow is None and len(state.flows) >= self._flows_max:
            hand = [state.flows.setdefault(name, _Flow(name)) for name in _hand(caller)]
            flow = min(hand, key=lambda one: len(one.waiting) + one.seated)
            for one in hand:
                if one is not flow:
                    self._forget(state, one)
        elif flow is None:
            flow = state.flows[caller] = _Flow(caller)
        return flow

    def _forget(self, state: _LevelState, flow: _Flow) -> None:
        if not flow.waiting and not flow.seated:
            state.flows.pop(flow.name, None)


def _hand(caller: str) -> Iterable[str]:
    """The names of its lines; no caller has one of these."""
    digest = hashlib.blake2b(caller.encode(), digest_size=2 * HAND).digest()
    return dict.fromkeys(f"\0{int.from_bytes(digest[i : i + 2]) % HASHED}" for i in range(0, 2 * HAND, 2))


def _shares(seats: int, weights: Mapping[PriorityLevel, int]) -> dict[PriorityLevel, int]:
    """Whole seats by weight, at least one each; what rounding leaves goes to the largest remainders."""
    total = sum(weights.values())
    exact = {level: seats * weight / total for level, weight in weights.items()}
    shares = {level: max(1, math.floor(part)) for level, part in exact.items()}
    by_remainder = sorted(exact, key=lambda level: shares[level] - exact[level])
    for level in by_remainder[: max(0, seats - sum(shares.values()))]:
        shares[level] += 1
    return shares
