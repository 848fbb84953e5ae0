"""Addresses that show wrong credentials: after too many in a minute nothing that they show is looked at for another one. Pure.

Whoever guesses is slowed down, and costs a look-up instead of a check.
"""

from __future__ import annotations

from typing import Final

from rayched.access.token_buckets import TokenBuckets

PENALTY_SECONDS: Final = 60.0


class WrongCredentials:
    """Those of one server. Owned by one thread; times are in seconds of any clock."""

    def __init__(self) -> None:
        self._buckets = TokenBuckets()

    def wait(self, address: str, a_minute: float, now: float) -> float:
        """Seconds until the address is asked for credentials again; 0.0: it is asked."""
        return self._buckets.wait(address, a_minute / PENALTY_SECONDS, a_minute, now)

    def shown(self, address: str, a_minute: float, now: float) -> None:
        """It has shown wrong ones, of which it may show so many."""
        rate = a_minute / PENALTY_SECONDS
        self._buckets.charge(address, rate, a_minute, 1.0, now)
        if self._buckets.wait(address, rate, a_minute, now):
            # Else it would be asked again as soon as time has brought it one more.
            self._buckets.charge(address, rate, a_minute, a_minute - 1.0, now)
