"""For how long the leader itself has seen pods end, by its own clock, so that no other host's clock cuts a pod's time short.

A deletion_timestamp is written by the clock of the replica that took the call and read by the leader's. Where these differ, a
pod's time could be over at the moment of its deletion, before its agent has begun. So a pod whose deletion the leader saw happen
is not removed before it has seen it end for its grace and the margin. Where clocks agree this changes nothing: the slack is more
than what cut off seconds and the way take.

Of a deletion that was there when the leader began nothing is measured, whatever else of the pod changes later; then the object's
time alone counts.

Pure: the time comes in, from any monotonic clock in seconds. Cost: a dictionary entry a pod that is ending.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable
from math import inf
from typing import Final

from rayched.controllers.clock_skew import ALERT_SECONDS
from rayched.controllers.cluster_view import PodView

SLACK_SECONDS: Final = ALERT_SECONDS
UNMEASURED: Final = -inf


class MeasuredEnds:
    """`seen` with each change of a pod that is ending; the questions after it."""

    def __init__(self, margin_seconds: float) -> None:
        self._margin = margin_seconds
        self._not_before: dict[bytes, tuple[str, float, float]] = {}
        """By key: uid, deletion_timestamp, and until when the pod stays."""
        self._postponed: list[tuple[float, bytes]] = []

    def seen(self, pods: Iterable[tuple[PodView, bool]], now: float) -> None:
        """Pods that have changed, or came with a list (False). A deletion that is changed to another time is measured anew."""
        for pod, is_change in pods:
            known = self._not_before.get(pod.key)
            if pod.ends_at is not None and (known is None or known[:2] != (pod.uid, pod.ends_at)):
                until = now + pod.grace_seconds + self._margin - SLACK_SECONDS if is_change else UNMEASURED
                self._not_before[pod.key] = (pod.uid, pod.ends_at, until)

    def left(self, pod: PodView, now: float) -> float:
        """For how long the pod stays yet, whatever its deletion_timestamp says; 0 where nothing was measured."""
        known = self._not_before.get(pod.key)
        return max(0.0, known[2] - now) if known is not None and known[:2] == (pod.uid, pod.ends_at) else 0.0

    def postpone(self, key: bytes, at: float) -> None:
        """Its object's time is up: it is to be looked at again then."""
        heapq.heappush(self._postponed, (at, key))

    def due(self, now: float) -> list[bytes]:
        """Those that were postponed until now; told once."""
        found = []
        while self._postponed and self._postponed[0][0] <= now:
            found.append(heapq.heappop(self._postponed)[1])
        return found

    def keep(self, keys: Container[bytes]) -> None:
        """Forgets all other pods."""
        self._not_before = {key: known for key, known in self._not_before.items() if key in keys}
