"""The best rows where one counting plugin adds the same score to all rows of a group.

What the sums come to is followed by itself, with the leaders of each group. A placement changes one row of it, and the scores of
a few groups, which are numbers added to their leaders: no pass over all rows, though the totals of all have changed. Which groups
have a feasible row, which scores depend on, is what the leaders tell anyhow.

Owner: an EqualRun. Cost: 0.3 µs a group besides what the plugin takes; a pass over the rows where several groups lead.
"""

from __future__ import annotations

from functools import partial
from typing import Final, cast

import numpy as np

from rayched.framework.evaluation import NOT_FEASIBLE, Evaluation
from rayched.framework.leaders import Leaders
from rayched.framework.plan import CountedScore
from rayched.framework.plugin import GroupingScorePlugin
from rayched.framework.plugin_calls import call_groups, call_score_groups
from rayched.framework.usage_sum import TotalColumn
from rayched.snapshot.columns import BoolColumn
from rayched.snapshot.row_groups import RowGroups

GROUPS_MAX: Final = 32
"""With more groups one pass over all rows is as good."""
MOVED_MAX: Final = 16
"""The same for rows that moved to another group."""
MERGED_MAX: Final = 64
"""So many rows that tie are put in order; of more, all rows are looked at."""


def groups_to_follow(score: CountedScore) -> RowGroups | None:
    """None: the plugin has none, or too many. Raises PluginError."""
    if score.by_group is None:
        return None
    groups = call_groups(cast(GroupingScorePlugin, score.asked.plugin), score.asked.state)
    return None if groups is None or len(groups) > GROUPS_MAX else groups


class GroupLeaders:
    """Leaders by the groups of one score."""

    __slots__ = ("_feasible", "_groups", "_ids", "_leaders", "_n_feasible", "_plugin", "_position", "_score", "_total")

    def __init__(self, score: CountedScore, groups: RowGroups, total: TotalColumn) -> None:
        """`total` without the score, shape (n_rows,); whoever changes it says so by `write`."""
        self._score = score
        self._plugin = cast(GroupingScorePlugin, score.asked.plugin)
        self._groups = groups
        self._total = total
        self._feasible: BoolColumn = total >= 0
        self._n_feasible = int(np.count_nonzero(self._feasible))
        self._ids = groups.ids[: len(total)].copy()
        self._position = groups.log.end
        self._leaders = [Leaders(partial(self._of_group, group)) for group in range(len(groups))]

    def write(self, row: int, old: int, value: int) -> None:
        """As `Leaders.write`."""
        self._leaders[self._ids.item(row)].write(row, old, value)
        if (old >= 0) is not (value >= 0):
            self._feasible[row] = value >= 0
            self._n_feasible += 1 if value >= 0 else -1

    def evaluation(self) -> Evaluation | None:
        """The totals with the plugin's scores; None: it has to be evaluated as a whole. Raises PluginError."""
        state, groups, total = self._score.asked.state, self._groups, self._total
        if call_groups(self._plugin, state) is not groups or not self._follow():
            return None
        leaders = self._leaders
        bests = [one.best() for one in leaders]
        present = [group for group, best in enumerate(bests) if best >= 0]
        if self._n_feasible < 2:
            # Nobody is asked for scores.
            return (
                Evaluation(len(total), total, bests[present[0]], n_feasible=1, ties=leaders[present[0]].ties())
                if present
                else None
            )
        scores = call_score_groups(self._plugin, state, groups, present, self._feasible)
        if scores is None:
            return None
        weight, best = self._score.weight, NOT_FEASIBLE
        leading: list[int] = []
        for group, score in zip(present, scores, strict=True):
            value = bests[group] + score * weight
            if value > best:
                best, leading = value, [group]
            elif value == best:
                leading.append(group)
        ties: list[int] | None = leaders[leading[0]].ties()
        if len(leading) > 1:
            several = [leaders[group].ties() for group in leading]
            ties = sorted(row for rows in several for row in rows) if sum(map(len, several)) <= MERGED_MAX else None
        values = dict(zip(present, scores, strict=True))
        return Evaluation(
            len(total), total, best, n_feasible=self._n_feasible, ties=ties, added=lambda: self._added(values, weight)
        )

    def _added(self, scores: dict[int, int], weight: int) -> TotalColumn:
        """What each row gets. Shape (n_rows,)."""
        values = [scores.get(group, 0) * weight for group in range(len(self._leaders))]
        return np.array(values, self._total.dtype)[self._ids]

    def _follow(self) -> bool:
        """Move rows that belong to another group now. False: they are too many, or the groups are."""
        groups, ids = self._groups, self._ids
        if self._position == groups.log.end:
            return True
        moved = groups.log.since(self._position)
        if moved is None or len(moved) > MOVED_MAX or len(groups) > 2 * GROUPS_MAX:
            return False
        self._position = groups.log.end
        for row in moved:
            old, new = ids.item(row), groups.ids.item(row)
            if old == new:
                continue
            while len(self._leaders) <= new:
                self._leaders.append(Leaders.of_no_row(partial(self._of_group, len(self._leaders))))
            value = max(self._total.item(row), NOT_FEASIBLE)
            ids[row] = new
            self._leaders[old].write(row, value, NOT_FEASIBLE)
            self._leaders[new].write(row, NOT_FEASIBLE, value)
        return True

    def _of_group(self, group: int) -> TotalColumn:
        """Totals of the group's rows, negative elsewhere. Shape (n_rows,)."""
        found: TotalColumn = np.where(self._ids == group, self._total, self._total.dtype.type(NOT_FEASIBLE))
        return found
