"""Sends the Events of the workload controllers, on their thread, after their writes: nobody waits for an Event.

As many as the rules of store/event_writes.py let through, 100 at most in one turn. Each under the leader's epoch.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable

from rayched.api.occurrences import EventOccurrence
from rayched.controllers.workloads.workload_metrics import EVENTS
from rayched.store.errors import StoreError
from rayched.store.event_writes import DROPPED, GIVEN_UP, LEASE_SECONDS, WRITTEN, EventWrites
from rayched.store.io.client import StoreClient
from rayched.store.keys import Keys
from rayched.store.transactions import Guard

log = logging.getLogger(__name__)


class WorkloadEventSender:
    """Of one epoch. Times are those of a monotonic clock, and Unix seconds."""

    def __init__(self, store: StoreClient, keys: Keys, epoch: int, has_room: Callable[[], bool]) -> None:
        """`has_room`: whether etcd has room for Events."""
        self._store = store
        self._guard = Guard(keys.epoch, epoch)
        self._epoch = epoch
        self._writes = EventWrites(keys, uuid.uuid4().hex[:12], repeating=True, has_room=has_room)

    def tell(self, occurrences: Iterable[EventOccurrence], now: float, wall: float) -> None:
        for occurrence in occurrences:
            self._writes.emit(occurrence, now, wall)

    def send(self, revision: int, now: float) -> None:
        """Those whose turn it is. `revision`: what is known of the cluster. Raises nothing of etcd's: what fails is dropped."""
        writes = self._writes
        try:
            if writes.lease_wanted(now):
                writes.lease_granted(self._lease(), now)
            batch = writes.batch(self._epoch, revision, now, under_pressure=False)
            if not batch:
                return
            for write, outcome in zip(batch, self._store.commit(self._guard, batch), strict=True):
                writes.outcome(write, outcome, now)
        finally:
            for name in (WRITTEN, DROPPED, GIVEN_UP):
                EVENTS.labels(name).inc(writes.counts.pop(name, 0))

    def _lease(self) -> int | None:
        try:
            return self._store.grant_lease(LEASE_SECONDS).id
        except StoreError as error:
            log.warning("workloads: what they did is not told for now: %s", error)
            return None
