"""Who is served next: nobody starves, callers and levels get their shares, whatever they send."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayched.server.edge.fairness import (
    COST_MAX,
    HASHED,
    QUANTUM,
    SEATS,
    WAIT_SECONDS_MAX,
    WEIGHTS,
    FairQueues,
    LineFull,
    PriorityLevel,
    SeatRequest,
    cost_of,
    patience,
)
from tests.sampling import part_of

LEVELS = tuple(WEIGHTS)
MANY = 1 << 20


class Played:
    """Queues whose calls all take one step once they have seats."""

    def __init__(self, queues: FairQueues | None = None) -> None:
        self.queues = queues or FairQueues()
        self.seated: list[SeatRequest] = []
        self.waiting: list[SeatRequest] = []
        self.served: Counter[tuple[PriorityLevel, str]] = Counter()
        """Seats, by level and caller."""
        self.callers: dict[SeatRequest, str] = {}

    def ask(self, level: PriorityLevel, caller: str, cost: int = 1, line_max: int = MANY) -> SeatRequest:
        request = self.queues.ask(level, caller, cost, line_max)
        self.callers[request] = caller
        (self.seated if request.is_seated else self.waiting).append(request)
        self._note([request] if request.is_seated else [])
        return request

    def end(self, request: SeatRequest) -> None:
        (self.seated if request.is_seated else self.waiting).remove(request)
        found = self.queues.give_back(request)
        for one in found:
            self.waiting.remove(one)
        self.seated += found
        self._note(found)

    def step(self) -> None:
        """Those that have seats now end."""
        for request in list(self.seated):
            self.end(request)

    def _note(self, requests: Iterable[SeatRequest]) -> None:
        for request in requests:
            self.served[request.level, self.callers[request]] += request.cost


def test_levels_have_seats_by_their_weights_and_each_at_least_one() -> None:
    queues = FairQueues()
    assert {level.value: queues.share(level) for level in LEVELS} == {
        "node": 21,
        "write": 20,
        "watch": 5,
        "read": 15,
        "catch-all": 3,
    }
    assert sum(queues.share(level) for level in LEVELS) == SEATS
    assert all(FairQueues(seats=8).share(level) >= 1 for level in LEVELS)


def test_a_level_borrows_what_others_leave_but_for_their_own_half() -> None:
    played = Played()
    for _ in range(200):
        played.ask(PriorityLevel.WRITE, "a")
    assert played.queues.used(PriorityLevel.WRITE) == SEATS - 11 - 3 - 8 - 2
    # Whoever comes then finds its level's own half at once, and no more.
    for level, own in ((PriorityLevel.NODE, 11), (PriorityLevel.READ, 8), (PriorityLevel.WATCH, 3), (PriorityLevel.CATCH_ALL, 2)):
        for number in range(20):
            assert played.ask(level, "b").is_seated == (number < own), (level, number)


def test_what_was_lent_comes_back_until_all_have_their_shares() -> None:
    played = Played()
    for level in (PriorityLevel.WRITE, *LEVELS):
        for _ in range(200):
            played.ask(level, "a")
    for _ in range(60):
        played.end(next(one for one in played.seated if one.level is PriorityLevel.WRITE))
        for level in LEVELS:
            played.ask(level, "a")
    used = {level: played.queues.used(level) for level in LEVELS}
    assert all(abs(used[level] - played.queues.share(level)) <= 1 for level in LEVELS), used


@pytest.mark.sampled
@settings(max_examples=part_of(60), deadline=None)
@given(costs=st.lists(st.integers(1, COST_MAX), min_size=2, max_size=6), steps=st.integers(20, 60))
def test_callers_who_always_want_more_get_equal_seats_however_large_their_calls_are(costs: list[int], steps: int) -> None:
    played = Played(FairQueues(seats=16))
    for _ in range(steps):
        for number, cost in enumerate(costs):
            for _ in range(2 * 16 // cost + 1):
                played.ask(PriorityLevel.WRITE, str(number), cost)
        played.step()
    found = [played.served[PriorityLevel.WRITE, str(number)] for number in range(len(costs))]
    # What the first ones got before anybody waited, and what a turn may differ by.
    assert max(found) - min(found) <= 16 + QUANTUM + 2 * COST_MAX, (costs, found)


@pytest.mark.sampled
@settings(max_examples=part_of(60), deadline=None)
@given(st.data())
def test_nobody_starves_beside_callers_who_flood(data: st.DataObject) -> None:
    """A call is served within as many turns as there are callers, each as long as its dearest call needs."""
    level = data.draw(st.sampled_from(LEVELS))
    n_floods = data.draw(st.integers(1, 8))
    cost = data.draw(st.integers(1, COST_MAX))
    played = Played()
    for _ in range(100):
        for number in range(n_floods):
            played.ask(level, f"flood-{number}", data.draw(st.just(COST_MAX)))
    mine = played.ask(level, "quiet", cost)
    before = sum(played.served.values())
    steps = 0
    while not mine.is_seated:
        played.step()
        steps += 1
        assert steps < 500
    between = sum(played.served.values()) - before
    assert between <= (n_floods + 1) * (cost + QUANTUM + COST_MAX) + SEATS


@pytest.mark.sampled
@settings(max_examples=part_of(100), deadline=None)
@given(st.data())
def test_seats_are_conserved_and_bounded_whatever_happens(data: st.DataObject) -> None:
    played = Played(FairQueues(flows_max=4))
    callers = [f"caller-{number}" for number in range(8)]
    for _ in range(data.draw(st.integers(1, 120))):
        action = data.draw(st.sampled_from(["ask", "ask", "ask", "end", "give up", "grow"]))
        if action == "ask":
            level, caller = data.draw(st.sampled_from(LEVELS)), data.draw(st.sampled_from(callers))
            try:
                played.ask(level, caller, data.draw(st.integers(1, COST_MAX)), line_max=5)
            except LineFull:
                assert played.queues.waiting(level) >= 5
        elif action == "end" and played.seated:
            played.end(data.draw(st.sampled_from(played.seated)))
        elif action == "give up" and played.waiting:
            played.end(data.draw(st.sampled_from(played.waiting)))
        elif action == "grow" and played.seated:
            played.queues.grow(data.draw(st.sampled_from(played.seated)), COST_MAX)
        used: dict[PriorityLevel, int] = defaultdict(int)
        waiting: dict[PriorityLevel, int] = defaultdict(int)
        for one in played.seated:
            used[one.level] += one.cost
        for one in played.waiting:
            waiting[one.level] += 1
        for level in LEVELS:
            assert played.queues.used(level) == used[level]
            assert played.queues.waiting(level) == waiting[level]
            # Where somebody waits, the level is at work.
            assert used[level] or not waiting[level], level
    for one in [*played.waiting, *played.seated]:
        played.end(one)
    while played.seated:
        played.step()
    assert all(played.queues.used(level) == played.queues.waiting(level) == 0 for level in LEVELS)
    assert all(not state.flows and not state.ring for state in played.queues._levels.values()), "nothing is remembered"


@pytest.mark.row("B95")
def test_a_caller_that_calls_ten_times_as_often_delays_another_by_a_turn_and_no_more() -> None:
    """B95, in seats: others wait for the calls under way, not for the line of the one that floods."""
    played = Played()
    for _ in range(500):
        played.ask(PriorityLevel.READ, "flood")
    played.step()
    mine = played.ask(PriorityLevel.READ, "quiet")
    played.step()
    assert mine.is_seated


def latencies(seconds: float, floods: int) -> list[float]:
    """Of calls of five callers, 100 a second each, that last 5 ms; beside others who make 20,000 a second together. In simulated
    time; what is not seated in time is refused."""
    queues, served = FairQueues(), list[float]()
    begun: dict[SeatRequest, tuple[float, bool]] = {}
    happens: list[tuple[float, int, str, Any]] = []
    numbers = itertools.count()

    def later(at: float, what: str, whom: Any) -> None:
        heapq.heappush(happens, (at, next(numbers), what, whom))

    def seated(requests: Iterable[SeatRequest], now: float) -> None:
        for one in requests:
            later(now + 0.005, "end", one)

    for number in range(int(seconds * 100)):
        for caller in range(5):
            later(number * 0.01 + caller * 0.0017, "call", f"quiet-{caller}")
    for number in range(int(seconds * 20_000) if floods else 0):
        later(number * 0.00005, "call", f"flood-{number % floods}")
    while happens:
        now, _, what, whom = heapq.heappop(happens)
        if what == "call":
            try:
                request = queues.ask(PriorityLevel.READ, whom, 1, line_max=50)
            except LineFull:
                assert whom.startswith("flood")
                continue
            begun[request] = now, whom.startswith("quiet")
            if request.is_seated:
                seated([request], now)
            else:
                later(now + WAIT_SECONDS_MAX, "late", request)
        elif what == "end":
            at, is_quiet = begun.pop(whom)
            served += [now - at] if is_quiet else []
            seated(queues.give_back(whom), now)
        elif not whom.is_seated and whom in begun:
            begun.pop(whom)
            queues.give_back(whom)
    return sorted(served)


@pytest.mark.parametrize("floods", [1, 3])
@pytest.mark.row("B95")
def test_others_take_twice_as_long_at_most_while_some_flood(floods: int) -> None:
    """B95's rule, in simulated time."""
    alone, beside = latencies(2.0, 0), latencies(2.0, floods)
    assert len(alone) == len(beside) == 1_000, "nobody else is refused"
    assert beside[989] <= 2 * alone[989]


