"""When the time of pods that are ending is over, by the leader's own clock: no other host's clock cuts it short or draws it out.

A deletion_timestamp is written by the clock of the replica that took the call. Here it only tells that the pod is ending. Its
grace counts from the time at which this replica first could see the deletion: when a revision of etcd that has it was first read
(store/revision_clock.py). A leader that was a standby before has read revisions all along, so a change of the leader draws no
time out by more than two readings are apart. One that has just begun counts from its beginning; a pod that changed since its
deletion may count from that change.

A deletion that is shortened counts from the first one, and ends no earlier than it was shortened.

Pure: the time comes in, from any monotonic clock in seconds. Cost: a dictionary entry a pod that is ending.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable
from dataclasses import dataclass

from rayched.controllers.cluster_view import PodView
from rayched.store.revision_clock import RevisionClock


@dataclass(frozen=True, slots=True)
class _Deletion:
    """`asked_at`, `ends_at`: by this leader's clock. Timestamp and grace tell one deletion of a pod from another: one that is
    shortened may end at the very second at which the first one would have."""

    uid: str
    timestamp: float
    grace_seconds: float
    asked_at: float
    ends_at: float


class MeasuredEnds:
    """`seen` with each change of pods that are ending; the questions after it."""

    def __init__(self, margin_seconds: float, revisions: RevisionClock) -> None:
        """`margin_seconds`: for so long after its grace a pod is its agent's."""
        self._margin = margin_seconds
        self._revisions = revisions
        self._known: dict[bytes, _Deletion] = {}
        self._due: list[tuple[float, bytes]] = []

    def seen(self, pods: Iterable[PodView], now: float) -> None:
        """Those that are ending are noted, others passed over."""
        for pod in pods:
            known = self._known.get(pod.key)
            if pod.deletion_timestamp is None or (
                known is not None
                and (known.uid, known.timestamp, known.grace_seconds) == (pod.uid, pod.deletion_timestamp, pod.grace_seconds)
            ):
                continue
            here_at = self._revisions.since(pod.mod_revision, now)
            asked_at = known.asked_at if known is not None and known.uid == pod.uid else here_at
            ends_at = max(here_at, asked_at + pod.grace_seconds)
            self._known[pod.key] = _Deletion(pod.uid, pod.deletion_timestamp, pod.grace_seconds, asked_at, ends_at)
            heapq.heappush(self._due, (ends_at + self._margin, pod.key))

    def ends_at(self, pod: PodView) -> float | None:
        """When its grace is over; None: it is not ending."""
        known = self._known.get(pod.key)
        return known.ends_at if known is not None and pod.deletion_timestamp is not None and known.uid == pod.uid else None

    def due(self, now: float) -> list[bytes]:
        """Those whose grace and margin are over by now; told once, also where the pod is another by now."""
        found = []
        while self._due and self._due[0][0] <= now:
            found.append(heapq.heappop(self._due)[1])
        return found

    def keep(self, keys: Container[bytes]) -> None:
        """Forgets all other pods."""
        self._known = {key: known for key, known in self._known.items() if key in keys}
