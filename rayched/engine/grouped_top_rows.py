"""The best rows where one counting plugin adds the same score to all rows of a group.

What the sums come to is followed by itself, with the leaders of each group. A placement changes one row of it, and the scores of
a few groups, which are numbers added to their leaders: no pass over all rows, though the totals of all have changed. Which groups
have a feasible row, which scores depend on, is what the leaders tell anyhow.

Owner: a KeptTotal. Cost: 0.3 µs for each group that has a feasible row, besides what the plugin takes; a pass over the rows
where several groups lead.
"""

from __future__ import annotations

from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from rayched.engine.evaluation import NOT_FEASIBLE, Evaluation
from rayched.engine.plugin_calls import call_groups, call_score_groups
from rayched.engine.scale import TotalColumn
from rayched.engine.score_sum import CountedScore
from rayched.engine.top_rows import TopRows
from rayched.framework.accelerated import GroupingScorePlugin
from rayched.snapshot.change_log import CHANGES_MAX, FEW
from rayched.snapshot.columns import BoolColumn
from rayched.snapshot.row_groups import GROUPS_MAX, RowGroups


def groups_to_follow(score: CountedScore) -> RowGroups | None:
    """None: the plugin has none, or too many. Raises PluginError."""
    if score.by_group is None:
        return None
    groups = call_groups(cast(GroupingScorePlugin, score.asked.plugin), score.asked.state)
    if groups is None or 2 * len(groups.occupied) > GROUPS_MAX:
        return None
    return groups


class GroupedTopRows:
    """Leaders by the groups of one score."""

    __slots__ = (
        "_added",
        "_feasible",
        "_groups",
        "_ids",
        "_leaders",
        "_n_feasible",
        "_plugin",
        "_position",
        "_total",
        "score",
    )

    def __init__(self, score: CountedScore, groups: RowGroups, total: TotalColumn) -> None:
        """`total` without the score, shape (n_rows,); whoever changes it says so by `write`."""
        self.score = score
        self._plugin = cast(GroupingScorePlugin, score.asked.plugin)
        self._groups = groups
        self._total = total
        self._feasible: BoolColumn = total >= 0
        self._ids = groups.ids[: len(total)].copy()
        self._n_feasible: list[int] = np.bincount(self._ids[self._feasible], minlength=len(groups)).tolist()
        """Feasible rows of each group."""
        self._position = groups.log.end
        self._leaders = [self._of_group(group, n_feasible) for group, n_feasible in enumerate(self._n_feasible)]
        self._added: dict[int, int] = {}
        """What the score adds to each group with a feasible row, as of the last evaluation."""

    def write(self, row: int, old: int, value: int) -> None:
        """As `TopRows.write`."""
        self._write(self._ids.item(row), row, old, value)
        if (old >= 0) is not (value >= 0):
            self._feasible[row] = value >= 0

    def evaluation(self) -> Evaluation | None:
        """The totals with the plugin's scores; None: it has to be evaluated as a whole. Raises PluginError."""
        state, groups, total = self.score.asked.state, self._groups, self._total
        if call_groups(self._plugin, state) is not groups or not self._follow():
            return None
        leaders = self._leaders
        present = [group for group, n_feasible in enumerate(self._n_feasible) if n_feasible]
        if len(present) > GROUPS_MAX:
            return None
        n_feasible = sum(self._n_feasible)
        if n_feasible < 2:
            # Nobody is asked for scores.
            return (
                Evaluation(len(total), total, leaders[present[0]].best(), n_feasible=1, ties=leaders[present[0]].ties())
                if present
                else None
            )
        scores = call_score_groups(self._plugin, state, groups, present, self._feasible)
        if scores is None:
            return None
        weight = self.score.weight
        self._added = {group: score * weight for group, score in zip(present, scores, strict=True)}
        values = [(leaders[group].best() + added, group) for group, added in self._added.items()]
        best = max(values)[0]
        leading = [group for value, group in values if value == best]
        ties: list[int] | None = leaders[leading[0]].ties()
        if len(leading) > 1:
            several = [leaders[group].ties() for group in leading]
            ties = sorted(row for rows in several for row in rows) if sum(map(len, several)) <= CHANGES_MAX else None
        return Evaluation(len(total), total, best, n_feasible=n_feasible, ties=ties, added=self._column)

    def _column(self) -> TotalColumn:
        """What each row gets from the score. Shape (n_rows,)."""
        by_group: TotalColumn = np.zeros(len(self._leaders), self._total.dtype)
        for group, added in self._added.items():
            by_group[group] = added
        return by_group.take(self._ids)

    def _follow(self) -> bool:
        """Move rows that belong to another group now. False: they are too many, or the groups are."""
        groups, ids = self._groups, self._ids
        if self._position == groups.log.end:
            return True
        changed = groups.log.since(self._position)
        moved = None if changed is None else set(changed)
        if moved is None or len(moved) > FEW:
            return False
        self._position = groups.log.end
        for row in moved:
            old, new = ids.item(row), groups.ids.item(row)
            if old == new:
                continue
            while len(self._leaders) <= new:
                self._leaders.append(self._of_group(len(self._leaders), 0))
                self._n_feasible.append(0)
            value = max(self._total.item(row), NOT_FEASIBLE)
            ids[row] = new
            self._write(old, row, value, NOT_FEASIBLE)
            self._write(new, row, NOT_FEASIBLE, value)
        return True

    def _write(self, group: int, row: int, old: int, value: int) -> None:
        self._leaders[group].write(row, old, value)
        self._n_feasible[group] += (value >= 0) - (old >= 0)

    def _of_group(self, group: int, n_feasible: int) -> TopRows:
        # Not a method of `self`: what refers to itself stays in memory until garbage is collected, which is seldom.
        column = partial(_total_of, self._ids, self._total, group)
        return TopRows(column) if n_feasible else TopRows.of_no_row(column)


def _total_of(ids: NDArray[np.intp], total: TotalColumn, group: int) -> TotalColumn:
    """Totals of the group's rows, negative elsewhere. Shape (n_rows,)."""
    found: TotalColumn = np.where(ids == group, total, total.dtype.type(NOT_FEASIBLE))
    return found
