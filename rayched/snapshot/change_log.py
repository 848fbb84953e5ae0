"""A bounded log of rows that changed in one respect, followed by any number of readers.

A reader keeps a position: the `end` at which it was last up to date. `since(position)` gives the rows that changed after that,
with repetitions, or None where the log no longer knows and the reader must look at every row.

Owner: the table whose rows it is about; readers only read. Cost: O(1) an entry; memory bounded by ENTRIES_MAX.
"""

from __future__ import annotations

from typing import Final

ENTRIES_MAX: Final = 1 << 16
"""Entries kept at least before older ones go. More than the rows that any reader would rather look up than evaluate them all."""


class ChangeLog:
    """Changed rows in the order of their changes."""

    __slots__ = ("_rows", "end", "start")

    def __init__(self) -> None:
        self._rows: list[int] = []
        self.start = 0
        """Position of the oldest entry that is kept."""
        self.end = 0
        """Position after the newest entry. Grows with every change, never shrinks."""

    def append(self, row: int) -> None:
        self._rows.append(row)
        self.end += 1
        if len(self._rows) > 2 * ENTRIES_MAX:
            # Half at a time: the deletion is O(1) for each entry that passed through.
            del self._rows[:ENTRIES_MAX]
            self.start += ENTRIES_MAX

    def cut(self) -> None:
        """Every row changed: all readers have to look at every row once."""
        self._rows.clear()
        self.end += 1
        self.start = self.end

    def since(self, position: int) -> list[int] | None:
        """The rows that changed after `position`, oldest first; None: any row may have."""
        if position < self.start:
            return None
        return self._rows[position - self.start :]
