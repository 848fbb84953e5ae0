"""Sums of a row that may be more than an int64 holds: kept exactly beside the table, and shown there as the greatest number.

Bound pods may ask for more than there is, as two of 7Ei that named their node themselves. A sum that wrapped would be below
zero, and the node look free. So rows that have much are summed up in plain integers.

Where no pod asks for as much as LARGE, 2^19 of them have to come to one row before a sum is beyond an int64; so rows without such
pods, which are all but always all of them, cost one question each.

Owner: a Snapshot. Memory: a list for each row with a sum above half of what an int64 holds.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray

INT64_MAX: Final = 2**63 - 1
LARGE: Final = 1 << 43
_WIDE: Final = 1 << 62


class WideSums:
    """`is_asked` for each pod that comes or goes; where that says so, `change` in place of the plain addition."""

    def __init__(self) -> None:
        self._large: set[int] = set()
        self._sums: dict[int, list[int]] = {}

    def learn(self, template_id: int, taken: NDArray[np.int64]) -> None:
        """What pods of this template take up."""
        if max(taken.tolist()) >= LARGE:
            self._large.add(template_id)

    def is_large(self, template_id: int) -> bool:
        return template_id in self._large

    def is_asked(self, row: int, template_id: int) -> bool:
        return bool(self._large or self._sums) and (row in self._sums or template_id in self._large)

    def change(self, row: int, used: NDArray[np.int64], taken: NDArray[np.int64], sign: int) -> None:
        """Adds a pod to the row's `used`, a view that is written, or takes one away. Shapes (2 + resources,)."""
        sums = self._sums.pop(row, None) or used.tolist()
        sums += [0] * (len(used) - len(sums))
        sums = [one + sign * amount for one, amount in zip(sums, taken.tolist(), strict=True)]
        used[:] = [min(one, INT64_MAX) for one in sums]
        if max(sums) > _WIDE:
            self._sums[row] = sums

    def received(self, rows: NDArray[np.int32], used: NDArray[np.int64]) -> None:
        """In a copy, whose sums are made elsewhere: these rows' `used` are these now. Shapes (rows,), (.., rows)."""
        if self._sums:
            for row in rows.tolist():
                self._sums.pop(row, None)
        for row in rows[(used > _WIDE).any(axis=0)].tolist():
            self._sums[row] = []

    def forget(self, row: int) -> None:
        """Nothing is on the row any more."""
        self._sums.pop(row, None)

    @property
    def rows(self) -> Collection[int]:
        """Those that are summed up here."""
        return self._sums.keys()


def added(amounts: NDArray[np.int64], taken: NDArray[np.int64], count: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """So many times more of it in each row, at most INT64_MAX. Shapes (resources, rows), (resources,); a count or (rows,)."""
    exact = amounts.astype(object) + taken.astype(object)[:, None] * count
    return np.minimum(exact, INT64_MAX).astype(np.int64)
