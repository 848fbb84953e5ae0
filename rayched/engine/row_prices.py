"""What a row of a column takes, as it was measured last: by plugin, and by half.

A price is a running mean of what evaluations of many rows took. Plugins in columns take some 10 ns a row, those of plain
functions some 10 us, so a price need not be exact: it tells apart what is worth a worker's time.

Owner: one ColumnBuilder. No clock: seconds come in.
"""

from __future__ import annotations

from typing import Final

from rayched.engine.prepared import ColumnKey, PluginHalf

NEW_SHARE: Final = 0.3
"""Of the mean, for the evaluation that was measured last."""


class RowPrices:
    """Seconds a row."""

    __slots__ = ("_prices",)

    def __init__(self) -> None:
        self._prices: dict[tuple[str, PluginHalf], float] = {}

    def of(self, question: ColumnKey) -> float | None:
        """None: it was never measured."""
        return self._prices.get((question.asked.plugin.name, question.part))

    def note(self, question: ColumnKey, n_rows: int, seconds: float) -> float:
        """So many rows took so long. Returns the price from now on."""
        key = question.asked.plugin.name, question.part
        known = self._prices.get(key)
        if n_rows:
            price = seconds / n_rows
            known = self._prices[key] = price if known is None else known + NEW_SHARE * (price - known)
        return known or 0.0
