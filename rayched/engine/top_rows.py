"""The highest total among some rows, and the rows that have it, followed while single totals change.

All rows are looked at again when the last of those that tie is gone.

Invariant: what is known is what a look at all the rows would find.

Owner: a KeptTotal. Cost: half a microsecond for a changed total, whatever the number of rows; else a pass over the rows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Final

from rayched.engine.evaluation import NOT_FEASIBLE
from rayched.engine.scale import TotalColumn

_UNKNOWN: Final = -2


class TopRows:
    """Of rows whose totals `column` gives."""

    __slots__ = ("_best", "_column", "_ties")

    def __init__(self, column: Callable[[], TotalColumn]) -> None:
        """`column`: totals of these rows as they are now, negative for others and for rows that are not feasible."""
        self._column = column
        self._best = _UNKNOWN
        self._ties: list[int] | None = None
        """Ascending. None: nobody has looked yet."""

    @classmethod
    def of_no_row(cls, column: Callable[[], TotalColumn]) -> TopRows:
        """None of the rows is feasible, or there are none yet."""
        found = cls(column)
        found._best = NOT_FEASIBLE
        return found

    @property
    def n_listed(self) -> int:
        """Rows that are in a list."""
        return 0 if self._ties is None else len(self._ties)

    def best(self) -> int:
        """The highest total; NOT_FEASIBLE where no row is feasible."""
        if self._ties is not None and not self._ties:
            # All rows that tied are gone.
            self._best, self._ties = _UNKNOWN, None
        if self._best == _UNKNOWN:
            column = self._column()
            self._best = max(int(column[column.argmax()]), NOT_FEASIBLE) if len(column) else NOT_FEASIBLE
        return self._best

    def ties(self) -> list[int]:
        """The rows that have `best`, which was asked for just before and is feasible. Not to be changed."""
        if self._ties is None:
            self._ties = (self._column() == self._best).nonzero()[0].tolist()
        return self._ties

    def write(self, row: int, old: int, value: int) -> None:
        """The row's total is `value` and was `old`; NOT_FEASIBLE where it is, or was, none of the feasible ones of these rows."""
        best, ties = self._best, self._ties
        if best == _UNKNOWN:
            return
        if ties is None:
            # Nobody has looked for the rows that tie: another one may have the highest total as well.
            if value > best:
                self._best, self._ties = value, [row]
            elif old == best:
                self._best = _UNKNOWN
            return
        if old == best:
            del ties[bisect_left(ties, row)]
        if value > best:
            self._best, self._ties = value, [row]
        elif value == best:
            insort(ties, row)
