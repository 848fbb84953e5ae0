"""Questions that are under way: how many workers are given ahead, and when one of them counts as late."""

from __future__ import annotations

import pytest

from rayched.actors.configured import profiles_of
from rayched.actors.shards import ANSWER_SECONDS_MAX, BACKLOG_SECONDS_MAX, HANDOVER_SECONDS, RayShards
from rayched.engine.prepared import PluginHalf
from rayched.engine.shards import ColumnRequest, SharedWork
from rayched.snapshot.snapshot import Snapshot
from tests.actors.test_shards_erratic import NODES, PROFILES, Handle, named
from tests.core.builders import a_node, a_pod

REQUEST = ColumnRequest("TaintToleration", PluginHalf.FILTER, a_pod("asked").SerializeToString())


class Pool:
    """Two workers that answer when the test says so, at times of its own."""

    def __init__(self) -> None:
        self.now = -2.0
        snapshot = Snapshot()
        for number in range(NODES):
            snapshot.add_node(a_node(f"n{number}"))
        self.handles = [Handle(), Handle()]
        self.shards = RayShards(snapshot, profiles_of(PROFILES).profiles, lambda: None, lambda: self.now)
        self.shards.use(named(self.handles))
        first = self.ask(0.0)
        # The first question carries the whole table, and nothing is sent behind that.
        self.now = -1.0
        self.answer()
        self.now = 0.0
        assert first is not None
        first.take()

    def ask(self, seconds: float, *, ahead: bool = False) -> SharedWork | None:
        return self.shards.begin("default-scheduler", [REQUEST], NODES, seconds, ahead=ahead)

    def answer(self) -> None:
        for handle in self.handles:
            handle.run()


def test_workers_that_need_the_whole_table_are_asked_only_for_what_takes_longer_than_that() -> None:
    pool = Pool()
    shards = pool.shards
    assert shards.handover_seconds == HANDOVER_SECONDS, "the table is no part of handing over"
    shards.table_row_seconds = 0.2 / NODES
    assert shards.pays(0.01), "they have the table"
    shards.use(named([pool.handles[0], Handle()]))
    assert not shards.pays(0.2), "half of the rows are to be sent"
    assert shards.pays(0.22)
    shards.use(named([Handle(), Handle()]))
    assert not shards.pays(0.4)
    assert shards.pays(0.42)


def test_workers_are_asked_ahead_until_a_second_is_under_way_and_again_when_it_was_answered() -> None:
    pool = Pool()
    taken = []
    while (work := pool.ask(0.4, ahead=True)) is not None:
        taken.append(work)
    assert len(taken) * (0.2 + HANDOVER_SECONDS) == pytest.approx(BACKLOG_SECONDS_MAX, abs=0.25)
    assert pool.ask(0.4) is not None, "what an attempt needs is asked for"
    pool.answer()
    assert pool.ask(0.4, ahead=True) is None
    pool.answer()
    pool.answer()
    assert pool.ask(0.4, ahead=True) is not None


def test_workers_that_are_never_idle_and_a_third_slower_than_thought_are_not_late() -> None:
    pool = Pool()
    under_way = [pool.ask(0.2) for _ in range(4)]
    for _ in range(60):
        pool.now += 0.13
        pool.answer()
        work = under_way.pop(0)
        assert work is not None and work.is_over and work.take() is not None
        under_way.append(pool.ask(0.2))
    assert pool.shards.counts.local_evaluations == 0


def test_a_question_is_late_after_four_times_what_is_under_way_with_it() -> None:
    pool = Pool()
    first, second = pool.ask(2.0), pool.ask(2.0)
    assert first is not None and second is not None
    assert first.until == pytest.approx(4 * (1.0 + HANDOVER_SECONDS))
    assert second.until == pytest.approx(4 * 2 * (1.0 + HANDOVER_SECONDS))
    short = Pool().ask(0.01)
    assert short is not None and short.until == pytest.approx(0.005 + HANDOVER_SECONDS + ANSWER_SECONDS_MAX)
    pool.now = first.until
    assert first.is_over and not second.is_over
    assert first.take() is not None and pool.shards.counts.local_evaluations == 2
    assert pool.ask(0.2) is None, "who owes an answer is not asked"
