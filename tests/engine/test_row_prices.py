"""What a row costs, by plugin and half, as a running mean."""

from __future__ import annotations

import pytest

from rayched.engine.prepared import ColumnKey, PluginHalf, PreparedPlugin
from rayched.engine.row_prices import NEW_SHARE, RowPrices
from tests.engine.spies import Spy


def question(part: PluginHalf) -> ColumnKey:
    return ColumnKey(PreparedPlugin("key", Spy(), None, b""), part)


def test_the_first_price_is_what_was_measured_and_later_ones_move_it() -> None:
    prices, score = RowPrices(), question(PluginHalf.SCORE)
    assert prices.of(score) is None
    assert prices.note(score, 100, 1.0) == prices.of(score) == pytest.approx(0.01)
    assert prices.note(score, 10, 0.3) == pytest.approx(0.01 + NEW_SHARE * (0.03 - 0.01))
    assert prices.of(question(PluginHalf.FILTER)) is None, "the other half has its own"


def test_no_rows_say_nothing() -> None:
    prices, score = RowPrices(), question(PluginHalf.SCORE)
    assert prices.note(score, 0, 1.0) == 0.0 and prices.of(score) is None
