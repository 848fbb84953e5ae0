"""The tie between renewals and the progress of the work: a leader whose work hangs must lose the lease.

The work reports when it last showed life; a renewal is withheld once that is older than the limit. Where nothing was ever
reported the two are not tied. Work that was just started, or was just replaced, has the whole limit for its first sign.
"""

from __future__ import annotations


class ProgressTie:
    """Owned by one Election. All times are CLOCK_BOOTTIME, nanoseconds."""

    __slots__ = ("_base_ns", "_limit_ns", "_tick_ns", "_tied")

    def __init__(self, limit_ns: int) -> None:
        self._limit_ns = limit_ns
        self._tied = False
        self._tick_ns = 0
        self._base_ns = 0

    def report(self, last_tick_ns: int | None) -> None:
        self._tied = True
        self._tick_ns = max(self._tick_ns, last_tick_ns or 0)

    def restart(self, now_ns: int) -> None:
        """The work begins now."""
        self._base_ns = now_ns

    def alive(self, at_ns: int) -> bool:
        """Whether the work had shown life recently enough at that time."""
        return not self._tied or at_ns - max(self._tick_ns, self._base_ns) <= self._limit_ns

    def ticked_since(self, then_ns: int) -> bool:
        return self._tick_ns > then_ns
