"""A template against any rows at once, without columns to keep: some rows, rows as they would be, or all of them to be explained.

The same calls and the same arithmetic as the memoised way, in the order of an attempt: filters on all rows, scores on those that
pass, normalisation by the bounds over those. Used where few rows matter or where each plugin's part is asked for.

Cost: every plugin once over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rayched.engine.domain_state import DomainState, score_counted
from rayched.engine.evaluation import NOT_FEASIBLE, PluginColumns, RowsEvaluation
from rayched.engine.plugin_calls import call_filter, call_normalize, call_score, out_of_range
from rayched.engine.prepared import PreparedPlugin
from rayched.framework.plugin import MAX_NODE_SCORE, FilterPlugin, NormalizingPlugin, ScorePlugin
from rayched.framework.status import Code
from rayched.snapshot.columns import CodeColumn, ScoreColumn
from rayched.snapshot.rows import Rows


class WeightedScore(NamedTuple):
    """A score plugin that is asked, with its weight."""

    asked: PreparedPlugin
    weight: int
    normalizes: bool


@dataclass(frozen=True, slots=True)
class Filtered:
    """What filters say about rows. Columns of shape (rows,)."""

    codes: CodeColumn
    """The code of the first filter that rejects the row; SUCCESS where none does.

    A row that is no node is UNSCHEDULABLE_AND_UNRESOLVABLE, whatever filters say.
    """
    failing: NDArray[np.int16]
    """The place of that filter; -1 where none rejects the row."""
    columns: tuple[PluginColumns, ...]


def filter_rows(filters: Sequence[PreparedPlugin], rows: Rows) -> Filtered:
    """Ask every filter about every row; without rows nobody is asked."""
    codes = ~rows.alive * np.uint8(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
    failing = np.full(rows.n, -1, np.int16)
    columns = []
    for place, asked in enumerate(filters):
        answer = call_filter(cast(FilterPlugin, asked.plugin), asked.state, rows) if rows.n else None
        columns.append(PluginColumns(asked.plugin.name, codes=answer))
        if answer is not None:
            first = (codes == Code.SUCCESS) & (answer != Code.SUCCESS)
            codes[first] = answer[first]
            failing[first] = place
    return Filtered(codes, failing, tuple(columns))


def evaluate_rows(
    filters: Sequence[PreparedPlugin],
    scores: Sequence[WeightedScore],
    rows: Rows,
    *,
    explain: bool = False,
    as_nominated: tuple[Rows, Filtered] | None = None,
) -> RowsEvaluation:
    """Filters, then scores of the feasible rows.

    With exactly one feasible row nobody is asked for a score and its total is 0, as in an attempt; `explain` asks nevertheless.
    `as_nominated` are some of the rows (which are in ascending order then) with the pods that are nominated to them: where that
    is rejected, it is what counts.
    Raises PluginError where a feasible row's score is not in 0..100.
    """
    filtered = filter_rows(filters, rows)
    if as_nominated is not None:
        would_be, then = as_nominated
        rejected = (then.codes != Code.SUCCESS).nonzero()[0]
        places = np.searchsorted(rows.index, would_be.index[rejected])
        filtered.codes[places], filtered.failing[places] = then.codes[rejected], then.failing[rejected]
    feasible = (filtered.codes == Code.SUCCESS).nonzero()[0]
    total = np.full(rows.n, NOT_FEASIBLE, np.int64)
    total[feasible] = 0
    columns: list[PluginColumns] = []
    if len(feasible) > 1 or (explain and len(feasible)):
        passing = rows.only(feasible)
        for score in scores:
            found = _scored(score, passing)
            if found is not None:
                raw, normalized = found
                weighted = normalized * np.int64(score.weight)
                total[feasible] += weighted
                spread = [_over(rows.n, feasible, column) for column in (raw, normalized, weighted)]
                columns.append(PluginColumns(score.asked.plugin.name, None, *spread))
    return RowsEvaluation(rows.index, filtered.codes, filtered.failing, filtered.columns, tuple(columns), total)


def _scored(score: WeightedScore, rows: Rows) -> tuple[ScoreColumn, ScoreColumn] | None:
    """Raw and normalised scores of rows that are all feasible."""
    plugin = cast(ScorePlugin, score.asked.plugin)
    if isinstance(score.asked, DomainState):
        return score_counted(score.asked, rows)
    raw = call_score(plugin, score.asked.state, rows)
    if raw is None:
        return None
    normalized = raw
    if score.normalizes:
        normalized = call_normalize(cast(NormalizingPlugin, plugin), raw, int(raw.min()), int(raw.max()))
    outside = ((normalized < 0) | (normalized > MAX_NODE_SCORE)).nonzero()[0]
    if len(outside):
        raise out_of_range(plugin, int(normalized[outside[0]]))
    return raw, normalized


def _over(n: int, places: NDArray[np.intp], column: ScoreColumn) -> ScoreColumn:
    spread = np.zeros(n, np.int64)
    spread[places] = column
    return spread
