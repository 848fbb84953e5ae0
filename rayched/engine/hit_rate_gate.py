"""Whether looking values up pays off: where they are hardly ever there, nobody looks for a while.

Owner: whoever remembers the values.
"""

from __future__ import annotations

from typing import Final

PROBES: Final = 512
"""After so many look-ups it is asked whether they paid off."""
HITS_MIN: Final = PROBES // 16
"""A look-up costs about a sixteenth of what it saves."""
PAUSE_ROWS: Final = 8 * PROBES
"""Rows for which nobody looks, where it did not pay off."""


class HitRateGate:
    """Of one memory."""

    __slots__ = ("_hits", "_pause", "_probes")

    def __init__(self) -> None:
        self._probes = self._hits = self._pause = 0

    def is_pausing(self, n_rows: int) -> bool:
        """Nobody is to look for these rows, which come out of the pause."""
        if self._pause <= 0:
            return False
        self._pause -= n_rows
        return True

    def count(self, n_rows: int, n_found: int) -> None:
        """So many were looked up, and so many of them were there."""
        self._probes += n_rows
        self._hits += n_found

    def is_poor(self) -> bool:
        """Whether look-ups did not pay off lately: a pause begins, and what is remembered is of no use."""
        if self._probes < PROBES:
            return False
        is_poor = self._hits < HITS_MIN
        if is_poor:
            self._pause = PAUSE_ROWS
        self._probes = self._hits = 0
        return is_poor
