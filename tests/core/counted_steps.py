"""A clock of work that stands still but for steps that are counted: each has a price, whatever the machine does meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.scheduler.scheduler import Scheduler
from rayched.snapshot.snapshot import Snapshot
from tests.core.replica import Clock

MOVE_SECONDS = 0.000005
"""A pod takes up room, or gives it back."""
PLACE_SECONDS = 0.000015
"""A node is looked for, beyond the room that the pod takes."""
PUT_SECONDS = 0.000003
"""The same where the node is given."""
LOOK_SECONDS = 0.0000005
"""Somebody looks at the clock."""


class StepClock(Clock):
    """`now` is what the thread has computed, in seconds."""

    def __call__(self) -> float:
        self.now += LOOK_SECONDS
        return self.now


def step_clock(monkeypatch: pytest.MonkeyPatch) -> StepClock:
    """From now on the steps of all snapshots and schedulers are counted; they are taken as before."""
    clock = StepClock(0.0)
    bind, unbind, schedule = Snapshot.bind, Snapshot.unbind, Scheduler.schedule

    def counted_bind(*arguments: Any, **options: Any) -> None:
        clock.now += MOVE_SECONDS
        bind(*arguments, **options)

    def counted_unbind(*arguments: Any) -> object:
        clock.now += MOVE_SECONDS
        return unbind(*arguments)

    def counted_schedule(*arguments: Any, **options: Any) -> object:
        clock.now += PUT_SECONDS if options.get("node_name") else PLACE_SECONDS
        return schedule(*arguments, **options)

    monkeypatch.setattr(Snapshot, "bind", counted_bind)
    monkeypatch.setattr(Snapshot, "unbind", counted_unbind)
    monkeypatch.setattr(Scheduler, "schedule", counted_schedule)
    return clock
