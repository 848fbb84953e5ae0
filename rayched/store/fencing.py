"""The right to write as a leader, as this process may believe in it at a given moment.

The elector's cell holds the epoch and the time until which it may be believed. That belief only spares work that would be
refused: what makes a write safe is the guard in its transaction, which etcd itself compares. So ask again before each batch of
decisions and before each send, with the clock of that moment; an answer does not keep.
"""

from __future__ import annotations

from typing import ClassVar

from leader.belief import BeliefCell
from rayched.store.transactions import Guard


class Fence:
    """Reads one belief cell. Owns nothing; cheap enough for each send."""

    RULE_BELIEF_ENDS: ClassVar[bool] = True
    """Broken by tests alone, which want the guard to refuse without any help."""

    def __init__(self, cell: BeliefCell) -> None:
        self._cell = cell
        self._last: int | None = None

    def epoch(self, now_ns: int) -> int | None:
        """The epoch to write under at `now_ns` (CLOCK_BOOTTIME); None while this process must not lead."""
        belief = self._cell.belief()
        if not self.RULE_BELIEF_ENDS:
            self._last = self._last if belief is None else belief.epoch
            return self._last
        if belief is None or now_ns >= belief.valid_until_ns:
            return None
        return belief.epoch

    def guard(self, epoch_key: bytes, now_ns: int) -> Guard | None:
        """The guard for a transaction sent now; None while this process must not lead."""
        epoch = self.epoch(now_ns)
        return None if epoch is None else Guard(epoch_key, epoch)
