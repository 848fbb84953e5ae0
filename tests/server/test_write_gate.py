"""The gate before calls that write: who passes, who waits, who is refused, in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayched.api.services import DESCRIPTORS
from rayched.server.admission import write_gate
from rayched.server.admission.write_gate import CALLS, Precedence, WriteGate, _Waiting
from rayched.server.admission.write_limit import LIMIT_MIN, WriteLimit
from rayched.server.errors import ApiFailure

SIZE = 256 * 63
"""Of a request that weighs 64: two have room at first."""


class Calls:
    """Calls under way at a gate, each until it is ended."""

    def __init__(self) -> None:
        self.gate = WriteGate()
        self.begun: list[str] = []
        self.refused: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def make(self, name: str, call: str = "Submission.Submit", size: int = SIZE) -> None:
        self._ends[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._run(name, call, size))
        await settled()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await settled()

    async def hang_up(self, name: str) -> None:
        self._tasks[name].cancel()
        await settled()

    async def _run(self, name: str, call: str, size: int) -> None:
        try:
            async with self.gate.passed(call, size):
                self.begun.append(name)
                await self._ends[name].wait()
        except ApiFailure as failure:
            assert failure.code is grpc.StatusCode.RESOURCE_EXHAUSTED
            self.refused.append(name)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_calls_beyond_the_limit_wait_and_pass_in_order_when_others_end() -> None:
    async def play() -> None:
        calls = Calls()
        for name in "abcd":
            await calls.make(name)
        assert calls.begun == ["a", "b"] and calls.gate.within == LIMIT_MIN and calls.gate.waiting == 128
        await calls.end("b")
        assert calls.begun == ["a", "b", "c"]
        await calls.end("a")
        assert calls.begun == ["a", "b", "c", "d"] and not calls.refused

    run(play())


def test_who_finds_the_line_full_is_refused_with_a_delay() -> None:
    async def play() -> None:
        calls = Calls()
        for name in "abcdefg":
            await calls.make(name)
        assert calls.refused == ["g"] and calls.gate.refused == {"users": 1}
        with pytest.raises(ApiFailure, match=r"nothing of this one was done; try again in 0\.5 s") as caught:
            async with calls.gate.passed("Submission.Submit", SIZE):
                raise AssertionError
        assert [detail.DESCRIPTOR.name for detail in caught.value.details] == ["RetryInfo"]

    run(play())


def test_agents_of_nodes_wait_for_nobody_but_agents_and_users_wait_for_both() -> None:
    async def play() -> None:
        calls = Calls()
        for name in "abcd":
            await calls.make(name)
        for name in "nopqrs":
            await calls.make(name, "Nodes.Heartbeat")
        assert calls.begun == ["a", "b", "n", "o"] and not calls.refused, "their line is longer"
        for name in "ab":
            await calls.end(name)
        assert calls.begun == ["a", "b", "n", "o"], "no place for users while agents have the limit"
        for name in "nopq":
            await calls.end(name)
        assert calls.begun == ["a", "b", "n", "o", "p", "q", "r", "s"]
        for name in "rs":
            await calls.end(name)
        assert calls.begun[-2:] == ["c", "d"]

    run(play())


def test_events_wait_for_everybody_and_are_in_nobodys_way() -> None:
    async def play() -> None:
        calls = Calls()
        for name in "ef":
            await calls.make(name, "Nodes.ReportEvents")
        assert calls.begun == ["e", "f"]
        await calls.make("a")
        await calls.make("n", "Nodes.UpdatePodStatus")
        await calls.make("g", "Nodes.ReportEvents")
        assert calls.begun == ["e", "f", "a", "n"], "what events have within takes no place of others"
        for name in "ef":
            await calls.end(name)
        assert calls.begun == ["e", "f", "a", "n"]
        await calls.make("b")
        await calls.end("a")
        assert calls.begun[-1] == "b", "a submission that came later goes first"
        await calls.end("n")
        assert calls.begun[-1] == "g"
        assert not calls.refused

    run(play())


def test_a_sign_of_life_passes_beside_the_largest_submission() -> None:
    async def play() -> None:
        calls = Calls()
        await calls.make("large", size=4 << 20)
        await calls.make("n", "Nodes.Heartbeat", size=100)
        assert calls.begun == ["large", "n"]

    run(play())


def test_a_request_larger_than_the_limit_goes_alone() -> None:
    async def play() -> None:
        calls = Calls()
        await calls.make("a", size=1)
        await calls.make("large", size=4 << 20)
        await calls.make("b", size=1)
        assert calls.begun == ["a"] and calls.refused == []
        await calls.end("a")
        assert calls.begun == ["a", "large"]
        await calls.end("large")
        assert calls.begun == ["a", "large", "b"]

    run(play())


def test_who_hangs_up_while_it_waits_leaves_the_line() -> None:
    async def play() -> None:
        calls = Calls()
        for name in "abc":
            await calls.make(name)
        await calls.hang_up("c")
        assert not calls.gate.waiting
        await calls.hang_up("a")
        await calls.make("d")
        assert calls.begun == ["a", "b", "d"] and calls.gate.within == 128

    run(play())


def test_those_behind_one_who_hangs_up_do_not_wait_for_its_room() -> None:
    async def play() -> None:
        calls = Calls()
        await calls.make("a")
        await calls.make("large", size=4 * SIZE)
        await calls.make("b", size=1)
        assert calls.begun == ["a"]
        await calls.hang_up("large")
        assert calls.begun == ["a", "b"]

    run(play())


@pytest.mark.parametrize("steps", range(6))
def test_one_who_hangs_up_while_it_is_let_in_gives_its_place_back(steps: int) -> None:
    """`steps` of the event loop lie between the end of the call before it and the hanging up."""

    async def play() -> None:
        calls = Calls()
        for name in "abc":
            await calls.make(name)
        calls._ends["a"].set()
        for _ in range(steps):
            await asyncio.sleep(0)
        await calls.hang_up("c")
        assert calls.gate.within == 64
        await calls.end("b")
        assert calls.gate.within == 0

    run(play())


def test_who_waits_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(write_gate._WAIT_SECONDS_MAX, Precedence.USERS, 0.01)

    async def play() -> None:
        calls = Calls()
        for name in "abc":
            await calls.make(name)
        while not calls.refused:
            await asyncio.sleep(0.01)
        assert calls.refused == ["c"] and not calls.gate.waiting

    run(play())


def test_one_whose_time_is_over_just_when_it_is_let_in_takes_no_place() -> None:
    async def play() -> None:
        calls = Calls()
        for name in "abcd":
            await calls.make(name)
        # Neither task has run in between: c has been given up, and a ends.
        calls._tasks["c"].cancel()
        calls._ends["a"].set()
        await settled()
        assert calls.begun == ["a", "b", "d"] and calls.gate.within == 128 and not calls.gate.waiting

    run(play())


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["make", "end", "hang up"]), st.integers(0, 7), st.sampled_from([1, SIZE, 4 * SIZE, 1 << 20])),
        max_size=60,
    )
)
def test_whatever_happens_nobody_waits_without_a_reason_and_no_place_is_lost(moves: list[tuple[str, int, int]]) -> None:
    async def play() -> None:
        calls = Calls()
        for number, (what, which, size) in enumerate(moves):
            names = list(calls._tasks)
            if what == "make":
                await calls.make(str(number), list(CALLS)[which], size)
            elif names:
                name = names[which % len(names)]
                await (calls.end(name) if what == "end" else calls.hang_up(name))
            assert calls.gate.within >= 0
            assert calls.gate.within or not calls.gate.waiting
        for name in list(calls._tasks):
            await calls.end(name)
        assert calls.gate.within == calls.gate.waiting == 0

    run(play())


def test_every_call_that_changes_something_passes_the_gate() -> None:
    reading = {"Get", "List", "Watch", "WatchNode", "GetLeader", "WatchLeader", "GetSchedulerStatus", "ListQueue", "Explain"}
    reading |= {"GetPlanBasis", "GetAllocatedResources", "WhoAmI", "CanI", "ListGrants", "ListTokens", "ListRevocations"}
    # The leader's scheduler writes it in a window of its own, as its own bindings.
    reading |= {"Bind"}
    # Of nodes; nothing of it is written to etcd.
    reading |= {"Stream", "GetUsage", "Attend", "Serve"}
    all_calls = {f"{service.name}.{method.name}" for service in DESCRIPTORS.values() for method in service.methods}
    assert set(CALLS) == {name for name in all_calls if name.partition(".")[2] not in reading}


@pytest.mark.parametrize("waits", [False, True])
def test_what_etcd_takes_for_a_write_reaches_the_limit(waits: bool) -> None:
    heard: list[tuple[float, float, bool]] = []

    class Noted(WriteLimit):
        def heard(self, sent: float, now: float, *, used_up: bool) -> None:
            heard.append((sent, now, used_up))

    async def test() -> None:
        gate = WriteGate(Noted(), lambda: 7.5)
        if waits:
            gate._lines[Precedence.USERS].append(_Waiting(10_000, asyncio.get_running_loop().create_future()))
        gate.answered(7.0)

    asyncio.run(test())
    assert heard == [(7.0, 7.5, waits)]
