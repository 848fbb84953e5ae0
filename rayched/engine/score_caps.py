"""Caps: the highest total that each row may have, where a filter or a nominated pod keeps it free.

A row that is kept free has the cap `infeasible`, every other row one that no total reaches. So to apply caps is a minimum, and a
filter with a log of its own does not touch the sums: counting filters (`DomainRejection`), host ports (`FilterCap`), rows that
nominated pods keep free (`RowsCap`). All have one interface: the version, the rows that changed since another version, and the
cap of one row or of all.

Invariant: `changed_since(version)` names every row whose cap differs from what it was at that version.

Cost: a comparison of two numbers while nothing has changed; else what the filter takes, and 0.2 µs a changed row.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from rayched.engine.cached_columns import BuildColumns, FilterColumn, LogCursor
from rayched.engine.column_store import CacheEntry
from rayched.engine.scale import Scale, TotalColumn
from rayched.snapshot.change_log import CHANGES_MAX, FEW, ChangeLog
from rayched.snapshot.columns import RowIndex
from rayched.snapshot.table import NodeTable

RowSet = frozenset[int] | RowIndex
NO_ROWS: Final[frozenset[int]] = frozenset()


class ScoreCap(Protocol):
    """Caps from one source."""

    @property
    def version(self) -> int:
        """Grows whenever any cap may have changed."""

    def changed_since(self, version: int) -> Sequence[int] | None:
        """Rows whose caps changed, perhaps repeated; None: any may have."""

    @property
    def is_lowering(self) -> bool:
        """Whether it has a cap that a total may reach, on any row."""

    def of(self, row: int) -> int:
        """The row's cap."""

    def lower(self, total: TotalColumn) -> None:
        """Apply the caps to the totals of all rows. Shape (n_rows,)."""


class CapColumn(CacheEntry):
    """Caps that are kept as a column, with a log of those that changed; `refresh` comes first, after any change."""

    __slots__ = ("_highest", "_log", "column", "scale", "table")

    def __init__(self, key: Hashable, table: NodeTable, scale: Scale) -> None:
        super().__init__(key)
        self.table = table
        self.scale = scale
        self.column: TotalColumn | None = None
        """Shape (capacity,); None: nothing is rejected."""
        self._log = ChangeLog(CHANGES_MAX)
        self._highest = int(scale.open)

    @property
    def n_bytes(self) -> int:
        return 0 if self.column is None else self.column.nbytes

    @property
    def version(self) -> int:
        return self._log.end

    def changed_since(self, version: int) -> list[int] | None:
        return self._log.since(version)

    @property
    def is_lowering(self) -> bool:
        return self.column is not None

    def of(self, row: int) -> int:
        return self._highest if self.column is None else self.column.item(row)

    def lower(self, total: TotalColumn) -> None:
        if self.column is not None:
            np.minimum(total, self.column[: len(total)], out=total)

    @abstractmethod
    def refresh(self, build: BuildColumns) -> None:
        """Bring up to date. Raises PluginError."""

    def _open(self) -> TotalColumn:
        return np.full(self.table.capacity, self.scale.open, self.scale.dtype)

    def _become(self, column: TotalColumn | None) -> None:
        """Take over all caps, and note those that differ."""
        n_rows = self.table.n_rows
        before, self.column = self.column, column
        if before is None or column is None:
            if before is not column:
                # Rows that are none yet may have a cap: so all have changed, even where no row of now has.
                self._log.cut()
        else:
            self._note((before[:n_rows] != column[:n_rows]).nonzero()[0])

    def _note(self, rows: NDArray[np.intp]) -> None:
        if len(rows) > FEW:
            self._log.cut()
        else:
            for row in rows.tolist():
                self._log.append(row)


class FilterCap(CapColumn):
    """Caps by a filter that follows another log than the sums do: host ports, say, of which few bindings say anything.

    In the usage sum such a filter would be asked about each row that a binding changed, and a pod with host ports could not share
    the sum of others with the same requests.
    """

    __slots__ = ("_cursor", "filter")

    def __init__(self, key: Hashable, table: NodeTable, scale: Scale, column: FilterColumn) -> None:
        super().__init__(key, table, scale)
        self.filter = column
        self._cursor = LogCursor(table, column.reads)

    @property
    def logs(self) -> tuple[ChangeLog, ...]:
        """What it goes by."""
        return self._cursor.logs

    def refresh(self, build: BuildColumns) -> None:
        if not self._cursor.is_behind():
            return
        self.filter.refresh(build)
        rows = self._cursor.changed(self.table.n_rows)
        codes = self.filter.column
        if rows is None or len(rows) > FEW or codes is None or self.column is None:
            column = None
            if codes is not None:
                column = self._open()
                column[codes != 0] = self.scale.infeasible
            self._become(column)
        else:
            for row in rows:
                cap = self.scale.infeasible if codes.item(row) else self._highest
                if cap != self.column.item(row):
                    self.column[row] = cap
                    self._log.append(row)
        self._cursor.catch_up()


class RowsCap:
    """Rows that are not feasible for reasons that no plugin knows."""

    __slots__ = ("_before", "_scale", "rows", "version")

    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        self.rows: RowSet = NO_ROWS
        self.version = 0
        self._before: RowSet = NO_ROWS
        """The rows of the version before."""

    def become(self, rows: RowSet) -> None:
        """These rows, and no others."""
        if rows is not self.rows:
            self._before, self.rows = self.rows, rows
            self.version += 1

    def changed_since(self, version: int) -> Sequence[int] | None:
        if version == self.version:
            return ()
        if version != self.version - 1:
            return None
        return list(frozenset(self._before) ^ frozenset(self.rows))

    @property
    def is_lowering(self) -> bool:
        return len(self.rows) > 0

    def of(self, row: int) -> int:
        return self._scale.infeasible if row in self.rows else int(self._scale.open)

    def lower(self, total: TotalColumn) -> None:
        rows = self.rows
        if len(rows):
            total[np.fromiter(rows, np.intp, len(rows)) if isinstance(rows, frozenset) else rows] = self._scale.infeasible
