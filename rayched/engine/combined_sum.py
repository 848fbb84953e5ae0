"""A usage sum and filters that follow another log than it does: host ports, say, of which few bindings say anything.

Without it such a filter would be asked about each row that a binding changed, and a pod with host ports could not share the sum
of others with the same requests. Here each part follows its own logs, and what is kept besides is their sum.

Looks to its readers as a UsageSum does. Cost: what the parts take, and 5 µs where several rows changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from rayched.engine.cached_columns import BuildColumns, CachedColumn, FilterColumn, LogCursor, refresh_each, selection_of
from rayched.engine.column_store import CacheEntry
from rayched.engine.prepared import ColumnKey
from rayched.engine.usage_values import TotalColumn, UsageSum
from rayched.snapshot.rows import Selection
from rayched.snapshot.table import NodeTable


class CombinedSum(CacheEntry):
    """A usage sum, `infeasible` also where one of the filters rejects the row."""

    __slots__ = ("_filters", "_usage", "column", "follower", "n_installed", "table")

    def __init__(self, key: Hashable, usage: UsageSum, filters: Sequence[FilterColumn]) -> None:
        super().__init__(key)
        self.table: NodeTable = usage.table
        self._usage = usage
        self._filters = tuple(filters)
        reads = usage.reads
        for one in filters:
            reads |= one.reads
        self.follower = LogCursor(usage.table, reads)
        self.column: TotalColumn = np.zeros(usage.table.capacity, usage.scale.dtype)
        """Shape (capacity,)."""
        self.n_installed = 0
        """How often all rows were added up anew."""

    @property
    def n_bytes(self) -> int:
        return self.column.nbytes

    @property
    def questions(self) -> tuple[ColumnKey, ...]:
        """Those with scores among them."""
        return self._usage.questions

    @property
    def filters(self) -> tuple[FilterColumn, ...]:
        """Those that follow logs of their own."""
        return self._filters

    @property
    def outside(self) -> set[int]:
        """Rows to which some plugin gives a score outside 0..100."""
        return self._usage.outside

    def kept(self) -> list[CachedColumn]:
        """The columns that it is made of."""
        return [self._usage, *self._filters]

    def bring_along(self) -> bool:
        """Bring the usage sum up to date where that can be done with others; False: nothing was done."""
        return self._usage.bring_along()

    def refresh(self, build: BuildColumns) -> None:
        """Bring up to date. Raises PluginError."""
        if not self.follower.is_behind():
            return
        rows = self.follower.changed(self.table.n_rows)
        if rows is None:
            build([one for one in self.kept() if not one.was_built])
            self._refresh_parts(build)
            self._write(slice(0, self.table.n_rows))
            self.n_installed += 1
        else:
            self.refresh_rows(rows, build)
        self.follower.catch_up()

    def refresh_rows(self, rows: list[int], build: BuildColumns) -> None:
        """Bring up to date where nothing else has changed."""
        self._refresh_parts(build)
        if len(rows) == 1:
            row = rows[0]
            rejected = any(one.column is not None and one.column.item(row) for one in self._filters)
            self.column[row] = self._usage.scale.infeasible if rejected else self._usage.column.item(row)
        elif rows:
            self._write(selection_of(rows))

    def _refresh_parts(self, build: BuildColumns) -> None:
        self._usage.refresh(build)
        refresh_each(self._filters, build)

    def _write(self, selection: Selection) -> None:
        values = self._usage.column[selection].copy()
        for one in self._filters:
            if one.column is not None:
                values[one.column[selection] != 0] = self._usage.scale.infeasible
        self.column[selection] = values
