"""Who is the first to keep a template off how many nodes: what is told of a pod that found a node.

Codes that are kept for decisions serve here, too. Any other filter is asked about the rows that those before it left, some at a
time: a plugin of plain functions takes 0.1 s and more for 5,000 nodes, and whoever decides waits meanwhile.

Owner: one Engine. Cost: some 10 µs for each filter whose codes are kept, a call of the plugin for any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

import numpy as np

from rayched.engine.cached_columns import BuildColumns, FilterColumn, refresh_each
from rayched.engine.plugin_calls import call_filter
from rayched.engine.prepared import Answer, PreparedPlugin
from rayched.framework.plugin import FilterPlugin
from rayched.framework.status import Code
from rayched.snapshot.columns import RowIndex
from rayched.snapshot.rows import Rows
from rayched.snapshot.table import NodeTable

ROWS_AT_ONCE: Final = 512


def first_rejections(
    table: NodeTable,
    filters: Sequence[PreparedPlugin],
    rows: RowIndex,
    kept: Callable[[PreparedPlugin], FilterColumn | None],
    build: BuildColumns,
) -> dict[str, int]:
    """Nodes by the name of the filter that rejects them first. Raises PluginError, AttemptOverBudget.

    `kept`: the column in which a filter's codes are kept for decisions, where there is one.
    """
    found: dict[str, int] = {}
    for asked in filters:
        if not len(rows):
            break
        codes = _codes(table, asked, rows, kept(asked), build)
        if codes is None:
            continue
        passes = codes == Code.SUCCESS
        if n_rejected := len(rows) - int(np.count_nonzero(passes)):
            found[asked.plugin.name] = n_rejected
            rows = rows[passes]
    return found


def _codes(table: NodeTable, asked: PreparedPlugin, rows: RowIndex, kept: FilterColumn | None, build: BuildColumns) -> Answer:
    """Shape (rows,)."""
    if kept is not None and kept.was_built:
        refresh_each([kept], build)
        return None if kept.column is None else kept.column[rows]
    codes = np.zeros(len(rows), np.uint8)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        table.work.spend()
        some = slice(start, start + ROWS_AT_ONCE)
        answer = call_filter(cast(FilterPlugin, asked.plugin), asked.state, Rows(table, rows[some]))
        if answer is not None:
            codes[some] = answer
    return codes
