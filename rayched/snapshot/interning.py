"""Values that occur over and over, numbered 0, 1, 2, ... in the order in which they first occurred.

A number means the same value for as long as the table keeps its `generation`; values are never taken out one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Interner(Generic[K, V]):
    """Numbers for values, found by a key that equal values share."""

    __slots__ = ("_ids", "values")

    def __init__(self) -> None:
        self._ids: dict[K, int] = {}
        self.values: list[V] = []
        """The values by number."""

    def __len__(self) -> int:
        return len(self.values)

    def find(self, key: K) -> int | None:
        return self._ids.get(key)

    def intern(self, key: K, value: V) -> int:
        """The number of the value with this key; `value` is kept where the key is new."""
        known = self._ids.get(key)
        if known is None:
            known = self._ids[key] = len(self.values)
            self.values.append(value)
        return known

    def keys_from(self, start: int) -> list[K]:
        """The keys numbered `start` and up, in order."""
        return list(self._ids)[start:]

    def keep(self, numbers: Iterable[int]) -> dict[int, int]:
        """Keep only these values and number them anew. Gives old numbers with their new ones."""
        wanted = set(numbers)
        renumbered: dict[int, int] = {}
        ids: dict[K, int] = {}
        values: list[V] = []
        for key, number in self._ids.items():
            if number in wanted:
                renumbered[number] = ids[key] = len(values)
                values.append(self.values[number])
        self._ids, self.values = ids, values
        return renumbered
