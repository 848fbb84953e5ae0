"""How far this host's clock is ahead of the leader's, as the times in the leader's record show it.

A record that was renewed at T by the leader's clock is read here at T' by this one: T' - T is the skew and the time on the way,
which is never negative. So the least of the last minute is taken: too great by the quickest way, a fraction of a retry period.

Nothing is decided by it. Pure; the times come in.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_WINDOW_SECONDS: Final = 60.0
ALERT_SECONDS: Final = 2.0
"""Above the time between two renewals of either profile: less may be the way alone."""


class ClockSkew:
    """`seen` with each reading of the record, `itself` while this replica is who leads."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque()
        self._renewed_at: float | None = None
        self._holder = ""

    def seen(self, holder: str, renewed_at: float, wall: float, now: float) -> None:
        """`renewed_at` by the leader's clock, `wall` by this one, `now` by a monotonic one; in seconds."""
        if holder != self._holder:
            self._holder, self._renewed_at = holder, None
            self._seen.clear()
        if renewed_at != self._renewed_at:
            self._renewed_at = renewed_at
            self._seen.append((now, wall - renewed_at))
        while self._seen and self._seen[0][0] < now - _WINDOW_SECONDS:
            self._seen.popleft()

    def itself(self) -> None:
        self._holder, self._renewed_at = "", None
        self._seen.clear()

    @property
    def seconds(self) -> float | None:
        """Positive: this clock is ahead. None: there is nothing to compare with, or it is the leader's own."""
        # The first reading may be of a record that nobody renews any more.
        return min(offset for _, offset in self._seen) if len(self._seen) > 1 else None

    def problem(self) -> str | None:
        """One line, where the clocks are further apart than the measuring explains."""
        seconds = self.seconds
        if seconds is None or abs(seconds) < ALERT_SECONDS:
            return None
        way = "ahead of" if seconds > 0 else "behind"
        return f"this host's clock is {abs(seconds):.1f} s {way} the clock of the leader {self._holder}: synchronise them"
