"""A bounded log of rows that changed in one respect, followed by any number of readers.

A reader keeps a position: the `end` at which it was last up to date. `since(position)` gives the rows that changed after that,
with repetitions, or None where the log no longer knows and the reader must look at every row.

Owner: the table whose rows it is about; readers only read. Cost: O(1) an entry. Memory: at most twice the entries that it is
to keep. There is one log for each aspect of nodes, but one for each counter and each constraint of each template: those keep no
more than their readers look at one by one.
"""

from __future__ import annotations

from typing import Final

ENTRIES_MAX: Final = 1 << 16
"""Entries kept at least before older ones go. More than the rows that any reader would rather look up than evaluate them all."""

FEW: Final = 16
"""So many rows, domains and the like are dealt with one by one, in plain integers; more by arrays, over all that there are.

What is measured breaks even between 4 and 32, and whoever is near there loses little either way. So there is one such number.
"""

CHANGES_MAX: Final = 256
"""More changes than this of a counter, of groups or of domains are not looked at one by one; their logs keep so many."""


class ChangeLog:
    """Changed rows in the order of their changes."""

    __slots__ = ("_kept", "_rows", "end", "start")

    def __init__(self, kept: int | None = None) -> None:
        """`kept`: entries kept at least, one or more; None: ENTRIES_MAX."""
        self._kept = ENTRIES_MAX if kept is None else kept
        self._rows: list[int] = []
        self.start = 0
        """Position of the oldest entry that is kept."""
        self.end = 0
        """Position after the newest entry. Grows with every change, never shrinks."""

    def append(self, row: int) -> None:
        self._rows.append(row)
        self.end += 1
        if len(self._rows) > 2 * self._kept:
            # Half at a time: the deletion is O(1) for each entry that passed through.
            del self._rows[: self._kept]
            self.start += self._kept

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
