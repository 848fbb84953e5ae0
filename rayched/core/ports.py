"""What the core reads of the world, and what it wants done: the whole border between SchedulerCore and its carrier.

Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rayched.core.exchange.messages import ExchangeRequest
from rayched.core.writes.window import Send


def _not_watched(uid: str) -> None:
    pass


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Ports:
    """What the core reads of the world."""

    belief: Callable[[], int | None]
    """The epoch that this replica may act under now."""
    clock: Callable[[], float]
    """CLOCK_BOOTTIME."""
    wall_clock: Callable[[], float]
    """Unix time, for conditions."""
    progress: Callable[[], None]
    """A sign of life within long work."""
    work_clock: Callable[[], float] | None = None
    """What attempts may take is measured by it: the time that this thread computes. None: by `clock`."""
    deciding: Callable[[str], None] = _not_watched
    """Called with the uid of the pod whose cycle begins, "" after a batch: it names the pod in whose cycle a scheduler died."""
    room_for_events: Callable[[], bool] = _always
    """Whether the store has room for what nothing decides by."""
    others_wait: Callable[[], bool] = _always
    """Whether something has come for the thread meanwhile: long work that can rest does then."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What is to be done after a turn."""

    sends: tuple[Send, ...] = ()
    exchange: ExchangeRequest | None = None
    turn_at: float | None = None
    """When to turn again without any input and without a decision; None: only then. A time in the past: at once."""
    lease_wanted: bool = False
    """A lease for events is to be granted; `lease_granted` takes it."""
