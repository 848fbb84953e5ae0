"""What the queue tells about itself: counts, and one view of each pending pod.

Values for people, metrics and tests; nothing here changes the queue.
"""

from __future__ import annotations

from dataclasses import dataclass

from rayched.queue.queued_pod import Place


@dataclass(frozen=True, slots=True)
class PendingCounts:
    """How many pods are in each place."""

    active: int
    backoff: int
    """Both kinds of backoff."""
    error_backoff: int
    """Those of `backoff` that failed with an error."""
    unschedulable: int
    gated: int
    in_flight: int

    @property
    def total(self) -> int:
        return self.active + self.backoff + self.unschedulable + self.gated + self.in_flight

    @property
    def by_place(self) -> dict[str, int]:
        """As the API tells them."""
        return {
            "active": self.active,
            "backoff": self.backoff,
            "unschedulable": self.unschedulable,
            "gated": self.gated,
            "in_flight": self.in_flight,
        }

    @property
    def text(self) -> str:
        """kube-scheduler's summary of PendingPods; gated pods count as unschedulable ones there."""
        return f"activeQ:{self.active}; backoffQ:{self.backoff}; unschedulablePods:{self.unschedulable + self.gated}"


@dataclass(frozen=True, slots=True)
class PendingPodView:
    """One pending pod. Times in seconds."""

    uid: str
    key: str
    place: Place
    priority: int
    attempts: int
    members: int
    """Of a pod group: those that wait; 0 of a pod."""
    timestamp: float
    backoff_left_seconds: float
    """0 where it is not backing off."""
    held_by: tuple[str, ...]
    """Plugins that rejected the last attempt, answered PENDING in it or gate the pod; sorted."""
    gating_plugin: str
    gating_reasons: tuple[str, ...]
    woken_by: tuple[str, ...]
    """Labels of the events that the plugins in `held_by` registered for."""
    flush_in_seconds: float | None
    """Until it is tried again without any event; None where it is not waiting for one."""
    nominated_node_name: str
    came_by: str
    """Label of what brought it to its place."""
    scheduler_name: str
