"""Workers answer for their rows what a local evaluation gives, and whoever builds takes only whole answers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rayched.engine.cached_columns import FinalScoreColumn
from rayched.engine.prepared import Answer, ColumnKey, PluginHalf, PreparedPlugin
from rayched.engine.shards import CHUNK_SECONDS, PROBE_ROWS, ColumnBuilder, ColumnRequest, ShardAnswers, join_shards, request_for
from rayched.framework.plugin_error import PluginError
from rayched.snapshot.columns import ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.work_budget import TICK_SECONDS
from tests.conformance.sharded import AnsweredWork
from tests.engine.spies import SlowSpy, Spy, a_snapshot
from tests.snapshot.objects import a_pod


class Workers:
    """Two, each with a copy of half of the rows; `answers` in their place where it is given."""

    always = True

    def __init__(self, snapshot: Snapshot, spy: Spy) -> None:
        self.workers = [ShardAnswers(snapshot, {spy.name: spy}) for _ in range(2)]
        self.asked: list[ColumnRequest] = []
        self.answers: Sequence[Answer] | None = ()

    def pays(self, seconds: float) -> bool:
        return True

    def begin(self, requests: Sequence[ColumnRequest], n_rows: int, seconds: float, *, ahead: bool) -> AnsweredWork:
        self.asked += requests
        nothing = [0.0] * len(requests)
        if self.answers != ():
            return AnsweredWork(self.answers, nothing)
        halves = [
            worker.answer(requests, rows)[0]
            for worker, rows in zip(self.workers, (slice(0, n_rows // 2), slice(n_rows // 2, n_rows)), strict=True)
        ]
        columns = [join_shards(request, pieces) for request, pieces in zip(requests, zip(*halves, strict=True), strict=True)]
        return AnsweredWork(columns, nothing)


class Bench:
    def __init__(self) -> None:
        self.snapshot, self.spy = a_snapshot(10), Spy()
        self.workers = Workers(self.snapshot, self.spy)
        self.builder = ColumnBuilder(self.snapshot, self.workers)
        asked = PreparedPlugin("spy", self.spy, None, a_pod().SerializeToString())
        self.question = ColumnKey(asked, PluginHalf.SCORE)

    def built(self) -> list[int]:
        column = FinalScoreColumn("score", self.snapshot, self.question)
        self.builder.build([column])
        assert column.column is not None
        return column.column[:10].tolist()


def test_answers_of_workers_are_put_together_in_the_order_of_rows() -> None:
    bench = Bench()
    assert bench.built() == [50] * 10
    assert bench.workers.asked == [request_for(bench.question)]
    assert bench.spy.asked == [("score", [0, 1, 2, 3, 4]), ("score", [5, 6, 7, 8, 9])]


@pytest.mark.parametrize("answers", [None, [], [np.zeros(3, np.int64)]])
def test_what_is_missing_or_short_is_evaluated_here(answers: Sequence[Answer] | None) -> None:
    bench = Bench()
    bench.workers.answers = answers
    assert bench.built() == [50] * 10 and bench.spy.asked == [("score", list(range(10)))]


def test_what_was_answered_ahead_is_not_asked_again_until_the_table_changes() -> None:
    bench = Bench()
    (found,) = bench.builder.ahead([bench.question])
    assert found is not None and len(bench.workers.asked) == 1
    assert bench.built() == [50] * 10 and len(bench.workers.asked) == 1
    bench.built()
    assert len(bench.workers.asked) == 2, "answers are handed on once"
    bench.builder.ahead([bench.question])
    bench.snapshot.remove_node("n3")
    bench.built()
    assert len(bench.workers.asked) == 4, "the table is another one"


def test_an_answer_that_waited_is_repaired_where_rows_changed_since() -> None:
    bench = Bench()
    bench.builder.give([FinalScoreColumn("score", bench.snapshot, bench.question)], ahead=True)
    assert len(bench.workers.asked) == 1
    bench.spy.asked.clear()
    bench.snapshot.remove_node("n3")
    assert bench.built()[:3] == [50, 50, 50] and len(bench.workers.asked) == 1
    assert bench.spy.asked == [("score", [3])], "only the row that changed is asked about here"


class WarmingSpy(Spy):
    """Takes a second for the first question, and 50 ms for any other."""

    now = 0.0

    def score(self, state: Any, rows: Rows) -> ScoreColumn | None:
        self.now += 0.05 if self.asked else 1.0
        return super().score(state, rows)


class Buyers(Workers):
    """Are asked for what takes more than so many seconds."""

    always = False
    limit = 0.0

    def pays(self, seconds: float) -> bool:
        self.offered = [*getattr(self, "offered", []), seconds]
        return seconds > self.limit


def test_a_column_of_unknown_price_is_asked_for_on_a_few_rows_first_and_given_away_where_that_pays() -> None:
    snapshot, spy = a_snapshot(10 * PROBE_ROWS), WarmingSpy()
    snapshot.work.use(lambda: spy.now, lambda: None)
    workers = Buyers(snapshot, spy)
    builder = ColumnBuilder(snapshot, workers)
    question = ColumnKey(PreparedPlugin("spy", spy, None, a_pod().SerializeToString()), PluginHalf.SCORE)
    workers.limit = 0.6
    builder.build([FinalScoreColumn("here", snapshot, question)])
    assert spy.asked[:2] == [("score", list(range(PROBE_ROWS)))] * 2
    assert workers.offered == pytest.approx([0.5]), "what the first call took beyond that it takes once"
    assert workers.asked == [], "that is not more than the limit"
    workers.limit, workers.offered = 0.0, []
    builder.build([FinalScoreColumn("there", snapshot, question)])
    assert workers.asked == [request_for(question)]


@pytest.mark.parametrize(("us_a_row", "rows"), [(0.01, 16), (5.0, 16), (20.0, 4), (100.0, 1)])
def test_what_a_call_takes_however_few_rows_it_has_is_no_part_of_the_price(us_a_row: float, rows: int) -> None:
    """200 us a call, at 100,000 rows of 10 ns each, would be a third of a second of work that is not there."""
    slow, snapshot = SlowSpy(us_a_row * 1e-6, call_seconds=200e-6), a_snapshot(40 * PROBE_ROWS)
    snapshot.work.use(lambda: slow.now, lambda: None)
    workers = Buyers(snapshot, slow)
    workers.limit = 1e9
    question = ColumnKey(PreparedPlugin("slow", slow, None, a_pod().SerializeToString()), PluginHalf.SCORE)
    ColumnBuilder(snapshot, workers).build([FinalScoreColumn("score", snapshot, question)])
    alone = 200e-6 / PROBE_ROWS if rows == 1 else 0.0
    assert workers.offered == pytest.approx([40 * PROBE_ROWS * (us_a_row * 1e-6 + alone)])
    probes = [1, 1, *(many for many in (4, 16) if many <= rows)]
    assert [len(asked) for _, asked in slow.asked[: len(probes)]] == [many * PROBE_ROWS for many in probes]


def test_a_plugin_that_raises_on_the_first_rows_raises_where_its_column_is_built() -> None:
    snapshot, spy = a_snapshot(2 * PROBE_ROWS), Spy()
    workers = Buyers(snapshot, spy)
    builder = ColumnBuilder(snapshot, workers)
    question = ColumnKey(PreparedPlugin("spy", spy, None, a_pod().SerializeToString()), PluginHalf.SCORE)
    spy.failing_rows = {3}
    column = FinalScoreColumn("score", snapshot, question)
    builder.give([column], ahead=True)
    assert workers.asked == []
    with pytest.raises(PluginError, match="Score"):
        builder.build([column])


def test_a_column_at_which_workers_failed_is_asked_for_here_until_its_plugin_answers() -> None:
    bench = Bench()
    bench.workers.answers, bench.spy.failing_rows = None, {3}
    for _ in range(3):
        # An attempt that awaited workers anew each time would never end.
        with pytest.raises(PluginError, match="broken for this row"):
            bench.built()
    assert len(bench.workers.asked) == 1
    bench.spy.failing_rows = set()
    assert bench.built() == [50] * 10 and len(bench.workers.asked) == 1
    bench.workers.answers = ()
    assert bench.built() == [50] * 10 and len(bench.workers.asked) == 2


@pytest.mark.parametrize(("us_a_row", "largest"), [(20, 1_000), (1_000, PROBE_ROWS), (0.05, 5_000 - PROBE_ROWS)])
def test_rows_that_are_evaluated_here_take_20_ms_at_most_between_two_signs_of_life(us_a_row: float, largest: int) -> None:
    slow, signs = SlowSpy(us_a_row * 1e-6), [0.0]
    snapshot = a_snapshot(5_000)
    snapshot.work.use(lambda: slow.now, lambda: signs.append(slow.now))
    builder = ColumnBuilder(snapshot, None)
    question = ColumnKey(PreparedPlugin("slow", slow, None, a_pod().SerializeToString()), PluginHalf.SCORE)
    for number in range(2):
        slow.asked.clear()
        builder.build([FinalScoreColumn(f"score-{number}", snapshot, question)])
        rows = [row for _, asked in slow.asked for row in asked]
        assert rows == list(range(5_000))
        # The second time the price is known from the beginning.
        assert max(len(asked) for _, asked in slow.asked) == pytest.approx(largest, abs=PROBE_ROWS)
    assert max(after - before for before, after in itertools.pairwise(signs)) <= TICK_SECONDS + max(
        CHUNK_SECONDS, us_a_row * 1e-6 * PROBE_ROWS
    )
