"""A replica's part in the election: it looks on, stands, stands down, releases, and can tell all the while who leads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Protocol

import pytest

from leader.belief import BeliefCell
from leader.config import FAST
from leader.effects import Effect
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.replica.leadership import Leadership
from rayched.server.ports import Leader
from rayched.store.keys import Keys
from tests.replica.clusters import until_true

pytestmark = pytest.mark.cluster


class Work:
    """A scheduler that ticks while it lives."""

    def __init__(self, belief: BeliefCell) -> None:
        self.belief = belief
        self.calls: list[str] = []
        self._ended = threading.Event()
        threading.Thread(target=self._tick, daemon=True).start()

    def begin(self, epoch: int) -> None:
        self.calls.append("begin")

    def expect_to_lead(self) -> None:
        self.calls.append("expect")

    def drain(self) -> None:
        self.calls.append("drain")

    def end_now(self) -> None:
        self.calls.append("end")

    def close(self) -> None:
        self._ended.set()

    def _tick(self) -> None:
        while not self._ended.wait(0.05):
            self.belief.tick(time.clock_gettime_ns(time.CLOCK_BOOTTIME))


class Candidates(Protocol):
    """Makes one."""

    def __call__(self, identity: str, suspect_after: float | None = None) -> Leadership: ...


@pytest.fixture
def candidate(tmp_path: Path, etcd: EtcdServer, etcd_root: str) -> Iterator[Candidates]:
    with ExitStack() as owned:

        def make(identity: str, suspect_after: float | None = None) -> Leadership:
            belief = BeliefCell.create(tmp_path / identity)
            work = Work(belief)
            evidence = {"takes_evidence": suspect_after is not None, "suspect_after": suspect_after}
            found = Leadership(identity, "1.0", [etcd.endpoint], Keys(etcd_root), FAST, belief, work, **evidence)
            owned.callback(work.close)
            owned.callback(found.release)
            return found

        yield make


async def until(leadership: Leadership, condition: Callable[[Leader | None], bool]) -> Leader | None:
    """What `changes` gives when the condition holds."""
    async with asyncio.timeout(10.0), aclosing(leadership.changes()) as changes:  # type: ignore[type-var]
        async for leader in changes:
            if condition(leader):
                return leader
    raise AssertionError("the changes ended")


def is_led_by(identity: str) -> Callable[[Leader | None], bool]:
    return lambda leader: leader is not None and leader.holder == identity


def test_a_replica_that_does_not_stand_knows_who_leads(candidate: Candidates) -> None:
    async def scenario() -> None:
        first, second = candidate("first"), candidate("second")
        first.look_on("127.0.0.1:1")
        assert (first.leader(), first.leads, first.stands, first.epoch()) == (None, False, False, None)
        first.begin_new_term()
        await asyncio.to_thread(first.stand)
        leads = await until(first, is_led_by("first"))
        assert first.leads
        assert first.stands
        second.look_on("127.0.0.1:2")
        seen = await until(second, is_led_by("first"))
        assert leads is not None
        assert seen is not None
        assert (seen.epoch, seen.address, seen.transitions) == (first.epoch(), "127.0.0.1:1", leads.transitions)
        assert not second.leads
        assert not second.stands

    asyncio.run(scenario())


def test_who_stands_down_gives_the_lead_to_another_and_may_stand_again(candidate: Candidates) -> None:
    async def scenario() -> None:
        first, second = candidate("first"), candidate("second")
        first.look_on("127.0.0.1:1")
        await asyncio.to_thread(first.stand)
        await asyncio.to_thread(first.stand)
        before = await until(first, is_led_by("first"))
        second.look_on("127.0.0.1:2")
        await asyncio.to_thread(second.stand)
        await asyncio.to_thread(first.stand_down)
        after = await until(first, is_led_by("second"))
        assert before is not None
        assert after is not None
        assert after.epoch > before.epoch
        assert after.transitions == before.transitions + 1
        assert not first.leads
        await asyncio.to_thread(first.stand)
        assert is_led_by("second")(await until(first, lambda leader: leader is not None))
        await asyncio.to_thread(second.release)
        await asyncio.to_thread(second.stand)
        assert not second.leads
        await until(first, is_led_by("first"))
        assert first.leads

    asyncio.run(scenario())


def test_a_new_term_has_another_epoch_and_is_told_to_those_who_follow(candidate: Candidates) -> None:
    async def scenario() -> None:
        first, second = candidate("first"), candidate("second")
        for number, one in enumerate((first, second)):
            one.look_on(f"127.0.0.1:{number}")
        await asyncio.to_thread(first.stand)
        before = await until(first, is_led_by("first"))
        await until(second, is_led_by("first"))
        assert before is not None
        first.begin_new_term()
        for one in (first, second):
            after = await until(one, lambda leader: leader is not None and leader.epoch > before.epoch)
            assert after is not None
            assert (after.holder, after.transitions) == ("first", before.transitions + 1)
        assert first.leads

    asyncio.run(scenario())


def fail(leadership: Leadership) -> None:
    """As a bug of the elector would."""
    elector = leadership._elector
    assert elector is not None

    def broken(*_: object) -> list[Effect]:
        raise AssertionError("a bug")

    elector._election.step = broken  # type: ignore[method-assign]
    assert elector._ended.wait(10)


def test_an_elector_that_fails_is_told_and_the_replica_stands_no_more(candidate: Candidates) -> None:
    one, told = candidate("one"), threading.Event()
    one.on_failed = told.set
    one.stand()
    until_true(lambda: one.leads, 10.0, "it does not lead")
    fail(one)
    assert told.wait(10)
    problem = one.problem()
    assert not one.leads and not one.stands and problem is not None and "failed" in problem


def test_a_former_elector_that_failed_keeps_nobody_from_standing_again(candidate: Candidates) -> None:
    one = candidate("one")
    one.stand()
    until_true(lambda: one.leads, 10.0, "it does not lead")
    fail(one)
    one._ceasing, one._elector = one._elector, None
    one.stand()
    until_true(lambda: one.leads, 10.0, "it does not lead")
    assert one.stands and one.problem() is None


def test_who_may_lead_soon_is_told_when_the_leader_gives_no_answer(candidate: Candidates) -> None:
    one, other = candidate("one"), candidate("other", suspect_after=60.0)

    async def scenario() -> None:
        # Nobody can answer there.
        one.look_on("nowhere")
        await asyncio.to_thread(one.stand)
        await until(one, is_led_by("one"))
        other.look_on("127.0.0.1:2")
        await asyncio.to_thread(other.stand)
        await until(other, is_led_by("one"))

    asyncio.run(scenario())
    told = other._work
    assert isinstance(told, Work)
    assert told.calls == []
    fail(one)
    until_true(lambda: "begin" in told.calls, 10.0, "it does not lead")
    assert told.calls == ["expect", "begin"]


def test_who_leads_does_not_tell_that_nobody_does_for_what_it_has_seen_late(
    candidate: Candidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own record is written before the end of the one before is seen."""
    one, leader = candidate("one"), Leader("one", "here", 7, 1, 0, 0, 0)
    views = iter([None, None, leader])
    monkeypatch.setattr(one, "epoch", lambda: 7)
    monkeypatch.setattr(one, "_seen", lambda: (None, None))
    monkeypatch.setattr(one, "leader", lambda: next(views, None))

    async def scenario() -> list[Leader | None]:
        async with asyncio.timeout(10.0), aclosing(one.changes()) as changes:  # type: ignore[type-var]
            return [await anext(changes) for _ in range(2)]

    # What lasts is told.
    monkeypatch.setattr("rayched.replica.leadership._SETTLE_SECONDS", 0.001)
    one._changed.set()
    assert asyncio.run(scenario()) == [leader, None]
