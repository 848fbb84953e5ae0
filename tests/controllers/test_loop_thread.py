"""The thread of a loop: what fails is told and begins anew, and a stop is heard meanwhile."""

from __future__ import annotations

import threading

import pytest

from rayched.controllers.housekeeping import Housekeeping
from rayched.controllers.loop_thread import LoopThread


def test_a_loop_that_fails_says_so_and_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    turns = threading.Semaphore(0)
    began = list[int]()

    def run() -> None:
        began.append(len(began))
        turns.release()
        if len(began) < 3:
            raise MemoryError("no room for the list")
        loop.stopped.wait()

    loop = LoopThread("tidying", run, anew_seconds=0.01)
    assert loop.problem() is None
    loop.start()
    for _ in range(3):
        assert turns.acquire(timeout=10)
    assert loop.problem() == "tidying failed and has begun anew: MemoryError: no room for the list"
    loop.stop()
    assert loop.problem() is None
    assert began == [0, 1, 2]
    assert sum("tidying failed" in line for line in caplog.messages) == 2


def test_a_loop_that_pauses_after_a_failure_stops_at_once() -> None:
    failed = threading.Event()

    def run() -> None:
        failed.set()
        raise ValueError("a bug")

    loop = LoopThread("tidying", run, anew_seconds=3600.0)
    loop.start()
    assert failed.wait(10)
    loop.stop()
    assert not any(thread.name == "tidying" for thread in threading.enumerate())


def test_a_duty_that_raises_anything_leaves_the_others_their_turns() -> None:
    class Raises:
        name, period_seconds = "raises", 0.01

        def turn(self, _store: object, _epoch: int | None) -> None:
            raise MemoryError("no room")

    class Counts:
        name, period_seconds = "counts", 0.01
        enough = threading.Event()
        n_turns = 0

        def turn(self, _store: object, _epoch: int | None) -> None:
            self.n_turns += 1
            if self.n_turns >= 3:
                self.enough.set()

    counts = Counts()
    housekeeping = Housekeeping(["127.0.0.1:1"], [Raises(), counts], lambda: None)
    housekeeping.start()
    try:
        assert counts.enough.wait(20)
    finally:
        housekeeping.stop()
