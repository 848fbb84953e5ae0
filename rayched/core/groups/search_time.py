"""How long a search for victims, or a look at a group, may take: in all, and in a piece.

Between two pieces the thread works for others. That time is none of the search's, nor is what it takes to put all in place again.

```
 begin ─(taken off, members placed)─▶ in place ─────(work)─────▶ rest at ──(put back)──▶ end of the piece
   └─────────── as long as ──────────────┴─── that again is kept ───┴──── for this ────────┘
```

* A piece ends when its time is over and somebody waits for the thread. While nobody waits it goes on, for QUIET_SECONDS at most.
* What has to be taken off again at the begin of a piece is put back where that takes half of the piece and somebody waits: the
  piece was in vain. After VAIN_MAX such ones in a row an attempt goes on whatever it takes; what nobody needs ends.

Owner: one search.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

QUIET_SECONDS: Final = 0.1
"""Of a piece while nobody waits: what is due meanwhile, as a message to a pod, comes so late at most."""
VAIN_MAX: Final = 8


class NoRoomInTime(Exception):
    """It would take too long to find out, or others came between."""


def somebody() -> bool:
    """Others always wait."""
    return True


class SearchTime:
    """Seconds of the work clock. A piece runs between `begin` and `rest`."""

    def __init__(
        self,
        now: Callable[[], float],
        in_all: float,
        piece: float,
        others_wait: Callable[[], bool] = somebody,
        *,
        gives_way: bool = False,
    ) -> None:
        """`gives_way`: it ends where it cannot go on without a piece that is longer."""
        self._now, self.in_all, self.piece, self._others_wait, self._gives_way = now, in_all, piece, others_wait, gives_way
        self._left = in_all
        self._began = self._counted_from = 0.0
        """Of this piece."""
        self._rest_at = 0.0
        self.kept = 0.0
        """What it takes to lift what was placed in this piece, for whoever counts that."""
        self._n_vain = 0

    def begin(self) -> None:
        self._began = self._counted_from = now = self._now()
        self._rest_at, self.kept = now + self.piece, 0.0

    def in_place(self) -> None:
        """All is off that has to be, for the first time: what that took is kept for putting it back."""
        self._n_vain = 0
        self._rest_at = 2 * self._began + self.piece - self._now()

    def resumed(self) -> None:
        """All is in place again. The work that follows takes at least as long as that did, unless this gives way."""
        self._n_vain = 0
        self._counted_from = now = self._now()
        took = now - self._began
        self._rest_at = max(self._began + self.piece - took, now if self._gives_way else now + took)

    def rest(self) -> None:
        self._left -= self._now() - self._counted_from

    def left_of_piece(self, least: float) -> float:
        """Seconds that one step may take."""
        return max(least, self._rest_at - self._now())

    @property
    def is_over(self) -> bool:
        """Nothing more is looked for."""
        return self._now() - self._counted_from >= self._left

    @property
    def is_piece_over(self) -> bool:
        """Others are to have their turn."""
        now = self._now()
        return now + self.kept >= self._rest_at and (now - self._began >= max(self.piece, QUIET_SECONDS) or self._others_wait())

    def is_late(self) -> bool:
        """Within a step that cannot rest: the piece is over, and others wait."""
        return self._now() - self._began > self.piece and self._others_wait()

    def spend(self) -> None:
        """Between two steps. Raises NoRoomInTime when nothing more is to be looked for."""
        if self.is_over:
            raise NoRoomInTime(f"finding room for the group takes more than {self.in_all:g} s of the scheduler's time")

    def is_in_vain(self) -> bool:
        """While pods are taken off, or members put in place: all is to be put back. Raises NoRoomInTime where it gives way."""
        now = self._now()
        if 2 * (now - self._began) < self.piece or not self._others_wait():
            return False
        if self._n_vain == VAIN_MAX:
            if self._gives_way:
                raise NoRoomInTime("others came between each time; it is found out when they are fewer")
            return False
        self._n_vain += 1
        self._counted_from = now
        return True
