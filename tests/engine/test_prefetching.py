"""Workers are asked for what a template's first evaluation needs: all of it at once, and until they take it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rayched.engine.engine import Engine
from rayched.engine.prepared import PluginHalf
from rayched.engine.shards import ColumnRequest, SharedWork
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.work_budget import AttemptAwaits
from tests.engine.spies import Spy, a_snapshot, a_template
from tests.engine.toy_plugins import a_profile


class UnansweredWork:
    """SharedWork that nobody has answered yet."""

    is_over = False
    until = 1.0
    seconds = None

    def wait(self) -> None:
        raise AssertionError("who may put its attempt off waits for nothing")

    def take(self) -> None:
        raise AssertionError("it is not over")


class BusyWorkers:
    """Note what they are asked; leave what is asked ahead while they are busy."""

    always = True

    def __init__(self) -> None:
        self.busy = True
        self.asked: list[list[PluginHalf]] = []

    def pays(self, seconds: float) -> bool:
        return True

    def begin(self, requests: Sequence[ColumnRequest], n_rows: int, seconds: float, *, ahead: bool) -> SharedWork | None:
        if ahead and self.busy:
            return None
        self.asked.append([request.part for request in requests])
        return UnansweredWork()


BOTH = [PluginHalf.FILTER, PluginHalf.SCORE]


def an_engine(snapshot: Snapshot) -> tuple[Engine, BusyWorkers]:
    spy, workers = Spy(), BusyWorkers()
    return Engine(snapshot, a_profile(filters=(spy,), scores=(spy,)), workers), workers


def test_what_busy_workers_left_is_asked_ahead_again() -> None:
    engine, workers = an_engine(a_snapshot(100))
    template = a_template(key="left")
    engine.prefetch(template)
    assert workers.asked == []
    workers.busy = False
    engine.prefetch(template)
    assert [sorted(asked, key=BOTH.index) for asked in workers.asked] == [BOTH]
    engine.prefetch(template)
    assert len(workers.asked) == 1, "it is under way"


def test_an_attempt_asks_for_filters_and_scores_at_once_though_it_was_left_before() -> None:
    snapshot = a_snapshot(100)
    engine, workers = an_engine(snapshot)
    template = a_template(key="needed")
    engine.prefetch(template)
    snapshot.work.begin(1.0, may_await=True)
    with pytest.raises(AttemptAwaits):
        engine.evaluate(template)
    assert [sorted(asked, key=BOTH.index) for asked in workers.asked] == [BOTH]
