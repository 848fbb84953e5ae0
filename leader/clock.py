"""Where the election gets its time from.

Durations are measured on CLOCK_BOOTTIME, in nanoseconds: it never steps and it goes on while the machine sleeps, so a belief
ends in a suspended laptop too. The wall clock is read only for the times that people see in the record; nothing is decided
by it. All processes of one machine see the same CLOCK_BOOTTIME, which is what makes the belief cell work.

On systems without CLOCK_BOOTTIME (macOS) CLOCK_MONOTONIC is used, which there goes on during sleep.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

NS_PER_SECOND: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000
NS_PER_US: Final = 1_000
BOOT_NS: Final = 0
"""The earliest moment of CLOCK_BOOTTIME: what waits until then waits for nothing."""

_BOOTTIME: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

RULE_DURATIONS_IGNORE_CLOCK_STEPS: bool = True
"""Broken by tests alone."""


@dataclass(frozen=True, slots=True)
class Instant:
    """One reading of both clocks."""

    boot_ns: int
    wall_us: int
    """Microseconds since 1970, UTC."""


class Clock(Protocol):
    def now(self) -> Instant: ...


class SystemClock:
    """The machine's clocks. `gettime_ns` reads one of them by its number."""

    def __init__(self, gettime_ns: Callable[[int], int] = time.clock_gettime_ns) -> None:
        self._gettime_ns = gettime_ns

    def now(self) -> Instant:
        durations = _BOOTTIME if RULE_DURATIONS_IGNORE_CLOCK_STEPS else time.CLOCK_REALTIME
        return Instant(self._gettime_ns(durations), self._gettime_ns(time.CLOCK_REALTIME) // 1000)


def seconds_to_ns(seconds: float) -> int:
    return round(seconds * NS_PER_SECOND)


def boottime() -> float:
    """Seconds, for whoever measures durations beside the election."""
    return time.clock_gettime(_BOOTTIME)
