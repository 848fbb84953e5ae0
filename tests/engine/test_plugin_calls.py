"""Calls of plugins name the plugin that raises, or that answers what its contract forbids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rayched.engine import plugin_calls
from rayched.engine.plugin_calls import (
    call_filter,
    call_key,
    call_narrow,
    call_normalize,
    call_reasons,
    call_score,
    call_score_groups,
)
from rayched.framework.plugin_error import PluginError
from rayched.framework.status import SUCCESS, Code, Status, unschedulable
from rayched.snapshot.row_groups import RowGroups
from rayched.snapshot.rows import Rows
from tests.engine.spies import a_snapshot
from tests.snapshot.objects import a_pod

ROWS = Rows(a_snapshot(3), slice(0, 3))
MANY = Rows(a_snapshot(40), slice(0, 40))


class Saying:
    """Says the same to every question."""

    name = "Saying"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def said(*_: Any) -> Any:
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return said


@pytest.mark.parametrize("call", [call_key, call_narrow])
def test_whoever_raises_is_named(call: Callable[..., Any]) -> None:
    with pytest.raises(PluginError, match=r"Saying.*PreFilter.*RuntimeError: no way"):
        call(Saying(RuntimeError("no\n way")), a_pod())


def test_a_key_has_to_be_hashable() -> None:
    assert call_key(Saying((1, "a")), a_pod()) == (1, "a")
    with pytest.raises(PluginError, match="unhashable"):
        call_key(Saying([1]), a_pod())


def test_prefilter_answers_names_a_status_or_nothing() -> None:
    assert call_narrow(Saying(None), ()) is None and call_narrow(Saying(SUCCESS), ()) is None
    assert call_narrow(Saying(frozenset("ab")), ()) == {"a", "b"}
    found = call_narrow(Saying(unschedulable("no")), ())
    assert isinstance(found, Status) and (found.code, found.plugin) == (Code.UNSCHEDULABLE, "Saying")
    with pytest.raises(PluginError, match="allowed are a frozenset"):
        call_narrow(Saying({"a"}), ())
    with pytest.raises(PluginError):
        call_narrow(Saying(Status(Code.ERROR, ("out of order",))), ())


@pytest.mark.parametrize("bytes_max", [0, 4_096])
@pytest.mark.parametrize("rows", [Rows(a_snapshot(1), slice(0, 1)), ROWS, MANY])
def test_codes_are_those_that_filters_may_give(rows: Rows, bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_calls, "_BYTES_MAX", bytes_max)
    for code in (Code.SUCCESS, Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE):
        codes = np.zeros(rows.n, np.uint8)
        codes[-1] = code
        found = call_filter(Saying(codes), (), rows)
        assert found is not None and found.tolist() == codes.tolist()
    for wrong in (Code.ERROR, 4, 77):
        codes = np.zeros(rows.n, np.uint8)
        codes[-1] = wrong
        with pytest.raises(PluginError, match=f"answered code {int(wrong)}, allowed are"):
            call_filter(Saying(codes), (), rows)


@pytest.mark.parametrize("answer", [[0, 0, 0], np.zeros(2, np.uint8), np.zeros(3), np.zeros((3, 1), np.uint8), "abc"])
def test_columns_have_the_shape_of_the_rows_and_are_integers(answer: Any) -> None:
    for call in (call_filter, call_score):
        with pytest.raises(PluginError, match="expected an array of 3 integers"):
            call(Saying(answer), (), ROWS)
    assert call_filter(Saying(None), (), ROWS) is None and call_score(Saying(None), (), ROWS) is None


def test_every_rejected_row_has_a_reason() -> None:
    codes = np.array([0, 2, 2], np.uint8)
    reasons = [("a", codes == 2), ("b", np.array([False, True, False]))]
    assert call_reasons(Saying(reasons), (), ROWS, codes) == reasons
    with pytest.raises(PluginError, match="without a reason"):
        call_reasons(Saying(reasons[1:]), (), ROWS, codes)
    with pytest.raises(PluginError, match="does not come with a column of 3 rows"):
        call_reasons(Saying([("a", np.array([True]))]), (), ROWS, codes)


def test_raw_scores_are_moved_into_the_bounds_before_they_are_normalised() -> None:
    class Same(Saying):
        def normalize(self, raw: Any, low: int, high: int) -> Any:
            return raw

    assert call_normalize(Same(None), np.array([-4, 3, 99]), 0, 10).tolist() == [0, 3, 10]
    with pytest.raises(PluginError, match=r"NormalizeScore.*broken"):
        call_normalize(Saying(RuntimeError("broken")), np.array([1]), 0, 1)


def test_groups_get_a_score_each_from_0_to_100() -> None:
    groups, feasible = RowGroups([np.arange(3)], 3), np.ones(3, np.bool_)
    assert call_score_groups(Saying([0, 100]), (), groups, [0, 2], feasible) == [0, 100]
    assert call_score_groups(Saying(None), (), groups, [0], feasible) is None
    with pytest.raises(PluginError, match="1 scores for 2 groups"):
        call_score_groups(Saying([5]), (), groups, [0, 2], feasible)
    for wrong in (-1, 101):
        with pytest.raises(PluginError, match=rf"score {wrong} lies outside 0\.\.100"):
            call_score_groups(Saying([5, wrong]), (), groups, [0, 2], feasible)
