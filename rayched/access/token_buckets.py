"""Rates of calls: a bucket of tokens for each caller and kind. Pure: times come in as arguments, in seconds of any clock.

A bucket fills at its rate, up to what `burst_seconds` bring, and a call takes a token. What a call turns out to be beyond one
token is taken afterwards, also from an empty bucket: the caller waits until that is paid.

At most BUCKETS_MAX buckets are kept; the one that was used longest ago goes first, and one that is gone counts as full.
Cost: two look-ups a call.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Final

BUCKETS_MAX: Final = 16_384


class TokenBuckets:
    """All buckets of one server. Owned by one thread."""

    def __init__(self, buckets_max: int = BUCKETS_MAX) -> None:
        self._buckets_max = buckets_max
        self._buckets: dict[Hashable, tuple[float, float]] = {}
        """Tokens, and when they were counted; the one used last comes last."""

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: Hashable, rate: float, burst: float, now: float) -> float:
        """0.0: a token was taken. Else after so many seconds there will be one."""
        if rate == math.inf:
            return 0.0
        tokens = self._count(key, rate, burst, now)
        wait = 0.0 if tokens >= 1.0 else (1.0 - tokens) / rate
        self._put(key, tokens if wait else tokens - 1.0, now)
        return wait

    def wait(self, key: Hashable, rate: float, burst: float, now: float) -> float:
        """Seconds until there is a token, of which none is taken."""
        if rate == math.inf:
            return 0.0
        tokens = self._count(key, rate, burst, now)
        self._put(key, tokens, now)
        return max(0.0, (1.0 - tokens) / rate)

    def charge(self, key: Hashable, rate: float, burst: float, amount: float, now: float) -> None:
        """Takes more than there may be."""
        if rate != math.inf and amount > 0.0:
            self._put(key, self._count(key, rate, burst, now) - amount, now)

    def _count(self, key: Hashable, rate: float, burst: float, now: float) -> float:
        tokens, at = self._buckets.pop(key, (burst, now))
        return min(burst, tokens + (now - at) * rate)

    def _put(self, key: Hashable, tokens: float, now: float) -> None:
        self._buckets[key] = tokens, now
        if len(self._buckets) > self._buckets_max:
            del self._buckets[next(iter(self._buckets))]
