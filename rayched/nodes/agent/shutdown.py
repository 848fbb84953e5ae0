"""Graceful shutdown of a node: pods end in bands of priority, the lowest first, each within its time. Pure: the time comes in.

    --shutdown-grace-period 30s --shutdown-grace-period-critical-pods 10s        ordinary pods have 20 s, critical ones then 10 s
    --shutdown-grace-period-by-pod-priority 0=60s,1000=30s,2000000000=10s        bands of one's own

A pod has the least of its own grace and its band's time. The next band begins when the one before has ended or its time is over.
A pod below the lowest band belongs to that one.

Source: kubelet's node shutdown manager, Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from rayched.nodes.agent.oom_scores import CRITICAL_PRIORITY
from rayched.nodes.agent.pod_life import PodEnding, PodLife

REASON: Final = "Terminated"
MESSAGE: Final = "Pod was terminated in response to imminent node shutdown."


@dataclass(frozen=True, slots=True)
class ShutdownBand:
    """Pods of at least this priority, and of less than the next band's. `seconds`: what they have together."""

    priority: int
    seconds: float


def two_bands(total: float, critical: float) -> tuple[ShutdownBand, ...]:
    """None where a shutdown is not looked after. `critical` is part of `total`."""
    if total <= 0:
        return ()
    return ShutdownBand(0, total - critical), ShutdownBand(CRITICAL_PRIORITY, critical)


class ShutdownPlan:
    """One shutdown, from its beginning. `bands` in rising order of priority, one at least."""

    def __init__(self, bands: Sequence[ShutdownBand]) -> None:
        self._bands = bands
        self._next = 0
        self._band_ends = 0.0
        self._asked: set[str] = set()
        self.is_over = False

    def advance(self, now: float, lives: Collection[PodLife]) -> list[tuple[str, PodEnding]]:
        """Whom to end now. Asked again when a pod has ended, and at `wakes_at`."""
        found: list[tuple[str, PodEnding]] = []
        while not self.is_over:
            living = {life.uid for life in lives if not life.has_ended}
            if self._asked & living and now < self._band_ends:
                return found
            if self._next == len(self._bands):
                self.is_over = True
                return found
            band = self._bands[self._next]
            self._band_ends = now + band.seconds
            self._asked = set()
            for life in lives:
                if life.has_ended or self._band_of(life) != self._next:
                    continue
                self._asked.add(life.uid)
                grace = min(life.grace, band.seconds)
                found.append((life.uid, PodEnding(now + grace, REASON, MESSAGE, disruption=True)))
            self._next += 1
            if self._asked:
                return found
        return found

    def wakes_at(self) -> float:
        return float("inf") if self.is_over else self._band_ends

    def _band_of(self, life: PodLife) -> int:
        priority = life.pod.spec.priority
        return max((number for number, band in enumerate(self._bands) if band.priority <= priority), default=0)
