"""The limit on writes under way: replicas that share one etcd in simulated time, and the rules one by one."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rayched.server.admission.write_limit import LIMIT_MAX, LIMIT_MIN, WriteLimit

BATCH = 64
"""The weight of a write."""


class SharedEtcd:
    """One server that applies a write after the other; `replicas` limits before it, and always more to write than may be."""

    def __init__(self, replicas: int, seconds_a_write: Callable[[float], float], round_trip: float, seed: int) -> None:
        self.limits = [WriteLimit() for _ in range(replicas)]
        self.under_way = [0] * replicas
        self.latencies: list[tuple[float, float]] = []
        """When an answer came and how long it took."""
        self._seconds = seconds_a_write
        self._round_trip = round_trip
        self._random = random.Random(seed)
        self._busy_until = 0.0
        self._answers: list[tuple[float, int, int, float]] = []
        self._number = itertools.count()
        self.now = 0.0

    def run(self, seconds: float) -> SharedEtcd:
        until = self.now + seconds
        self._send()
        while self._answers and self._answers[0][0] <= until:
            self.now, _, replica, sent = heapq.heappop(self._answers)
            self.under_way[replica] -= BATCH
            self.latencies.append((self.now, self.now - sent))
            self.limits[replica].heard(sent, self.now, used_up=True)
            self._send()
        self.now = until
        return self

    def since(self, moment: float) -> list[float]:
        return sorted(latency for when, latency in self.latencies if when >= moment)

    def _send(self) -> None:
        for replica, limit in enumerate(self.limits):
            while not self.under_way[replica] or self.under_way[replica] + BATCH <= limit.weight:
                self.under_way[replica] += BATCH
                work = self._seconds(self.now) * self._random.uniform(0.7, 1.3)
                self._busy_until = max(self._busy_until, self.now) + work
                heapq.heappush(self._answers, (self._busy_until + self._round_trip, next(self._number), replica, self.now))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.floats(0.001, 0.06), st.floats(0.0, 0.05), st.integers(0, 2**32))
@example(1, 0.001, 0.03125, 0)
def test_etcd_is_kept_busy_and_its_line_short(replicas: int, work: float, round_trip: float, seed: int) -> None:
    etcd = SharedEtcd(replicas, lambda _: work, round_trip, seed).run(60.0)
    latencies = etcd.since(20.0)
    least = 2 * replicas * work  # two writes each, as LIMIT_MIN has it
    one_more_each = (replicas + 1) * work * 1.3
    assert latencies[len(latencies) * 95 // 100] <= max(least, 0.35) + one_more_each + round_trip
    # The server works most of the time, where as many writes at once as are let through can keep it busy.
    most = min(1.0 / work, replicas * (LIMIT_MAX // BATCH) / (round_trip + work))
    assert len(latencies) >= 0.7 * most * 40.0
    assert all(LIMIT_MIN <= limit.weight <= LIMIT_MAX for limit in etcd.limits)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.integers(0, 2**32))
def test_an_etcd_that_becomes_ten_times_slower_has_a_short_line_again_within_seconds(replicas: int, seed: int) -> None:
    etcd = SharedEtcd(replicas, lambda now: 0.002 if now < 20.0 else 0.02, 0.002, seed).run(40.0)
    latencies = etcd.since(25.0)
    assert latencies[len(latencies) * 95 // 100] <= 0.5


def test_without_a_limit_the_line_would_be_as_long_as_what_there_is_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WriteLimit, "heard", lambda limit, *_, **__: setattr(limit, "weight", 40_000.0))
    etcd = SharedEtcd(3, lambda _: 0.01, 0.002, 1).run(60.0)
    assert etcd.since(40.0)[0] > 2.0, "else the tests above would show nothing"


def test_answers_in_time_raise_the_limit_only_where_more_is_wanted() -> None:
    limit = WriteLimit()
    for number in range(10):
        limit.heard(number, number + 0.01, used_up=False)
    assert limit.weight == LIMIT_MIN
    for number in range(100):
        limit.heard(10 + number, 10 + number + 0.01, used_up=True)
    assert limit.weight == LIMIT_MAX


def test_only_writes_sent_after_the_last_change_change_it_again() -> None:
    limit = WriteLimit()
    for number in range(100):
        limit.heard(number, number + 0.01, used_up=True)
    for _ in range(50):
        limit.heard(100.0, 101.0, used_up=True)
    assert limit.weight == LIMIT_MAX * 0.7, "fifty that were under way together count once"
    limit.heard(101.0, 102.0, used_up=True)
    assert limit.weight == pytest.approx(LIMIT_MAX * 0.49)


def test_writes_without_an_answer_halve_it() -> None:
    limit = WriteLimit()
    for number in range(100):
        limit.heard(number, number + 0.01, used_up=True)
    limit.unanswered(100.0, 102.0)
    limit.unanswered(100.0, 102.0)
    assert limit.weight == LIMIT_MAX / 2
    limit.unanswered(102.0, 103.0)
    assert limit.weight == LIMIT_MAX / 4, "this one was sent under the new limit"


def test_what_is_soon_is_learnt_anew_and_is_a_quarter_of_a_second_at_most() -> None:
    limit = WriteLimit()
    limit.heard(0.0, 0.01, used_up=False)
    assert limit.seconds_allowed == pytest.approx(0.11)
    for second in range(1, 25):
        limit.heard(second, second + 0.15, used_up=False)
    assert limit.seconds_allowed == pytest.approx(0.25), "the round trip of 10 ms was too long ago"
    for second in range(25, 60):
        limit.heard(second, second + 0.9, used_up=False)
    assert limit.seconds_allowed == pytest.approx(0.35)


def raised() -> WriteLimit:
    """Twice the least, by answers that took no time at all."""
    limit = WriteLimit()
    for _ in range(2):
        limit.heard(0.0, 0.0, used_up=True)
    assert limit.weight == 2 * LIMIT_MIN
    return limit


def test_an_answer_that_takes_exactly_what_is_allowed_is_in_time() -> None:
    limit = raised()
    limit.heard(0.0, limit.seconds_allowed, used_up=False)
    assert limit.weight == 2 * LIMIT_MIN
    limit.heard(0.0, 0.101, used_up=False)
    assert limit.weight < 2 * LIMIT_MIN


def test_after_a_long_silence_what_was_soon_before_says_nothing() -> None:
    for silence, is_late in ((15.0, True), (25.0, False)):
        limit = raised()
        limit.heard(silence, silence + 0.2, used_up=False)
        assert (limit.weight < 2 * LIMIT_MIN) is is_late, silence
