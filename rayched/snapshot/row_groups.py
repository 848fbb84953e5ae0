"""Rows that are alike in what a score reads, as groups: a few numbers a group in place of a few arrays over all rows.

A row's group is told by its values, one integer for each thing that is read: the domain of a topology key, the pods of a selector
on the row. Most clusters have few such combinations however many nodes they have, so that a score is worked out once a group.

Invariants: rows with equal values have the same group, others have not. A group that has lost its last row keeps its number.

Owner: whoever reads the values and tells which rows changed. Cost: a row that moves 1 µs; making groups anew 0.2 µs a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rayched.snapshot.change_log import CHANGES_MAX, ChangeLog

Values = tuple[int, ...]

GROUPS_MAX: Final = 64
"""With more groups rows are scored one by one. Twice as many may come to be, as those without rows keep their numbers. The best
rows of each are followed where there are half as many."""
CODES_PER_ROW_MAX: Final = 16
"""So many codes for combinations of values are counted, not sorted."""


class RowGroups:
    """Groups over the rows of a table."""

    __slots__ = ("_by_values", "_occupied", "_sizes", "_values", "ids", "log")

    def __init__(self, columns: Sequence[NDArray[np.int64]], capacity: int) -> None:
        """A column for each value, of shape (n_rows,); one at least."""
        codes, ranges = columns[0] - columns[0].min(initial=0), 1
        ranges = int(codes.max(initial=0)) + 1
        for column in columns[1:]:
            shifted = column - column.min(initial=0)
            codes = codes + shifted * ranges
            ranges *= int(shifted.max(initial=0)) + 1
        # Codes are small as a rule: to count them is much faster than to sort them.
        if ranges <= CODES_PER_ROW_MAX * capacity:
            counts = np.bincount(codes, minlength=ranges)
            used = counts.nonzero()[0]
            number = np.zeros(ranges, np.intp)
            number[used] = np.arange(len(used))
            ids, sizes = number[codes], counts[used]
        else:
            _, ids, sizes = np.unique(np.stack(columns), axis=1, return_inverse=True, return_counts=True)
            ids = ids.reshape(-1)
        self.ids: NDArray[np.intp] = np.zeros(capacity, np.intp)
        """The group of each row. Shape (capacity,)."""
        self.ids[: len(ids)] = ids
        members = np.zeros(len(sizes), np.intp)
        members[ids] = np.arange(len(ids))
        self._values: list[Values] = list(zip(*(column[members].tolist() for column in columns), strict=True))
        self._sizes: list[int] = sizes.tolist()
        self._occupied: list[int] | None = None
        self._by_values = {values: number for number, values in enumerate(self._values)}
        self.log = ChangeLog(CHANGES_MAX)
        """Rows that moved to another group."""

    def __len__(self) -> int:
        """Groups, also those without a row."""
        return len(self._values)

    @property
    def n_bytes(self) -> int:
        return self.ids.nbytes + 200 * len(self._values)

    @property
    def values(self) -> Sequence[Values]:
        """The values of each group. Not to be changed."""
        return self._values

    @property
    def occupied(self) -> Sequence[int]:
        """The groups that have a row, ascending. Not to be changed."""
        if self._occupied is None:
            self._occupied = [group for group, size in enumerate(self._sizes) if size]
        return self._occupied

    def occupied_without(self, rows: Sequence[int]) -> Sequence[int]:
        """The groups that have any other row than these, of which each is named once, ascending."""
        ids = self.ids
        left: dict[int, int] = {}
        for row in rows:
            group = ids.item(row)
            left[group] = left.get(group, self._sizes[group]) - 1
        return [group for group in self.occupied if left.get(group, 1)]

    def size(self, group: int) -> int:
        """Rows of the group."""
        return self._sizes[group]

    def move(self, row: int, values: Values) -> None:
        """The row has these values now."""
        group = self._by_values.get(values)
        if group is None:
            group = self._by_values[values] = len(self._values)
            self._values.append(values)
            self._sizes.append(0)
        if self.ids.item(row) == group:
            return
        sizes, left = self._sizes, self.ids.item(row)
        sizes[left] -= 1
        sizes[group] += 1
        if not sizes[left] or sizes[group] == 1:
            self._occupied = None
        self.ids[row] = group
        self.log.append(row)
