"""One half of a plugin is asked, and answers for parts of the rows are put together."""

from __future__ import annotations

import numpy as np
import pytest

from rayched.engine.prepared import ColumnKey, PluginHalf, PreparedPlugin, join
from rayched.framework.plugin_error import PluginError
from rayched.snapshot.rows import Rows
from tests.engine.spies import Spy, a_snapshot


def test_a_key_asks_its_half_of_the_plugin() -> None:
    spy = Spy()
    asked = PreparedPlugin("spy", spy, None, b"")
    rows = Rows(a_snapshot(3), slice(0, 2))
    codes, scores = (ColumnKey(asked, part).ask(rows) for part in PluginHalf)
    assert codes is not None and codes.tolist() == [0, 0] and scores is not None and scores.tolist() == [50, 50]
    assert spy.asked == [("filter", [0, 1]), ("score", [0, 1])]


def test_keys_are_equal_where_plugin_and_half_are() -> None:
    one, other = (PreparedPlugin("spy", Spy(), None, b"") for _ in range(2))
    keys = {ColumnKey(one, PluginHalf.FILTER), ColumnKey(one, PluginHalf.FILTER), ColumnKey(one, PluginHalf.SCORE)}
    assert len(keys) == 2 and ColumnKey(other, PluginHalf.FILTER) not in keys


def test_answers_are_put_together_in_order_and_none_stands_for_all_rows() -> None:
    pieces = [np.array([1, 2], np.uint8), np.array([3], np.uint8)]
    found = join("spy", PluginHalf.FILTER, pieces)
    assert found is not None and found.tolist() == [1, 2, 3]
    assert join("spy", PluginHalf.SCORE, pieces[:1]) is pieces[0]
    assert join("spy", PluginHalf.SCORE, [None, None]) is None and join("spy", PluginHalf.SCORE, []) is None
    for part, point in ((PluginHalf.FILTER, "Filter"), (PluginHalf.SCORE, "Score")):
        with pytest.raises(PluginError, match=f"{point}: answered None for some rows"):
            join("spy", part, [pieces[0], None])
