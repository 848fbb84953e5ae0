"""The gate, its limit and the pace of large objects at their bounds: who still passes, and who no longer does."""

from __future__ import annotations

import asyncio

import pytest
from google.rpc.error_details_pb2 import RetryInfo

from rayched.api.kinds import POD, wrap
from rayched.server.admission.attempt_delays import FORGOTTEN_SECONDS, AttemptDelays
from rayched.server.admission.large_objects import (
    BURST_BYTES,
    LARGE_BYTES,
    LATE_SECONDS,
    RATE_FIRST,
    REQUEST_BYTES_MAX,
    STEP_SECONDS,
    WAIT_SECONDS_MAX,
    LargeObjectPace,
    large_part,
)
from rayched.server.admission.write_gate import RETRY_SECONDS, WriteGate
from rayched.server.admission.write_limit import LIMIT_MIN, WriteLimit
from rayched.server.errors import ApiFailure
from rayched.store.codec import encode
from rayched.store.entries import Entry
from rayched.store.keys import Keys
from tests.server.objects import a_pod
from tests.server.test_write_gate import SIZE, Calls, run

KEYS = Keys()


# ------------------------------------------------------------------------------------------------------------- the gate


@pytest.mark.parametrize(("size", "weight"), [(0, 1), (255, 1), (256, 2), (511, 2), (512, 3)])
def test_a_call_weighs_one_and_one_more_for_each_256_bytes(size: int, weight: int) -> None:
    async def play() -> None:
        gate = WriteGate()
        async with gate.passed("Submission.Submit", size):
            assert gate.within == weight
        assert gate.within == 0

    run(play())


def test_a_gate_keeps_the_limit_that_it_is_given() -> None:
    limit = WriteLimit()
    limit.heard(0.0, 0.0, used_up=True)
    assert WriteGate(limit).limit is limit and WriteGate().limit.weight == LIMIT_MIN


def test_a_place_is_given_back_when_a_call_fails() -> None:
    async def play() -> None:
        gate = WriteGate()
        with pytest.raises(LookupError):
            async with gate.passed("Submission.Submit", SIZE):
                raise LookupError
        assert gate.within == 0

    run(play())


def test_a_line_as_long_as_its_limit_is_not_too_long() -> None:
    """Users may wait with twice the limit: 256, of calls that weigh 64 and smaller ones."""

    async def play() -> None:
        calls = Calls()
        for name in "abcde":
            await calls.make(name)
        await calls.make("f", size=256 * 62)
        await calls.make("g", size=1)
        assert calls.gate.waiting == 256 and not calls.refused
        await calls.make("h", size=1)
        assert calls.refused == ["h"]

    run(play())


def test_the_first_in_line_may_weigh_whatever_it_does() -> None:
    async def play() -> None:
        calls = Calls()
        await calls.make("a", size=1)
        await calls.make("large", size=4 << 20)
        assert calls.gate.waiting == LIMIT_MIN and not calls.refused
        await calls.make("other", size=4 << 20)
        assert calls.gate.waiting == 2 * LIMIT_MIN and not calls.refused
        await calls.make("third", size=1)
        assert calls.refused == ["third"]

    run(play())


