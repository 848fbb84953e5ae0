"""The highest total among some rows, and the rows that have it, followed while single totals change.

Where few rows tie at a time the last of them is soon gone, and all rows have to be looked at again; where that happens again and
again the rows that come next are kept as well (`RunnersUp`), so that one look is enough for about a hundred decisions.

Invariant: what is known is what a look at all the rows would find.

Owner: an EquivalentPods. Cost: half a microsecond for a changed total, whatever the number of rows; else a pass over the rows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Final

from rayched.engine.evaluation import NOT_FEASIBLE
from rayched.engine.runners_up import RunnersUp
from rayched.engine.usage_values import TotalColumn
from rayched.snapshot.change_log import FEW

PASSES: Final = 6
"""After so many passes that found few rows, or searches for the next ones, these are kept; that costs as much as ten of them."""
_UNKNOWN: Final = -2


class TopRows:
    """Of rows whose totals `column` gives."""

    __slots__ = ("_best", "_column", "_following", "_passes", "_ties")

    def __init__(self, column: Callable[[], TotalColumn]) -> None:
        """`column`: totals of these rows as they are now, negative for others and for rows that are not feasible."""
        self._column = column
        self._best = _UNKNOWN
        self._ties: list[int] | None = None
        """Ascending. None: nobody has looked yet."""
        self._following: RunnersUp | None = None
        """What comes after those that tie, where it is kept; never while nobody knows these."""
        self._passes = 0
        """Passes over all rows that found few that tie, and searches for what comes after them."""

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
            self._take_next()
        if self._best == _UNKNOWN:
            column = self._column()
            self._best = max(int(column[column.argmax()]), NOT_FEASIBLE) if len(column) else NOT_FEASIBLE
        return self._best

    def ties(self) -> list[int]:
        """The rows that have `best`, which was asked for just before and is feasible. Not to be changed."""
        if self._ties is None:
            self._ties = self._look()
        return self._ties

    def first_after(self, n: int) -> list[int] | None:
        """The first `n` ranks after those that tie, for an evaluation that still holds, fewer where there are no more; None: they
        are not kept and have to be searched for."""
        found = None if self._following is None else self._following.first(n)
        if found is None and self._ties is not None:
            self._passes += 1
            if self._passes > PASSES:
                self._following = RunnersUp(self._column(), self._best, len(self._ties))
                found = self._following.first(n)
        return found

    def write(self, row: int, old: int, value: int) -> None:
        """The row's total is `value` and was `old`; NOT_FEASIBLE where it is, or was, none of the feasible ones of these rows."""
        best, ties, following = self._best, self._ties, self._following
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
            old = NOT_FEASIBLE
        if value > best:
            if following is not None:
                following.add_front(ties, best)
            self._best, self._ties = value, [row]
            value = NOT_FEASIBLE
        elif value == best:
            insort(ties, row)
            value = NOT_FEASIBLE
        if following is not None:
            following.move(row, old, value)

    def _take_next(self) -> None:
        """All rows that tied are gone: the next ones take their place."""
        found = None if self._following is None else self._following.take_best()
        if found is not None:
            self._best, self._ties = found
            return
        self._ties = self._following = None
        self._best = _UNKNOWN

    def _look(self) -> list[int]:
        """The rows that tie, by a pass over all of them."""
        column = self._column()
        ties: list[int] = (column == self._best).nonzero()[0].tolist()
        if len(ties) <= FEW:
            self._passes += 1
            if self._passes > PASSES:
                self._following = RunnersUp(column, self._best, len(ties))
        return ties
