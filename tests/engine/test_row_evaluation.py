"""Any rows at once: filters in order, then scores of what passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rayched.engine.prepared import PreparedPlugin
from rayched.engine.row_evaluation import WeightedScore, evaluate_rows, filter_rows
from rayched.framework.plugin_error import PluginError
from rayched.framework.status import Code
from rayched.snapshot.rows import Rows
from tests.engine.spies import NormalizingSpy, Spy, a_snapshot
from tests.engine.toy_plugins import Cordon, Room
from tests.snapshot.objects import a_node

ROOM = PreparedPlugin("room", Room(), (1_000, 0), b"")
CORDON = PreparedPlugin("cordon", Cordon(), None, b"")


def rows_of(n_nodes: int = 4) -> Rows:
    snapshot = a_snapshot(n_nodes)
    snapshot.update_node(a_node("n1", {"cpu": "500m"}, unschedulable=True, labels={"rank": "1"}))
    return Rows(snapshot, slice(0, n_nodes))


def test_the_first_filter_that_rejects_a_row_is_named() -> None:
    rows = rows_of()
    rows.snapshot.remove_node("n3")
    found = filter_rows([CORDON, ROOM], rows)
    assert found.failing.tolist() == [-1, 0, -1, -1] and found.codes[3] == Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert filter_rows([ROOM, CORDON], rows).failing.tolist()[1] == 0
    assert [column.plugin for column in found.columns] == ["Cordon", "Room"]
    nothing = filter_rows([CORDON], Rows(rows.snapshot, np.zeros(0, np.intp)))
    assert nothing.codes.tolist() == [] and nothing.columns[0].codes is None


def test_scores_are_asked_of_feasible_rows_alone_and_normalised_over_them() -> None:
    spy = NormalizingSpy()
    scores = [WeightedScore(PreparedPlugin("spy", spy, None, b""), 3, True)]
    found = evaluate_rows([CORDON], scores, rows_of())
    assert found.total.tolist() == [150, -1, 150, 150]
    assert spy.asked == [("score", [0, 2, 3]), ("normalize 50..50", [])]
    (column,) = found.scores
    assert column.weighted is not None and column.weighted.tolist() == [150, 0, 150, 150]


def test_of_one_feasible_row_no_score_is_asked_but_to_explain() -> None:
    spy = Spy()
    scores = [WeightedScore(PreparedPlugin("spy", spy, None, b""), 1, False)]
    only = rows_of().only(np.array([0, 1]))
    assert evaluate_rows([CORDON], scores, only).total.tolist() == [0, -1] and spy.asked == []
    assert evaluate_rows([CORDON], scores, only, explain=True).total.tolist() == [50, -1]


def test_rows_with_nominated_pods_count_as_these_say() -> None:
    rows = rows_of()
    would_be = rows.only(np.array([2, 3]))
    then = filter_rows([CORDON], would_be)
    then.codes[1], then.failing[1] = Code.UNSCHEDULABLE, 0
    found = evaluate_rows([CORDON], [], rows, as_nominated=(would_be, then))
    assert found.feasible.tolist() == [True, False, True, False] and found.failing.tolist() == [-1, 0, -1, 0]


@pytest.mark.parametrize("value", [-1, 101])
def test_a_score_outside_is_an_error_where_its_row_is_feasible(value: int) -> None:
    spy = Spy()
    spy.value = value
    scores = [WeightedScore(PreparedPlugin("spy", spy, None, b""), 1, False)]
    with pytest.raises(PluginError, match=f"score {value} lies outside"):
        evaluate_rows([CORDON], scores, rows_of())
    assert evaluate_rows([ROOM], scores, rows_of(2)).total.tolist() == [0, -1], "one is feasible, so nobody asks"


def test_a_plugin_that_adds_nothing_has_no_column() -> None:
    class Silent(Spy):
        def score(self, state: Any, rows: Rows) -> None:
            return None

    found = evaluate_rows([], [WeightedScore(PreparedPlugin("silent", Silent(), None, b""), 1, False)], rows_of(2))
    assert found.scores == () and found.total.tolist() == [0, 0]