class Timed:
    """A gate with a clock of its own, full of calls."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls = Calls()
        self.calls.gate = WriteGate(clock=lambda: self.now)

    @property
    def gate(self) -> WriteGate:
        return self.calls.gate


def test_an_answer_in_time_lets_in_who_waits_and_one_without_an_answer_lets_in_nobody() -> None:
    async def play() -> None:
        timed = Timed()
        for name in "abc":
            await timed.calls.make(name)
        assert timed.calls.begun == ["a", "b"]
        timed.gate.answered(0.0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert timed.calls.begun == ["a", "b", "c"] and timed.gate.limit.weight == LIMIT_MIN + 64
        # Nobody waits any more, so no more is wanted.
        timed.now = 1.0
        timed.gate.answered(1.0)
        assert timed.gate.limit.weight == LIMIT_MIN + 64
        timed.gate.unanswered(1.0)
        assert timed.gate.limit.weight == LIMIT_MIN

    run(play())


def test_an_answer_is_late_by_the_gates_clock() -> None:
    async def play() -> None:
        timed = Timed()
        timed.gate.limit.heard(0.0, 0.0, used_up=True)
        timed.now = 5.0
        timed.gate.answered(0.0)
        assert timed.gate.limit.weight < LIMIT_MIN + 64

    run(play())


def delay_of(failure: ApiFailure) -> float:
    (found,) = (detail for detail in failure.details if isinstance(detail, RetryInfo))
    return float(found.retry_delay.ToMilliseconds() / 1000)


@pytest.mark.parametrize(("owed", "delay"), [(WAIT_SECONDS_MAX + 0.1, RETRY_SECONDS), (WAIT_SECONDS_MAX + 2.0, 2.0)])
def test_a_large_object_without_a_turn_is_to_come_again_when_it_would_have_one(owed: float, delay: float) -> None:
    async def play() -> None:
        gate = WriteGate(clock=lambda: 0.0)
        gate.large._changed_at = 0.0
        gate.large.turn(int(BURST_BYTES + owed * RATE_FIRST), 0.0)
        with pytest.raises(ApiFailure) as caught:
            async with gate.passed("Submission.Submit", 10, 10):
                pytest.fail("it has no turn")
        assert delay_of(caught.value) == pytest.approx(delay, abs=0.01) and gate.refused == {"large": 1}

    run(play())


# ------------------------------------------------------------------------------------------------------------ the limit


def test_a_write_that_was_sent_just_at_the_last_change_counts() -> None:
    for answer in (WriteLimit.unanswered, lambda limit, sent, now: limit.heard(sent, now, used_up=False)):
        limit = WriteLimit()
        for _ in range(4):
            limit.heard(5.0, 5.0, used_up=True)
        answer(limit, 4.9, 9.0)
        assert limit.weight == LIMIT_MIN + 256
        answer(limit, 5.0, 9.0)
        assert limit.weight < LIMIT_MIN + 256


@pytest.mark.parametrize(
    ("silence", "allowed"),
    [
        # The first window ends after ten seconds; what was best in it counts for the next one.
        (9.9, 0.11),
        (10.0, 0.11),
        (19.9, 0.11),
        # Another ten seconds without a word: it says nothing any more.
        (20.0, 0.3),
        (30.0, 0.3),
    ],
)
def test_for_how_long_the_best_round_trip_counts(silence: float, allowed: float) -> None:
    limit = WriteLimit()
    limit.heard(-0.01, 0.0, used_up=False)
    limit.heard(silence - 0.2, silence, used_up=False)
    assert limit.seconds_allowed == pytest.approx(allowed)


def test_a_window_is_ten_seconds_from_its_first_answer() -> None:
    limit = WriteLimit()
    for now, seconds, allowed in [
        (0.0, 0.01, 0.11),
        (10.0, 0.05, 0.11),
        (15.0, 0.08, 0.11),
        (20.0, 0.08, 0.15),
        (30.0, 0.2, 0.18),
    ]:
        limit.heard(now - seconds, now, used_up=False)
        assert limit.seconds_allowed == pytest.approx(allowed), now


# ------------------------------------------------------------------------------------------------------------- the pace


def test_what_is_not_used_of_the_rate_is_kept_up_to_a_burst() -> None:
    pace = LargeObjectPace()
    pace.turn(int(BURST_BYTES), 0.0)
    half = BURST_BYTES / 2 / RATE_FIRST
    assert pace.turn(int(BURST_BYTES / 2), half) == 0.0
    # All of it is used up again: one byte more is owed, and waited for by the next.
    assert pace.turn(int(RATE_FIRST), half) == 0.0
    assert pace.turn(0, half) == pytest.approx(1.0)


def test_a_turn_after_just_the_longest_wait_is_taken() -> None:
    pace = LargeObjectPace()
    pace._changed_at = 0.0
    pace.turn(int(BURST_BYTES + WAIT_SECONDS_MAX * RATE_FIRST), 0.0)
    assert pace.turn(int(RATE_FIRST), 0.0) == WAIT_SECONDS_MAX
    assert pace.turn(0, 0.0) == WAIT_SECONDS_MAX + 1.0


@pytest.mark.parametrize(
    ("late", "changed", "grows"), [(0.0, 0.5, False), (0.5, 0.0, False), (0.0, 0.0, True), (0.5, 0.5, False)]
)
def test_the_rate_grows_a_step_after_the_last_change_and_the_last_late_pod(late: float, changed: float, grows: bool) -> None:
    pace = LargeObjectPace()
    pace._late_at, pace._changed_at = late, changed
    pace.turn(int(2 * BURST_BYTES), 0.0)
    pace.turn(0, STEP_SECONDS)
    assert (pace.rate > RATE_FIRST) is grows


def test_the_rate_falls_again_just_a_step_later() -> None:
    pace = LargeObjectPace()
    for now in (0.0, STEP_SECONDS - 0.01, STEP_SECONDS):
        pace.tried(LATE_SECONDS + 0.01, now)
    assert pace.rate == pytest.approx(RATE_FIRST * 0.7 * 0.7)


@pytest.mark.parametrize(
    ("size", "part"),
    [
        (LARGE_BYTES, 0),
        (LARGE_BYTES + 1, 1),
        (REQUEST_BYTES_MAX, REQUEST_BYTES_MAX - LARGE_BYTES),
        (REQUEST_BYTES_MAX + 1, 0),
    ],
)
def test_which_requests_have_a_large_part(size: int, part: int) -> None:
    assert large_part("Submission.Submit", bytes(size)) == part


# --------------------------------------------------------------------------------------------------------- attempts' delays


def a_created(name: str, revision: int = 1) -> Entry:
    value = encode(wrap(a_pod(name, namespace="default")))
    return Entry(KEYS.object_key(POD, "default", name), value, revision, revision)


@pytest.mark.parametrize(("after", "is_told"), [(FORGOTTEN_SECONDS - 0.1, True), (FORGOTTEN_SECONDS, False)])
def test_how_long_a_pod_that_nobody_tries_is_remembered(after: float, is_told: bool) -> None:
    now, told = [0.0], []
    delays = AttemptDelays(KEYS.prefix(POD), lambda seconds, at: told.append((seconds, at)), lambda: now[0])
    delays.changed([a_created("a")])
    now[0] = after
    delays.changed([a_created("b")])
    delays.changed([a_created("a")._replace(mod_revision=2)])
    assert told == ([(after, after)] if is_told else [])


@pytest.mark.parametrize(("missing", "is_sample"), [(0, True), (1, False)])
def test_a_pod_of_just_the_large_size_is_a_sample(missing: int, is_sample: bool) -> None:
    told: list[float] = []
    delays = AttemptDelays(KEYS.prefix(POD), lambda seconds, _: told.append(seconds), lambda: 0.0)
    pod = a_pod("a", namespace="default")
    pod.metadata.annotations["text"] = "x" * (LARGE_BYTES - 300)
    pod.metadata.annotations["text"] += "x" * (LARGE_BYTES + missing - len(encode(wrap(pod))))
    entry = Entry(KEYS.object_key(POD, "default", "a"), encode(wrap(pod)), 1, 1)
    assert len(entry.value) == LARGE_BYTES + missing
    delays.changed([entry, entry._replace(mod_revision=2)])
    assert told == ([0.0] if is_sample else [])
