"""How long a search for victims may take, in all and in a piece.

Between two pieces the thread works for others. That time is none of the search's.
"""

from __future__ import annotations

from collections.abc import Callable


class NoRoomInTime(Exception):
    """It would take too long to find out, or others came between."""


class SearchTime:
    """Seconds of the work clock. A piece runs between `begin` and `rest`."""

    def __init__(self, now: Callable[[], float], in_all: float, piece: float) -> None:
        self._now, self.in_all, self._piece = now, in_all, piece
        self._left, self._least = in_all, piece
        self._began = 0.0

    def begin(self) -> None:
        self._began, self._piece = self._now(), self._least

    def resumed(self) -> None:
        """All is in place again. That is none of the time that is left, and the piece is at least as long as it took."""
        now = self._now()
        self._piece, self._began = max(self._least, now - self._began), now

    def rest(self) -> None:
        self._left -= self._now() - self._began

    @property
    def is_over(self) -> bool:
        """Nothing more is looked for."""
        return self._now() - self._began >= self._left

    @property
    def is_piece_over(self) -> bool:
        """Others are to have their turn."""
        return self._now() - self._began >= self._piece
