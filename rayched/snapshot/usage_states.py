"""Rows numbered by their state: all that plugins go by on a row which read nothing but usage.

Nodes are alike in what they offer and fill up with pods that are alike, so many rows are in few states, and a binding mostly
leads to one that was there before. Whoever knows a value for each state knows it for all rows.

States are numbered from 0 in the order in which they came. They stay when no row is in them any more, as they tend to come again,
until `keep_used` lets go of those. Of a few changed rows the states are looked up at once, of many when somebody asks for them.

Invariant: a row's number, unless UNKNOWN, is that of its state as of `end` in the log of usage.

Owner: a UsageStack; one for each. Void when the table has another capacity, generation or number of resources.
Memory: 300 bytes a state, 8 a row and CHANGED_MAX changed rows. Cost: 1 µs a changed row.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rayched.snapshot.change_log import FEW
from rayched.snapshot.columns import ResourceTable, RowIndex
from rayched.snapshot.rows import Rows
from rayched.snapshot.table import NodeTable, amounts_apart

UNKNOWN: Final = -1
NUMBERED_MAX: Final = 4_096
"""Rows looked up in one question, a millisecond; who asks for more has to do without, and asks again."""
CHANGED_MAX: Final = 8_192
"""Changed rows that are remembered in their order."""

Numbers = NDArray[np.intp]
"""States by number."""


def state_of(table: NodeTable, row: int) -> bytes:
    """All that plugins which read nothing but usage go by on a row."""
    return table.amounts[:, row].tobytes()


class StateRows(Rows):
    """Rows in given states, wherever there may be such; nothing but their usage can be read."""

    __slots__ = ()

    def __init__(self, table: NodeTable, amounts: ResourceTable) -> None:
        """`amounts` as the table's. Shape (amounts, states)."""
        # No row has such a number: whoever reads anything else finds columns that are too short.
        super().__init__(table, slice(table.capacity, table.capacity + amounts.shape[1]))
        self._non_zero, self._requested, self._allocatable = amounts_apart(amounts)


class UsageStates:
    """The states of a table's rows."""

    __slots__ = (
        "_by_content",
        "_changed",
        "_contents",
        "_has_unknown",
        "_log",
        "_n_amounts",
        "_numbers",
        "_start",
        "_table",
        "end",
    )

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._log = table.usage_log
        self._n_amounts = len(table.amounts)
        self._contents: list[bytes] = []
        """By number."""
        self._by_content: dict[bytes, int] = {}
        self._numbers: Numbers = np.full(table.capacity, UNKNOWN, np.intp)
        """Shape (capacity,)."""
        self._has_unknown = True
        """Whether any row may be without a number."""
        self.end = self._log.end
        """Up to which position in the log changes were taken in."""
        self._start = self.end
        self._changed: RowIndex = np.zeros(CHANGED_MAX, np.intp)
        """Rows that changed from `_start` to `end`, in the order of the log. Shape (CHANGED_MAX,)."""

    def __len__(self) -> int:
        return len(self._contents)

    @property
    def is_void(self) -> bool:
        """Whether the table has resources that it had not."""
        return self._n_amounts != len(self._table.amounts)

    def advance(self) -> None:
        """Take in what changed."""
        position, self.end = self.end, self._log.end
        n_new = self.end - position
        if not n_new:
            return
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
            for place, row in enumerate(rows, n):
                self._numbers[row] = self._number_of(state_of(self._table, row))
                self._changed[place] = row

    def changed_since(self, position: int) -> RowIndex | None:
        """Rows that changed up to `end`, with repetitions; None: nobody knows. Valid until `advance`."""
        return None if position < self._start else self._changed[position - self._start : self.end - self._start]

    def numbers(self, rows: RowIndex | None) -> Numbers | None:
        """The states of these rows, None: of all. Shape (rows,). None: too many had to be looked up, so ask again."""
        selection = slice(0, self._table.n_rows) if rows is None else rows
        found = self._numbers[selection]
        if self._has_unknown:
            unknown = (found < 0).nonzero()[0]
            if len(unknown):
                if not self._look_up(unknown if rows is None else rows[unknown]):
                    return None
                found = self._numbers[selection]
            if rows is None:
                self._has_unknown = False
        return found

    def rows(self, first: int, end: int) -> StateRows:
        """Rows in the states from `first` on and before `end`."""
        content = self._contents[first] if end - first == 1 else b"".join(self._contents[first:end])
        amounts = np.frombuffer(content, np.int64).reshape(end - first, self._n_amounts).T
        return StateRows(self._table, np.ascontiguousarray(amounts))

    def keep_used(self) -> Numbers:
        """Let go of states that no row is in, as far as anybody knows. The numbers so far of those that stay, ascending."""
        known = self._numbers >= 0
        staying: Numbers = np.unique(self._numbers[known])
        self._contents = [self._contents[number] for number in staying.tolist()]
        self._by_content = {content: number for number, content in enumerate(self._contents)}
        self._numbers[known] = np.searchsorted(staying, self._numbers[known])
        return staying

    def _look_up(self, rows: RowIndex) -> bool:
        """Number these rows. False: there are too many for once."""
        content = np.ascontiguousarray(self._table.amounts[:, rows[:NUMBERED_MAX]].T).tobytes()
        length = self._n_amounts * np.dtype(np.int64).itemsize
        self._numbers[rows[:NUMBERED_MAX]] = [
            self._number_of(content[place : place + length]) for place in range(0, len(content), length)
        ]
        return len(rows) <= NUMBERED_MAX

    def _number_of(self, content: bytes) -> int:
        number = self._by_content.get(content)
        if number is None:
            number = self._by_content[content] = len(self._contents)
            self._contents.append(content)
        return number
