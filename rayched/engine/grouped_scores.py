"""Scores of counting plugins that are worked out once for each group of rows, and which groups have a feasible row.

A plugin's scores depend on which groups have one: domains are counted, and scores are stretched between the extremes. So that not
all rows are looked at for each pod, a row of each group stands for it, its witness: as long as that one is feasible, and still of
the group, the group is present. Only where a witness fails are all rows looked at, and a group that is found absent is not looked
for again before a row changed that could make it present. While few rows are not feasible it is enough to count these by group.

What the rows get is kept, for all plans that ask the plugin the same: where no group's score has changed only rows that moved
to another group are looked at.

Owner: one Stage, and all plans that ask the same share the column; both are in the store so that their bytes count. Cost: 4 µs,
half as much where nearly all rows are feasible, and one gather over the rows where a score has changed, besides what the plugin
takes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from rayched.engine.column_store import CacheEntry
from rayched.engine.domain_state import DomainState
from rayched.engine.plugin_calls import call_groups, call_score_groups
from rayched.engine.scale import TotalColumn
from rayched.framework.accelerated import GroupingScorePlugin
from rayched.snapshot.change_log import FEW, ChangeLog
from rayched.snapshot.columns import BoolColumn, Log
from rayched.snapshot.row_groups import RowGroups
from rayched.snapshot.table import NodeTable

OTHERS_MAX: Final = 64
"""With no more rows that are not feasible these are left out of their groups one by one."""

_NO_ROWS: Final[NDArray[np.intp]] = np.zeros(0, np.intp)
_NO_GROUPS: Final[BoolColumn] = np.zeros(0, np.bool_)
_NO_VALUES: Final[NDArray[np.int64]] = np.zeros(0, np.int64)


class GroupColumn(CacheEntry):
    """What each row gets of one plugin's scores of groups; one for all plans that ask the plugin the same."""

    __slots__ = ("_column", "_groups", "_moves", "_values", "_weight")

    def __init__(self, key: Hashable, weight: int) -> None:
        super().__init__(key)
        self._weight = weight
        self._groups: RowGroups | None = None
        self._moves = 0
        """Where the groups' log ended when `_column` was written."""
        self._values: list[int] = []
        """What each group adds."""
        self._column: TotalColumn = _NO_VALUES
        """The same of each row. Shape (capacity,)."""

    @property
    def n_bytes(self) -> int:
        return self._column.nbytes

    def with_scores(self, groups: RowGroups, present: Sequence[int], scores: Sequence[int], dtype: np.dtype[Any]) -> TotalColumn:
        """The column for these scores of the groups that are present. Shape (capacity,)."""
        column, weight = self._column, self._weight
        values = [0] * len(groups)
        for group, score in zip(present, scores, strict=True):
            values[group] = score * weight
        is_same = groups is self._groups and values == self._values and column.shape == groups.ids.shape
        moved = groups.log.since(self._moves) if is_same else None
        if moved is not None and len(moved) <= FEW:
            for row in moved:
                column[row] = values[groups.ids.item(row)]
        else:
            if column.shape != groups.ids.shape:
                column = self._column = np.zeros(len(groups.ids), dtype)
            # Without the check of the bounds, which hold, it takes half the time.
            np.array(values, dtype).take(groups.ids, out=column, mode="clip")
        self._groups, self._moves, self._values = groups, groups.log.end, values
        return column


class GroupedScore(CacheEntry):
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
        "_witnesses",
    )

    def __init__(self, key: Hashable, table: NodeTable, asked: DomainState, column: GroupColumn) -> None:
        super().__init__(key)
        self._asked = asked
        self._plugin = cast(GroupingScorePlugin, asked.plugin)
        self._column = column
        self._groups: RowGroups | None = None
        """Those that witnesses are known of."""
        self._witnesses: NDArray[np.intp] = _NO_ROWS
        """A row of each group that was feasible when it was looked for; any row where there was none."""
        self._absent: BoolColumn = _NO_GROUPS
        """Groups that had no feasible row when all rows were looked at, at `_position` of the log."""
        self._log: ChangeLog = table.logs[Log.USAGE]
        self._position = -1
        self._circumstances: Hashable | None = None
        self._present: list[int] = []
        """Groups that have a feasible row, as of the last time that many were not."""
        self._moves = -1
        """Where the groups' log ended when the witnesses were of their groups."""

    @property
    def n_bytes(self) -> int:
        return self._witnesses.nbytes + self._absent.nbytes

    def add(
        self, total: TotalColumn, feasible: BoolColumn, n_feasible: int, circumstances: Callable[[], Hashable | None]
    ) -> bool | None:
        """Add the scores to the totals; at least two rows are feasible. Returns whether there were any.

        None: the plugin has no groups just now. Where `circumstances` gives what it gave the last time, a row can only have
        become feasible if it is in the log of usage; None: they never are. Raises PluginError.
        """
        state = self._asked.state
        groups = call_groups(self._plugin, state)
        if groups is None:
            return None
        n_others = len(total) - n_feasible
        if not n_others:
            present = groups.occupied
        elif n_others <= OTHERS_MAX:
            present = groups.occupied_without((~feasible).nonzero()[0].tolist())
        else:
            present = self._look_for(groups, total, circumstances())
        scores = call_score_groups(self._plugin, state, groups, present, feasible)
        if scores is None:
            return False
        total += self._column.with_scores(groups, present, scores, total.dtype)[: len(total)]
        return True

    def _look_for(self, groups: RowGroups, total: TotalColumn, circumstances: Hashable | None) -> Sequence[int]:
        """The groups that have a feasible row, ascending, where many rows are not."""
        known = groups is self._groups
        if not (known and self._is_all_present(groups, total)):
            self._present = self._find_present(groups, total, circumstances, known=known).nonzero()[0].tolist()
        self._circumstances = circumstances
        self._groups, self._moves = groups, groups.log.end
        return self._present

    def _is_all_present(self, groups: RowGroups, total: TotalColumn) -> bool:
        """Whether every group has a feasible row, as the last time, and no row has moved to another group since."""
        if len(self._present) != len(groups) or self._moves != groups.log.end:
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
        if not same or changed is None or moved is None or len(changed) + len(moved) > FEW:
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
