"""Long work gives signs of life, and ends where it takes longer than it may; outside of it nothing is over budget."""

from __future__ import annotations

import pytest

from rayched.snapshot import work_budget
from rayched.snapshot.work_budget import AttemptOverBudget, WorkBudget


class Clocked:
    def __init__(self) -> None:
        self.now = 100.0
        self.signs: list[float] = []
        self.work = WorkBudget()
        self.work.use(lambda: self.now, lambda: self.signs.append(self.now))

    def spend_at(self, now: float) -> None:
        self.now = now
        self.work.spend()


def test_work_ends_at_the_first_step_after_its_time_and_once() -> None:
    clocked = Clocked()
    with pytest.raises(AttemptOverBudget, match="takes more than 2 s") as caught, clocked.work.of(2.0):
        clocked.spend_at(100.5)
        clocked.spend_at(101.9)
        clocked.spend_at(102.0)
    assert caught.value.seconds == 2.0 and clocked.work.took == 2.0
    clocked.spend_at(500.0)


def test_whoever_handles_the_end_goes_on_without_another_one() -> None:
    clocked = Clocked()
    clocked.work.begin(1.0)
    with pytest.raises(AttemptOverBudget):
        clocked.spend_at(101.0)
    clocked.spend_at(110.0)
    clocked.work.end()
    assert clocked.work.took == 10.0
    clocked.now = 150.0
    clocked.work.end()
    assert clocked.work.took == 10.0, "it was ended already"
    with clocked.work.of(3.0):
        clocked.spend_at(152.0)
    assert clocked.work.took == 2.0


def test_signs_of_life_come_no_more_often_than_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_budget, "TICK_SECONDS", 2.0)
    clocked = Clocked()
    for number in range(8):
        clocked.spend_at(100.0 + number)
    assert clocked.signs == [100.0, 102.0, 104.0, 106.0]


def test_without_a_clock_no_time_passes() -> None:
    work = WorkBudget()
    with work.of(0.001):
        work.spend()
    assert work.took == 0.0
