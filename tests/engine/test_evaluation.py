"""What an evaluation gives, however it was made: totals, the best rows, and those that come next."""

from __future__ import annotations

import numpy as np
import pytest

from rayched.engine.evaluation import NOT_FEASIBLE, Evaluation


def test_it_reads_the_total() -> None:
    found = Evaluation(5, np.array([7, -3, 9, 9, 0], np.int16), 9)
    assert found.is_feasible and found.n_feasible == 4
    assert found.best_rows.tolist() == [2, 3] == list(found.ties)
    assert found.feasible.tolist() == [True, False, True, True, True]
    nowhere = Evaluation(2, np.array([-3, -3], np.int16), NOT_FEASIBLE, n_feasible=0)
    assert not nowhere.is_feasible and nowhere.best_rows.tolist() == []


def test_of_some_rows_all_others_are_not_feasible() -> None:
    found = Evaluation(6, np.array([4, 8, 8], np.int16), 8, rows=np.array([1, 3, 5], np.intp))
    assert found.total.tolist() == [-1, 4, -1, 8, -1, 8] and found.best_rows.tolist() == [3, 5]
    assert found.runners_up([3, 5], 4) == [(1, 4)]


def test_scores_that_are_added_late_are_added_once() -> None:
    asked: list[int] = []

    def added() -> np.ndarray:
        asked.append(1)
        return np.array([5, 5, 1], np.int16)

    found = Evaluation(3, np.array([1, 2, 8], np.int16), 9, ties=[2], added=added)
    assert found.n_feasible == 3 and list(found.ties) == [2] and not asked
    assert found.total.tolist() == [6, 7, 9] == found.total.tolist() and len(asked) == 1


@pytest.mark.parametrize(("n", "expected"), [(0, []), (1, [(4, 8)]), (2, [(4, 8), (1, 7)]), (9, [(4, 8), (1, 7), (5, 7)])])
def test_runners_up_are_searched_for_and_the_total_is_as_it_was(n: int, expected: list[tuple[int, int]]) -> None:
    total = np.array([9, 7, -5, 9, 8, 7], np.int16)
    found = Evaluation(6, total, 9)
    assert found.runners_up([0, 3], n) == expected
    assert total.tolist() == [9, 7, -5, 9, 8, 7]


def test_where_no_other_row_is_feasible_nobody_searches() -> None:
    assert Evaluation(2, np.array([3, 1], np.int16), 3, n_feasible=1).runners_up([0], 4) == []
