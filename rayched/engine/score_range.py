"""Scores outside 0..100: an error of the plugin where the row is feasible, of no interest elsewhere.

Columns mark such scores when they are computed, so that the usual case, none, costs a comparison or two for each pod.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from rayched.engine.cached_columns import OUTSIDE, ByteColumn, CachedColumn
from rayched.engine.plugin_calls import call_normalize, out_of_range
from rayched.engine.prepared import SCORE_HALF
from rayched.engine.scale import TotalColumn
from rayched.engine.score_sum import ScoreSum
from rayched.framework.plugin import MAX_NODE_SCORE, ScorePlugin
from rayched.snapshot.columns import BoolColumn, RowIndex
from rayched.snapshot.rows import Rows


def check_scores(stage: ScoreSum, total: TotalColumn) -> None:
    """Raise PluginError if a feasible row's score lies outside 0..100."""
    feasible: BoolColumn = total >= 0
    rows = feasible.nonzero()[0]
    suspects = np.array(sorted(stage.usage.outside), np.intp)
    _raise_for(stage.usage, suspects[feasible[suspects]])
    for final in stage.static.scores:
        if final.kept.column is not None:
            _raise_for(final.kept, _outside(final.kept.column, feasible))
    for score in (*stage.static.raw_scores, *stage.rescaled):
        bounds = score.kept.bounds_over(rows)
        scaled = score.kept.scaled(bounds)
        if scaled is not None and score.kept.column is not None:
            outside = _outside(scaled, feasible)
            if len(outside):
                plugin = score.kept.plugin
                raise out_of_range(plugin, int(call_normalize(plugin, score.kept.column[outside[:1]], *bounds)[0]))


def _outside(column: ByteColumn, feasible: BoolColumn) -> RowIndex:
    outside: RowIndex = ((column[: len(feasible)] == OUTSIDE) & feasible).nonzero()[0]
    return outside


def _raise_for(kept: CachedColumn, rows: RowIndex) -> None:
    """Ask again for the first of these rows, as only that some score is outside was kept."""
    if not len(rows):
        return
    for question in kept.questions:
        if question.part is SCORE_HALF:
            answer = question.ask(Rows(kept.table, rows[:1]))
            if answer is not None and not 0 <= answer.item(0) <= MAX_NODE_SCORE:
                raise out_of_range(cast(ScorePlugin, question.asked.plugin), answer.item(0))
