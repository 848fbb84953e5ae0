"""Pending pods as `rayched queue` shows them: where each is, who holds it, and what would bring it on.

Cost: O(pods) to find a namespace or a name, else O(pods · log limit); the queue answers nothing else meanwhile (20 ms for 100,000
pods). No I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from rayched.queue.pending import PendingPodView
from rayched.queue.queued_pod import Place, QueuedPodInfo
from rayched.queue.scheduling_queue import SchedulingQueue
from rayched.v1.services_pb2 import ListQueueRequest, ListQueueResponse, PendingPod

LIMIT_DEFAULT: Final = 500
LIMIT_MAX: Final = 2_000
"""A pod is told in half a kilobyte, and a message holds 4 MiB."""

_HAS_POSITION: Final = frozenset({Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF})


def list_queue(queue: SchedulingQueue, request: ListQueueRequest, now: float) -> ListQueueResponse:
    """The pods asked for, in the order in which they would leave; last those that wait for an event, and those in flight."""
    counts = queue.pending()
    limit = min(request.limit or LIMIT_DEFAULT, LIMIT_MAX)
    response = ListQueueResponse(counts=counts.by_place)
    if not request.namespace and not request.name:
        response.total = counts.total
        found = islice(_numbered(queue.in_order(limit)), limit)
        response.pods.extend(_told(number, queue.view(pod, now), now) for number, pod in found)
        return response
    for number, pod in _numbered(queue.in_order()):
        namespace, _, name = pod.key.partition("/")
        if request.namespace in ("", namespace) and request.name in ("", name):
            response.total += 1
            if response.total <= limit:
                response.pods.append(_told(number, queue.view(pod, now), now))
    return response


def _numbered(pods: Iterator[QueuedPodInfo]) -> Iterator[tuple[int, QueuedPodInfo]]:
    """1 for the next to leave; 0 for pods that wait for an event or have left."""
    for number, pod in enumerate(pods, 1):
        yield (number if pod.place in _HAS_POSITION else 0), pod


def _told(position: int, view: PendingPodView, now: float) -> PendingPod:
    namespace, _, name = view.key.partition("/")
    told = PendingPod(
        position=position,
        namespace=namespace,
        name=name,
        uid=view.uid,
        queue=view.place.value,
        priority=view.priority,
        attempts=view.attempts,
        backoff_left_seconds=round(view.backoff_left_seconds, 3),
        held_by=view.held_by,
        would_wake=view.woken_by,
        came_by=view.came_by,
        members=view.members,
        since_seconds=round(max(0.0, now - view.timestamp), 3),
        gating_reasons=view.gating_reasons,
        nominated_node_name=view.nominated_node_name,
        scheduler_name=view.scheduler_name,
    )
    if view.flush_in_seconds is not None:
        told.tried_in_seconds = round(view.flush_in_seconds, 3)
    return told
