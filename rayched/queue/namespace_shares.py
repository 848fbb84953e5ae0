"""How long the scheduler worked for each namespace in the last second, and who had more than half of it.

Time is counted in slots of a tenth of a second, and the last second is the present slot and the ten before it: every second that
ends now lies within. What one attempt takes counts where it is told. Sums are whole nanoseconds, so what goes is what came.

Pure: times come in. Owner: Places. Memory: a number for each namespace that was worked for in a slot. Cost: 1 µs to tell.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

SHARE_MAX: Final = 0.5
"""Of a second."""
SLOT_SECONDS: Final = 0.1
SLOTS: Final = 10
"""Beside the present one."""
_NANOSECONDS: Final = 1_000_000_000
_SHARE_NANOSECONDS: Final = int(SHARE_MAX * _NANOSECONDS)


class NamespaceShares:
    """Of one queue."""

    __slots__ = ("_over", "_slots", "_sums")

    def __init__(self) -> None:
        self._slots: deque[tuple[int, Counter[str]]] = deque()
        """By number, oldest first; those in which nothing was told are left out."""
        self._sums: Counter[str] = Counter()
        self._over: set[str] = set()

    def spent(self, namespace: str, seconds: float, now: float) -> None:
        """An attempt for a pod or group of this namespace took so long, and ended about now. Times never decrease."""
        self._forget(now)
        number, nanoseconds = int(now / SLOT_SECONDS), max(0, int(seconds * _NANOSECONDS))
        if not self._slots or self._slots[-1][0] != number:
            self._slots.append((number, Counter()))
        self._slots[-1][1][namespace] += nanoseconds
        self._sums[namespace] += nanoseconds
        if self._sums[namespace] >= _SHARE_NANOSECONDS:
            self._over.add(namespace)

    def over(self, now: float) -> frozenset[str]:
        """The namespaces that have had their half: two at most."""
        self._forget(now)
        return frozenset(self._over)

    def _forget(self, now: float) -> None:
        first = int(now / SLOT_SECONDS) - SLOTS
        while self._slots and self._slots[0][0] < first:
            for namespace, nanoseconds in self._slots.popleft()[1].items():
                left = self._sums[namespace] - nanoseconds
                if left:
                    self._sums[namespace] = left
                else:
                    del self._sums[namespace]
                if left < _SHARE_NANOSECONDS:
                    self._over.discard(namespace)
