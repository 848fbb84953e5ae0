"""Scores of counting plugins that are worked out once for each group of rows, and which groups have a feasible row.

A plugin's scores depend on which groups have one: domains are counted, and scores are stretched between the extremes. So that not
all rows are looked at for each pod, a row of each group stands for it, its witness: as long as that one is feasible, and still of
the group, the group is present. Only where a witness fails are all rows looked at, and a group that is found absent is not looked
for again before a row changed that could make it present.

Owner: one Stage. Cost: 8 µs and one gather over the rows, besides what the plugin takes for its groups.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from rayched.framework.counting import CountedAsked
from rayched.framework.plugin import GroupingScorePlugin
from rayched.framework.plugin_calls import call_groups, call_score_groups
from rayched.framework.usage_sum import TotalColumn
from rayched.snapshot.change_log import ChangeLog
from rayched.snapshot.columns import BoolColumn, Log
from rayched.snapshot.row_groups import RowGroups
from rayched.snapshot.table import NodeTable

LOOKED_AT_MAX: Final = 32
"""More changed rows than this are not looked at one by one: all rows together take no longer."""


class GroupedScore:
    """One plugin's part in the totals of one stage."""

    __slots__ = ("_absent", "_asked", "_circumstances", "_groups", "_log", "_plugin", "_position", "_weight", "_witnesses")

    def __init__(self, table: NodeTable, asked: CountedAsked, weight: int) -> None:
        self._asked = asked
        self._plugin = cast(GroupingScorePlugin, asked.plugin)
        self._weight = weight
        self._groups: RowGroups | None = None
        self._witnesses: NDArray[np.intp] = np.zeros(0, np.intp)
        """A row of each group that was feasible when it was looked for; any row where there was none."""
        self._absent: BoolColumn = np.zeros(0, np.bool_)
        """Groups that had no feasible row when all rows were looked at, at `_position` of the log."""
        self._log: ChangeLog = table.logs[Log.USAGE]
        self._position = -1
        self._circumstances: Hashable | None = None

    def add(self, total: TotalColumn, feasible: BoolColumn, circumstances: Hashable | None) -> bool | None:
        """Add the scores to the totals; at least two rows are feasible. Returns whether there were any.

        None: the plugin has no groups just now. Where `circumstances` are what they were the last time, a row can only have
        become feasible if it is in the log of usage; None: they never are. Raises PluginError.
        """
        state = self._asked.state
        groups = call_groups(self._plugin, state)
        if groups is None:
            return None
        present = self._present(groups, total, circumstances).nonzero()[0]
        scores = call_score_groups(self._plugin, state, groups, present.tolist(), feasible)
        if scores is None:
            return False
        by_group = np.zeros(len(groups), total.dtype)
        by_group[present] = [score * self._weight for score in scores]
        total += by_group[groups.ids[: len(total)]]
        return True

    def _present(self, groups: RowGroups, total: TotalColumn, circumstances: Hashable | None) -> BoolColumn:
        """Which groups have a feasible row. Shape (groups,)."""
        n = len(groups)
        known = groups is self._groups
        self._groups = groups
        same = circumstances is not None and circumstances == self._circumstances
        self._circumstances = circumstances
        if not known:
            return self._look(groups, total)
        if len(self._witnesses) < n:
            more = n - len(self._witnesses)
            self._witnesses = np.concatenate((self._witnesses, np.zeros(more, np.intp)))
            self._absent = np.concatenate((self._absent, np.zeros(more, np.bool_)))
        witnesses = self._witnesses
        present: BoolColumn = (total[witnesses] >= 0) & (groups.ids[witnesses] == np.arange(n))
        if present.all():
            self._absent = ~present
            self._position = self._log.end
            return present
        changed = self._log.since(self._position)
        if not same or changed is None or len(changed) > LOOKED_AT_MAX:
            return self._look(groups, total)
        self._position = self._log.end
        ids = groups.ids
        for row in changed:
            # A row that moved into a group, or became feasible, is as good a witness as any.
            group = ids.item(row)
            if not present.item(group) and total.item(row) >= 0:
                witnesses[group] = row
                present[group] = True
        self._absent &= ~present
        missing = (~present & ~self._absent).nonzero()[0].tolist()
        if any(groups.size(group) for group in missing):
            return self._look(groups, total)
        return present

    def _look(self, groups: RowGroups, total: TotalColumn) -> BoolColumn:
        """Look at all rows."""
        feasible = (total >= 0).nonzero()[0]
        self._witnesses = np.zeros(len(groups), np.intp)
        present: BoolColumn = np.zeros(len(groups), np.bool_)
        ids = groups.ids[feasible]
        self._witnesses[ids] = feasible
        present[ids] = True
        self._absent = ~present
        self._position = self._log.end
        return present