def test_what_a_call_turns_out_to_cost_is_its_callers_debt() -> None:
    played = Played(FairQueues(seats=8, weights={PriorityLevel.READ: 1}))
    cheap = dear = 0
    for _ in range(200):
        while sum(1 for one in played.waiting if played.callers[one] == "cheap") < 10:
            played.ask(PriorityLevel.READ, "cheap")
        while sum(1 for one in played.waiting if played.callers[one] == "dear") < 10:
            played.ask(PriorityLevel.READ, "dear")
        for one in list(played.seated):
            if played.callers[one] == "dear":
                played.queues.grow(one, 5)
                dear += 1
            else:
                cheap += 1
            played.end(one)
    assert 3.5 < cheap / dear < 6.5, (cheap, dear)


def test_a_full_line_refuses_its_caller_alone() -> None:
    played = Played()
    for _ in range(64 + 50):
        try:
            played.ask(PriorityLevel.CATCH_ALL, "a", line_max=50)
        except LineFull:
            break
    with pytest.raises(LineFull):
        played.ask(PriorityLevel.CATCH_ALL, "a", line_max=50)
    assert not played.ask(PriorityLevel.CATCH_ALL, "b", line_max=50).is_seated
    assert played.queues.waiting(PriorityLevel.CATCH_ALL) == 51


