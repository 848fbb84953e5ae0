"""What a scheduling queue holds, what can be read of it, and what time alone changes in it.

SchedulingQueue adds what pods and events do; see there. Times are in seconds. Not thread-safe.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from rayched.framework.cluster_event import (
    UNSCHEDULABLE_TIMEOUT,
)
from rayched.framework.raised import Raised
from rayched.queue.durations import PreEnqueueDurations
from rayched.queue.gate import EntryGate, PreEnqueuePlugins
from rayched.queue.hints import HintTable, Requeue
from rayched.queue.nominator import Nominator
from rayched.queue.pending import PendingCounts, PendingPodView
from rayched.queue.places import Places, QueueSettings, SortKey
from rayched.queue.queued_pod import Move, Moves, Place, QueuedPodInfo
from rayched.queue.requeue_matcher import RequeueMatcher


class QueueState:
    """The state of one queue."""

    def __init__(
        self,
        sort_key: SortKey,
        hints: HintTable,
        pre_enqueue: PreEnqueuePlugins | None = None,
        settings: QueueSettings | None = None,
        durations: PreEnqueueDurations | None = None,
    ) -> None:
        self.hints = hints
        self.raised = Raised()
        """What plugins raised, for the log."""
        self._gate = EntryGate(pre_enqueue or {}, durations, self.raised)
        self.places = Places(sort_key, self._gate, hints, settings or QueueSettings())
        self._closed = False
        self._wakes = RequeueMatcher(hints, self.places, self.raised)
        self.nominator = Nominator()
        self.scheduling_cycle = 0
        """How many pods were popped."""
        self.hint_failures = self._wakes.failures
        """Hint functions that raised, by plugin."""

    def flush(self, now: float) -> Moves:
        """All that time alone brings about. To be called whenever `next_due` says so, and harmless at any other time."""
        moves = self.flush_backoff(now)
        flush_due = self.places.pool.next_due()
        return moves if flush_due is None or now <= flush_due else moves + self.flush_unschedulable(now)

    def flush_backoff(self, now: float) -> Moves:
        """Pods whose backoff is over go to activeQ."""
        moves: list[Move] = []
        self.places.complete_backoff(now, moves)
        return tuple(moves)

    def flush_unschedulable(self, now: float) -> Moves:
        """Pods that were unschedulable for too long are tried again, and so are those in flight, if they fail.

        In 1.34 a pod that was gated for that long wakes those in flight too, though it stays gated itself. Kept; `flush` comes
        here only when some pod's time is over, so that a gated pod does not make every failure a retry.
        """
        moves: list[Move] = []
        overdue = self.places.pool.overdue(now)
        for pod in overdue:
            self.places.requeue(pod, Requeue.AFTER_BACKOFF, UNSCHEDULABLE_TIMEOUT.label, now, moves)
        if overdue or self.places.gated_for_long(now):
            self.places.in_flight.wake_all()
        return tuple(moves)

    def next_due(self, now: float) -> float | None:
        """When `flush` has something to do, at the earliest, not before `now`; None: not before something else happens."""
        flush_due = self.places.pool.next_due()
        # A pod leaves the pool when its time is over, not when it is reached.
        after = None if flush_due is None else math.nextafter(flush_due, math.inf)
        dues = [due for due in (self.places.backoff.next_due(), after) if due is not None]
        return max(now, min(dues)) if dues else None

    def pending(self) -> PendingCounts:
        places = self.places
        return PendingCounts(
            active=len(places.active),
            backoff=places.backoff.n_rejected + places.backoff.n_errors,
            error_backoff=places.backoff.n_errors,
            unschedulable=places.pool.n_unschedulable,
            gated=places.pool.n_gated,
            in_flight=len(places.in_flight),
        )

    @property
    def incoming(self) -> Mapping[tuple[str, str], int]:
        """How many pods came into each queue, by (queue, event label): queue_incoming_pods_total."""
        return self.places.incoming

    @property
    def incoming_groups(self) -> Mapping[tuple[str, str], int]:
        """Those of them that stand for a pod group."""
        return self.places.incoming_groups

    @property
    def held(self) -> Mapping[tuple[str, str], int]:
        """How many pods each plugin holds until their next attempt, by (plugin, profile): unschedulable_pods."""
        return self.places.held

    @property
    def n_events_in_flight(self) -> int:
        """Events kept for pods that are being scheduled."""
        return self.places.in_flight.n_events

    def find(self, key: str) -> QueuedPodInfo | None:
        """The pod of this namespace/name, wherever it is."""
        return self.places.find(key)

    def in_order(self, limit: int | None = None) -> Iterator[QueuedPodInfo]:
        """All pods: activeQ and backoffQ as they would leave, then those waiting for an event, then those in flight.

        `limit`: no more are wanted, which spares sorting the rest. The turns of a head-of-line limit are not foreseen.
        """
        return self.places.in_order(limit)

    def view(self, pod: QueuedPodInfo, now: float) -> PendingPodView:
        """What people want to know of a pending pod."""
        waits = pod.place in (Place.BACKOFF, Place.ERROR_BACKOFF, Place.UNSCHEDULABLE)
        return PendingPodView(
            uid=pod.uid,
            key=pod.key,
            place=pod.place,
            priority=pod.priority,
            attempts=pod.attempts,
            members=pod.members if pod.is_group else 0,
            timestamp=pod.timestamp,
            backoff_left_seconds=self.places.backoff.seconds_left(pod, now) if waits else 0.0,
            held_by=tuple(sorted(pod.rejectors)),
            gating_plugin=pod.gating_plugin,
            gating_reasons=pod.gating_reasons,
            woken_by=self.hints.waking_events(pod.scheduler_name, pod.rejectors),
            flush_in_seconds=None if pod.flush_due is None else max(0.0, pod.flush_due - now),
            nominated_node_name=self.nominator.node_of(pod.uid),
            came_by=pod.woken_by,
            scheduler_name=pod.scheduler_name,
        )

    def verify(self) -> list[str]:
        """Every broken invariant, in words; empty in a sound queue. O(n)."""
        return self.places.verify()
