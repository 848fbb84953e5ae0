"""Events of one kind that came about together, one after the other, and told at once.

Mostly nobody waits for them, so the objects that they are about are made when somebody looks at them first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence


class EventBatch:
    """The objects, in the order of their events; there is one at least."""

    __slots__ = ("_made", "_make", "_n")

    def __init__(self, n: int, make: Callable[[], Sequence[object]]) -> None:
        self._n = n
        self._make: Callable[[], Sequence[object]] | None = make
        self._made: Sequence[object] = ()

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[object]:
        if self._make is not None:
            self._made, self._make = self._make(), None
        return iter(self._made)
