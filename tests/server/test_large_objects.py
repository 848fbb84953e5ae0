"""The pace of large objects: who goes at once, who waits, who is to come again, and how the rate follows the cluster."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from rayched.server.admission.large_objects import (
    BURST_BYTES,
    LARGE_BYTES,
    LATE_SECONDS,
    RATE_FIRST,
    RATE_MIN,
    STEP_SECONDS,
    WAIT_SECONDS_MAX,
    LargeObjectPace,
    large_part,
)
from rayched.server.admission.write_gate import WriteGate
from rayched.server.errors import ApiFailure
from rayched.v1.core_pb2 import Pod
from rayched.v1.services_pb2 import SubmitManyRequest, SubmitRequest
from rayched.v1.workloads_pb2 import Object
from tests.server.objects import a_pod

KIB = 1 << 10


def a_pod_of(size: int) -> Pod:
    """Some bytes more."""
    pod = a_pod("large")
    pod.metadata.annotations["text"] = "x" * size
    return pod


def test_only_what_objects_have_beyond_two_kib_each_is_counted() -> None:
    small, large = Object(pod=a_pod_of(1_000)), Object(pod=a_pod_of(10_000))
    excess = large.ByteSize() - LARGE_BYTES
    for objects, want in [([], 0), ([small] * 100, 0), ([small, large], excess), ([large] * 3, 3 * excess)]:
        assert large_part("Submission.SubmitMany", SubmitManyRequest(objects=objects).SerializeToString()) == want
    request = SubmitRequest(object=large).SerializeToString()
    assert large_part("Submission.Submit", request) == len(request) - LARGE_BYTES
    assert large_part("Submission.Submit", SubmitRequest(object=small).SerializeToString()) == 0
    # Such a request is refused whatever comes beside it.
    assert large_part("Submission.SubmitMany", SubmitManyRequest(objects=[large] * 110).SerializeToString()) == 0
    # What is no request counts as one object; the handler refuses it.
    assert large_part("Submission.SubmitMany", b"\xff" * 5_000) == 5_000 - LARGE_BYTES


def test_a_burst_goes_at_once_and_the_next_wait_for_their_turn_in_order() -> None:
    pace = LargeObjectPace()
    batch = int(BURST_BYTES / 2)
    assert [pace.turn(batch, 0.0) for _ in range(2)] == [0.0, 0.0]
    assert pace.turn(int(RATE_FIRST / 4), 0.0) == 0.0, "nothing is owed yet"
    rate = pace.rate
    assert pace.turn(int(rate / 2), 0.0) == pytest.approx(RATE_FIRST / 4 / rate)
    assert pace.turn(1, 0.0) > pace.turn(1, 0.5) > 0.0
    assert pace.turn(1, 60.0) == 0.0


def test_who_would_wait_too_long_has_no_turn_and_takes_none() -> None:
    pace = LargeObjectPace()
    pace.turn(int(BURST_BYTES), 0.0)
    pace.turn(int(4 * RATE_FIRST), 0.0)
    first = pace.turn(int(BURST_BYTES), 0.0)
    assert first > WAIT_SECONDS_MAX
    assert pace.turn(int(BURST_BYTES), 0.0) == pytest.approx(first, rel=0.2), "those without a turn are not in the line"


def test_the_rate_falls_once_in_a_step_while_small_pods_are_late_and_never_below_the_least() -> None:
    pace = LargeObjectPace()
    pace.tried(LATE_SECONDS, 1.0)
    assert pace.rate == RATE_FIRST
    for _ in range(5):
        pace.tried(LATE_SECONDS * 1.01, 1.0)
    assert pace.rate == pytest.approx(0.7 * RATE_FIRST)
    for step in range(20):
        pace.tried(10.0, 1.0 + STEP_SECONDS * step)
    assert pace.rate == RATE_MIN


def test_the_rate_grows_only_while_it_is_used_up_and_nobody_is_late() -> None:
    pace = LargeObjectPace()
    for second in range(20):
        pace.turn(10 * KIB, float(second))
    assert pace.rate == RATE_FIRST, "nobody waits"
    pace.turn(int(2 * BURST_BYTES), 20.0)
    pace.turn(KIB, 20.0)
    grown = pace.rate
    assert grown > RATE_FIRST
    pace.turn(KIB, 20.1)
    assert pace.rate == grown, "a step has not gone by"
    pace.tried(1.0, 20.6)
    fallen = pace.rate
    assert fallen < grown
    pace.turn(KIB, 20.6 + 0.9 * STEP_SECONDS)
    assert pace.rate == fallen
    pace.turn(KIB, 20.6 + 1.1 * STEP_SECONDS)
    assert pace.rate > fallen


@pytest.mark.parametrize("capacity", [400 * KIB, 2_000 * KIB, 8_000 * KIB])
def test_the_rate_finds_what_the_cluster_can_take(capacity: int) -> None:
    """A cluster that follows `capacity` bytes a second: what is over waits, and small pods behind it."""
    pace, behind, waits = LargeObjectPace(), 0.0, []
    entering: list[float] = []
    now, admitted = 0.0, 0
    for _ in range(120 * 100):
        now += 0.01
        # Four batches at a time, as a client of the SDK sends them.
        while len(entering) < 4 and (wait := pace.turn(64 * KIB, now)) <= WAIT_SECONDS_MAX:
            entering.append(now + wait)
        ready = [due for due in entering if due <= now]
        entering = [due for due in entering if due > now]
        behind = max(0.0, behind - capacity * 0.01) + 64 * KIB * len(ready)
        admitted += 64 * KIB * len(ready)
        waits.append(behind / capacity)
        pace.tried(waits[-1], now)
    assert admitted / now > 0.6 * capacity
    assert sum(wait > 1.0 + BURST_BYTES / capacity for wait in waits) / len(waits) < 0.02, (
        "small pods are late for a moment at most"
    )


def test_calls_with_large_objects_wait_outside_the_gate_and_agents_do_not() -> None:
    clock = [0.0]

    async def play() -> None:
        gate = WriteGate(clock=lambda: clock[0])
        async with gate.passed("Submission.SubmitMany", 100, int(BURST_BYTES)):
            pass
        async with gate.passed("Submission.SubmitMany", 100, int(8 * RATE_FIRST)):
            pass
        with pytest.raises(ApiFailure) as caught:
            async with gate.passed("Submission.SubmitMany", 100, 1):
                pytest.fail("it has no turn")
        assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED and "large objects" in caught.value.message
        assert gate.within == 0 and gate.refused["large"] == 1 and gate.refused["users"] == 0
        async with gate.passed("Submission.SubmitMany", 100):
            assert gate.within == 1, "small ones go on"
        async with gate.passed("Nodes.UpdateNodeStatus", 100, 100_000):
            assert gate.within == 1
        clock[0] = 7.2
        waiting = asyncio.create_task(_pass(gate))
        await asyncio.sleep(0)
        assert gate.within == 0 and not waiting.done()
        await waiting
        assert gate.within == 0

    asyncio.run(play())


async def _pass(gate: WriteGate) -> None:
    async with gate.passed("Submission.Submit", 100, 1):
        pass
