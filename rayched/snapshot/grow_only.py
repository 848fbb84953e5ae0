"""Values in the order in which they came first, never forgotten, up to a limit; beyond it all that there may be count.

Owner: one table, through what is derived from it. Cost: a look-up for each value that is told.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class GrowOnlySet(Generic[T]):
    """Whoever keeps something that depends on the values notes `revision`, and asks what came `since`."""

    __slots__ = ("_keys", "_limit", "_ordered", "revision")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._keys: set[Hashable] = set()
        self._ordered: list[T] = []
        self.revision = 0
        """Grows with every value that is new."""

    @property
    def are_all(self) -> bool:
        """Whether there are so many that every one counts, known or not."""
        return len(self._ordered) > self._limit

    def since(self, revision: int) -> Sequence[T] | None:
        """Values that came after a revision; None: all count now."""
        return None if self.are_all else self._ordered[revision:]

    def _add(self, key: Hashable, value: T) -> None:
        if key not in self._keys and not self.are_all:
            self._keys.add(key)
            self._ordered.append(value)
            self.revision += 1