def test_beyond_a_number_of_callers_new_ones_share_lines_and_floods_spare_almost_all_others() -> None:
    played = Played(FairQueues(flows_max=1))
    played.ask(PriorityLevel.READ, "first")
    for number in range(10 * 300):
        played.ask(PriorityLevel.READ, f"flood-{number % 10}")
    behind_floods = 0
    for number in range(400):
        mine = played.ask(PriorityLevel.READ, f"other-{number}")
        behind_floods += any(played.callers[one].startswith("flood") for one in mine.flow.waiting)
    assert len(played.queues._levels[PriorityLevel.READ].flows) <= 1 + HASHED
    # With one line each instead of a hand, ten floods would have ten of 128 lines, and every thirteenth behind them.
    assert behind_floods <= 400 * 0.03


def test_a_refused_call_is_told_to_come_back_the_later_the_more_is_asked_for() -> None:
    played = Played()
    assert played.queues.retry_seconds(PriorityLevel.READ) == 1.0
    for _ in range(300):
        played.ask(PriorityLevel.READ, "a")
    assert played.queues.retry_seconds(PriorityLevel.READ) == 2.5
    for _ in range(1_000):
        played.ask(PriorityLevel.READ, "a")
    assert played.queues.retry_seconds(PriorityLevel.READ) == 5.0


@pytest.mark.parametrize(
    ("size", "objects", "cost"), [(0, 0, 1), (65_535, 0, 1), (65_536, 0, 2), (1 << 20, 0, 10), (0, 99, 1), (0, 500, 6)]
)
def test_a_call_costs_by_its_request_and_its_page(size: int, objects: int, cost: int) -> None:
    assert cost_of(size, objects) == cost


def test_a_call_waits_for_a_quarter_of_its_time_and_never_long() -> None:
    assert patience(4.0) == 1.0
    assert patience(30.0) == WAIT_SECONDS_MAX == 2.5
