"""How many bytes of objects are written: so many a second into one namespace, and into all of them. Pure.

Etcd keeps each version of an object until it is compacted, so whoever writes the same one again and again fills it up. What is
over is refused before it is written. An object may be larger than what there is left: what it takes too much is paid with time.
"""

from __future__ import annotations

import math

from rayched.access.token_buckets import TokenBuckets

BURST_SECONDS = 2.0


class StoreFlow:
    """Of one replica. Owned by one thread; times are in seconds of any clock."""

    def __init__(self) -> None:
        self._buckets = TokenBuckets()

    def take(self, namespace: str, size: int, a_second: float, all_a_second: float, now: float) -> float:
        """0.0: so many bytes may be written. Else after so many seconds some may. `namespace`: "" for objects of the cluster.
        Whoever has no limit in a namespace has none in all."""
        if a_second == math.inf:
            return 0.0
        both = ((("one", namespace), a_second), (("all", ""), all_a_second))
        wait = max(self._buckets.wait(key, rate, rate * BURST_SECONDS, now) for key, rate in both)
        if not wait:
            for key, rate in both:
                self._buckets.charge(key, rate, rate * BURST_SECONDS, size, now)
        return wait
