"""Scores of counting plugins that are worked out once for each group of rows, and which groups have a feasible row.

A plugin's scores depend on which groups have one: domains are counted, and scores are stretched between the extremes. So that not
all rows are looked at for each pod, a row of each group stands for it, its witness: as long as that one is feasible, and still of
the group, the group is present. Only where a witness fails are all rows looked at, and a group that is found absent is not looked
for again before a row changed that could make it present.

What the rows get is kept: where no group's score has changed only rows that moved to another group are looked at.

Owner: one Stage, which has it in the store so that its bytes count. Cost: 4 µs, and one gather over the rows where a score has
changed, besides what the plugin takes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from rayched.framework.column_store import SharedEntry
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

_NO_ROWS: Final[NDArray[np.intp]] = np.zeros(0, np.intp)
_NO_GROUPS: Final[BoolColumn] = np.zeros(0, np.bool_)
_NO_VALUES: Final[NDArray[np.int64]] = np.zeros(0, np.int64)


class GroupedScore(SharedEntry):
    """One plugin's part in the totals of one stage."""

    __slots__ = (
        "_absent",
        "_asked",
        "_circumstances",
        "_column",
        "_groups",
        "_log",
        "_moves",
        "_plugin",
        "_position",
        "_present",
        "_scored",
        "_values",
        "_weight",
        "_witnesses",
    )

    def __init__(self, key: Hashable, table: NodeTable, asked: CountedAsked, weight: int) -> None:
        super().__init__(key)
        self._asked = asked
        self._plugin = cast(GroupingScorePlugin, asked.plugin)
        self._weight = weight
        self._groups: RowGroups | None = None
        self._witnesses: NDArray[np.intp] = _NO_ROWS
        """A row of each group that was feasible when it was looked for; any row where there was none."""
        self._absent: BoolColumn = _NO_GROUPS
        """Groups that had no feasible row when all rows were looked at, at `_position` of the log."""
        self._log: ChangeLog = table.logs[Log.USAGE]
        self._position = -1
        self._circumstances: Hashable | None = None
        self._present: list[int] = []
        """Groups that have a feasible row, as of the last time."""
        self._moves = -1
        """Where the groups' log ended when the witnesses were of their groups and `_column` was written; -1: never."""
        self._values: TotalColumn = _NO_VALUES
        """What each group adds. Shape (groups,)."""
        self._scored: tuple[list[int], Sequence[int]] = [], ()
        """Groups and their scores, of which `_values` was made."""
        self._column: TotalColumn = _NO_VALUES
        """What each row adds. Shape (capacity,)."""

    @property
    def n_bytes(self) -> int:
        return self._column.nbytes + self._values.nbytes + self._witnesses.nbytes + self._absent.nbytes

    def add(self, total: TotalColumn, feasible: BoolColumn, circumstances: Hashable | None) -> bool | None:
        """Add the scores to the totals; at least two rows are feasible. Returns whether there were any.

        None: the plugin has no groups just now. Where `circumstances` are what they were the last time, a row can only have
        become feasible if it is in the log of usage; None: they never are. Raises PluginError.
        """
        state = self._asked.state
        groups = call_groups(self._plugin, state)
        if groups is None:
            return None
        known = groups is self._groups
        if not (known and self._is_all_present(groups, total)):
            self._present = self._find_present(groups, total, circumstances, known=known).nonzero()[0].tolist()
        self._circumstances = circumstances
        scores = call_score_groups(self._plugin, state, groups, self._present, feasible)
        if scores is None:
            self._groups, self._moves = groups, -1
            return False
        self._write(groups, scores, total, known=known)
        self._groups, self._moves = groups, groups.log.end
        total += self._column[: len(total)]
        return True

    def _write(self, groups: RowGroups, scores: Sequence[int], total: TotalColumn, *, known: bool) -> None:
        """Bring up to date what the rows get."""
        moved = groups.log.since(self._moves) if known and self._moves >= 0 else None
        scored = self._present, scores
        if moved is None or scored != self._scored or len(self._values) != len(groups):
            values = [score * self._weight for score in scores]
            if len(values) < len(groups):
                of_all = [0] * len(groups)
                for group, value in zip(self._present, values, strict=True):
                    of_all[group] = value
                values = of_all
            self._values = np.array(values, total.dtype)
            if self._column.shape != groups.ids.shape:
                self._column = np.zeros(len(groups.ids), total.dtype)
            # Without the check of the bounds, which hold, it takes half the time.
            self._values.take(groups.ids, out=self._column, mode="clip")
            self._scored = scored
        else:
            for row in moved:
                self._column[row] = self._values.item(groups.ids.item(row))

    def _is_all_present(self, groups: RowGroups, total: TotalColumn) -> bool:
        """Whether every group has a feasible row, as the last time, and no row has moved to another group since."""
        if len(self._present) != len(groups) or len(self._witnesses) != len(groups) or self._moves != groups.log.end:
            return False
        return bool(total[self._witnesses].min(initial=0) >= 0)

    def _find_present(self, groups: RowGroups, total: TotalColumn, circumstances: Hashable | None, *, known: bool) -> BoolColumn:
        """Which groups have a feasible row. Shape (groups,)."""
        n = len(groups)
        same = circumstances is not None and circumstances == self._circumstances
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
        changed, moved = self._log.since(self._position), groups.log.since(self._moves)
        if not same or changed is None or moved is None or len(changed) + len(moved) > LOOKED_AT_MAX:
            return self._look(groups, total)
        self._position = self._log.end
        ids = groups.ids
        for row in (*changed, *moved):
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
