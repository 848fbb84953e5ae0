"""Rows numbered by their state: all that plugins go by on a row which read nothing but usage.

Nodes are alike in what they offer and fill up with pods that are alike, so many rows are in few states, and a binding mostly
leads to one that was there before. Whoever knows a value for each state knows it for all rows.

States are numbered from 0 in the order in which they came. They stay when no row is in them any more, as they tend to come
again. When there are too many, those that no row is in are let go of, and the others are numbered anew in their order:
`generation` tells. Of a few changed rows the states are looked up at once, of many when somebody asks for them.

Invariants:

* A row's number, unless UNKNOWN, is that of its state as of `end` in the log of usage.
* There are never more states than 9/4 of the rows and STATES_MIN: one a row stays at most, a quarter more or STATES_MIN may come
  until some are let go of again, and one look at all rows finds one a row at most.

Owner: the Planner; one for all its sums. Void when the table has another capacity or generation.
Memory: 300 bytes a state, 8 a row and CHANGED_MAX changed rows. Cost: 1 µs a changed row.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rayched.snapshot.change_log import FEW
from rayched.snapshot.columns import RowIndex
from rayched.snapshot.table import NodeTable

UNKNOWN: Final = -1
STATES_MIN: Final = 512
"""So many states may come, or a quarter of those that were kept, before some are let go of."""
CHANGED_MAX: Final = 8_192
"""Changed rows that are remembered in their order."""

Numbers = NDArray[np.intp]
"""States by number."""


class UsageStates:
    """The states of a table's rows."""

    __slots__ = (
        "_by_content",
        "_changed",
        "_has_unknown",
        "_log",
        "_numbers",
        "_rows",
        "_start",
        "_table",
        "end",
        "generation",
        "n_states",
        "room",
        "staying",
    )

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._log = table.usage_log
        self._by_content: dict[bytes, int] = {}
        """Number by what a row holds, in the order of the numbers. What it holds grows longer with a new resource."""
        self._rows: list[int] = []
        """By number, a row that came to the state."""
        self.n_states = 0
        self._numbers: Numbers = np.full(table.capacity, UNKNOWN, np.intp)
        """Shape (capacity,)."""
        self._has_unknown = True
        """Whether any row may be without a number."""
        self.room = STATES_MIN
        """When there are more states some are let go of."""
        self.generation = 0
        """How often states were numbered anew."""
        self.staying: Numbers = np.zeros(0, np.intp)
        """The last time: the numbers before of those that stayed, ascending."""
        self.end = self._log.end
        """Up to which position in the log changes were taken in."""
        self._start = self.end
        self._changed: RowIndex = np.zeros(CHANGED_MAX, np.intp)
        """Rows that changed from `_start` to `end`, in the order of the log. Shape (CHANGED_MAX,)."""

    def advance(self) -> None:
        """Take in what changed."""
        position, end = self.end, self._log.end
        if position == end:
            return
        n_new, self.end = end - position, end
        if self.n_states > self.room:
            self._let_go()
        rows = self._log.since(position) if n_new <= CHANGED_MAX // 2 else None
        if rows is None:
            self._numbers.fill(UNKNOWN)
            self._has_unknown = True
            self._start = self.end
            return
        n = position - self._start
        if n + n_new > CHANGED_MAX:
            going = n // 2
            self._changed[: n - going] = self._changed[going:n].copy()
            self._start += going
            n -= going
        if n_new > FEW:
            self._numbers[rows] = UNKNOWN
            self._has_unknown = True
            self._changed[n : n + n_new] = rows
        else:
            # The one changed row of most decisions, so it takes the short way.
            amounts = self._table.amounts
            for row in rows:
                content = amounts[:, row].tobytes()
                number = self._by_content.get(content)
                self._numbers[row] = self._new(content, row) if number is None else number
                self._changed[n] = row
                n += 1

    def changed_since(self, position: int) -> RowIndex | None:
        """Rows that changed up to `end`, with repetitions; None: nobody knows. Valid until `advance`."""
        return None if position < self._start else self._changed[position - self._start : self.end - self._start]

    def of(self, row: int) -> int:
        """The state of one row."""
        number = self._numbers.item(row)
        if number < 0:
            self._look_up(np.array([row], np.intp))
            number = self._numbers.item(row)
        return number

    def numbers(self, rows: RowIndex | None) -> Numbers:
        """The states of these rows, None: of all. Shape (rows,). Valid until `advance`."""
        selection = slice(0, self._table.n_rows) if rows is None else rows
        if self._has_unknown:
            unknown = (self._numbers[selection] < 0).nonzero()[0]
            if len(unknown):
                self._look_up(unknown if rows is None else rows[unknown])
            self._has_unknown = rows is not None
        return self._numbers[selection]

    def row_in(self, number: int) -> int | None:
        """A row in this state; None: nobody knows of one."""
        row = self._rows[number]
        return row if self._numbers.item(row) == number else None

    def _look_up(self, rows: RowIndex) -> None:
        amounts = np.ascontiguousarray(self._table.amounts[:, rows].T)
        everything, length, numbers = amounts.tobytes(), amounts.shape[1] * amounts.itemsize, list[int]()
        for place, row in enumerate(rows.tolist()):
            content = everything[place * length : (place + 1) * length]
            number = self._by_content.get(content)
            numbers.append(self._new(content, row) if number is None else number)
        self._numbers[rows] = numbers

    def _new(self, content: bytes, row: int) -> int:
        """The number of a state that was not there before."""
        number = self._by_content[content] = self.n_states
        self._rows.append(row)
        self.n_states += 1
        return number

    def _let_go(self) -> None:
        """Let go of states that no row is in, as far as anybody knows."""
        known = self._numbers >= 0
        is_used = np.zeros(self.n_states, np.bool_)
        is_used[self._numbers[known]] = True
        self.staying = is_used.nonzero()[0]
        self._numbers[known] = (np.cumsum(is_used) - 1)[self._numbers[known]]
        contents, rows = list(self._by_content), self._rows
        self._by_content = {contents[old]: number for number, old in enumerate(self.staying.tolist())}
        self._rows = [rows[old] for old in self.staying.tolist()]
        self.n_states = len(self._rows)
        self.room = self.n_states + max(STATES_MIN, self.n_states // 4)
        self.generation += 1
