"""Workers answer for their rows what a local evaluation gives, and whoever builds takes only whole answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rayched.engine.cached_columns import FinalScoreColumn
from rayched.engine.prepared import Answer, ColumnKey, PluginHalf, PreparedPlugin
from rayched.engine.shards import ColumnBuilder, ColumnRequest, ShardAnswers, join_shards, request_for
from rayched.snapshot.snapshot import Snapshot
from tests.engine.spies import Spy, a_snapshot
from tests.snapshot.objects import a_pod


class Workers:
    """Two, each with a copy of half of the rows; `answers` in their place where it is given."""

    always = True

    def __init__(self, snapshot: Snapshot, spy: Spy) -> None:
        self.workers = [ShardAnswers(snapshot, {spy.name: spy}) for _ in range(2)]
        self.asked: list[ColumnRequest] = []
        self.answers: Sequence[Answer] | None = ()

    def evaluate(self, requests: Sequence[ColumnRequest], n_rows: int) -> Sequence[Answer] | None:
        self.asked += requests
        if self.answers != ():
            return self.answers
        halves = [
            worker.answer(requests, rows)
            for worker, rows in zip(self.workers, (slice(0, n_rows // 2), slice(n_rows // 2, n_rows)), strict=True)
        ]
        return [join_shards(request, pieces) for request, pieces in zip(requests, zip(*halves, strict=True), strict=True)]


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
