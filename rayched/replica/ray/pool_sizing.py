"""How many workers a pool has that takes what a Ray cluster has free: one for each whole CPU.

It grows by what is free now, less what was asked for and has not been given yet, and lets go of workers for which there was no
room for PENDING_SECONDS_MAX: their node has gone, or somebody else took the CPU. A worker that runs keeps its CPU.

Pure: the time comes in, in seconds of any monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

SIZED_EVERY_SECONDS: Final = 5.0
PENDING_SECONDS_MAX: Final = 60.0
"""A worker's process takes a second to start, on a busy machine half a minute."""


@dataclass(slots=True)
class PoolSizing:
    """Owner: the supervisor's thread."""

    workers_max: int
    _pending: dict[str, float] = field(default_factory=dict)
    """Since when, by name."""

    def asked_for(self, name: str, now: float) -> None:
        """Ray was asked for it."""
        self._pending[name] = now

    def given(self, name: str) -> None:
        """It runs."""
        self._pending.pop(name, None)

    def gone(self, name: str) -> None:
        """It is dead, or was let go of."""
        self._pending.pop(name, None)

    def missing(self, workers: int, free_cpus: float) -> int:
        """How many more there should be than these `workers`, which are all there are."""
        return max(0, min(int(free_cpus) - len(self._pending), self.workers_max - workers))

    def without_room(self, now: float) -> list[str]:
        """Names of those to let go of."""
        return sorted(name for name, since in self._pending.items() if now - since > PENDING_SECONDS_MAX)
