"""Pods being scheduled, and the events that came about meanwhile.

A pod that was popped looks at a snapshot that some later events are no part of. When its attempt fails, exactly those events are
replayed to it; else a wake-up would be lost to the race.

Events carry the position in the caller's log at which they were applied. A pod's attempt has seen everything up to the position
at which its cycle began; the caller names that position with the outcome, and where it does not, the position of the pop counts.
A pod whose cycle is put off needs no events until it is taken up: the cycle sees what has happened by then.

Invariants: positions never decrease. `_flights` is in the order of popping, so its first pod is the one that needs the oldest
event; what lies before that is dropped. With no pod in flight no event is kept.

Limit: EVENTS_MAX. When a pod stays in flight so long that more come together, the older half is dropped and whoever needed
it is treated as if one of them had been worth an attempt.

Owner: SchedulingQueue. Source: inFlightPods and inFlightEvents of kube-scheduler 1.34. Cost: O(1) amortised for a pod or an
event; a replay is linear in the events since the cycle began.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Final

from rayched.framework.cluster_event import ClusterEvent
from rayched.queue.event_batch import EventBatch
from rayched.queue.queued_pod import QueuedPodInfo

EVENTS_MAX: Final = 65_536
"""Events kept for pods in flight: half a minute of 2,000 a second, far beyond any attempt's time."""

_TRIM_MIN: Final = 1_024
"""Dropped events are cut off the list once there are so many; each cut costs the length of the rest."""


@dataclass(frozen=True, slots=True)
class InFlightEvent:
    """An event that came about while pods were in flight."""

    position: int
    event: ClusterEvent
    old: object
    new: object
    uid: str = ""
    """The only pod that it concerns; "" for all."""
    news: EventBatch | None = None
    """What took the place of `new` in so many events of this kind at this position."""

    @property
    def n_events(self) -> int:
        return 1 if self.news is None else len(self.news)

    def changes(self) -> Iterable[tuple[object, object]]:
        """Old and new object of each event."""
        return ((self.old, self.new),) if self.news is None else ((self.old, new) for new in self.news)


@dataclass(slots=True)
class InFlightPod:
    """A popped pod until its attempt has ended."""

    pod: QueuedPodInfo
    began: int
    """Events up to this position were known when the pod was popped."""
    since: float
    """When it was popped. Seconds."""
    deleted: bool = False
    """The pod is gone; its outcome only ends the flight."""
    woken: bool = False
    """Someone asked for another attempt meanwhile, whatever this one brings; no snapshot could show that."""


class InFlightPods:
    """Pods that were handed out, and the events that came meanwhile."""

    __slots__ = ("_by_key", "_events", "_flights", "_forgotten_through", "_head", "_limit", "_put_off", "n_events", "position")

    def __init__(self, limit: int = EVENTS_MAX) -> None:
        self._flights: OrderedDict[str, InFlightPod] = OrderedDict()
        self._put_off: dict[str, InFlightPod] = {}
        self._by_key: dict[str, InFlightPod] = {}
        self._events: list[InFlightEvent] = []
        self._head = 0
        self._limit = limit
        self.n_events = 0
        """Events that are kept."""
        self._forgotten_through = 0
        """The last position of which an event was dropped that a pod in flight may need."""
        self.position = 0
        """Position of the last event."""

    def __len__(self) -> int:
        return len(self._flights) + len(self._put_off)

    def __iter__(self) -> Iterator[InFlightPod]:
        return chain(self._flights.values(), self._put_off.values())

    def events(self) -> Counter[str]:
        """Events that are kept, by label."""
        found: Counter[str] = Counter()
        for occurrence in self._events[self._head :]:
            found[occurrence.event.label] += occurrence.n_events
        return found

    def get(self, uid: str) -> InFlightPod | None:
        return self._flights.get(uid) or self._put_off.get(uid)

    def by_key(self, key: str) -> InFlightPod | None:
        """The flight of the pod that has this name now; none for a pod that was deleted in flight."""
        return self._by_key.get(key)

    def advance(self, position: int | None) -> int:
        """An entry of the caller's log is being applied: its position, or the next one where the caller does not number them."""
        if position is None:
            position = self.position + 1
        elif position < self.position:
            raise ValueError(f"position {position} of an event comes after position {self.position}")
        self.position = position
        return position

    def record(self, event: ClusterEvent, old: object, new: object, uid: str = "", news: EventBatch | None = None) -> None:
        """The event belongs to the current position; with `news` there are as many events."""
        if not self._flights:
            return
        occurrence = InFlightEvent(self.position, event, old, new, uid, news)
        self._events.append(occurrence)
        self.n_events += occurrence.n_events
        if self.n_events > self._limit and len(self._events) > self._head + 1:
            self._forget_older_half()

    def begin(self, pod: QueuedPodInfo, now: float) -> None:
        flight = InFlightPod(pod, self.position, now)
        self._flights[pod.uid] = flight
        self._by_key[pod.key] = flight

    def put_off(self, uid: str) -> None:
        """The pod's cycle is not to begin for now. Idempotent."""
        flight = self._flights.pop(uid, None)
        if flight is not None:
            self._put_off[uid] = flight
            self._drop_unneeded()

    def take_up(self, uid: str) -> None:
        """The pod's cycle begins now. Idempotent."""
        flight = self._put_off.pop(uid, None)
        if flight is not None:
            flight.began = self.position
            self._flights[uid] = flight

    def wake_all(self) -> None:
        """Every pod in flight is worth another attempt if this one fails, unless it has yet to begin."""
        for flight in self._flights.values():
            flight.woken = True

    def mark_deleted(self, flight: InFlightPod) -> None:
        flight.deleted = True
        if self._by_key.get(flight.pod.key) is flight:
            del self._by_key[flight.pod.key]

    def end(self, uid: str) -> InFlightPod | None:
        """Idempotent; events that no pod in flight needs any more are dropped."""
        flight = self._flights.pop(uid, None) or self._put_off.pop(uid, None)
        if flight is None:
            return None
        if self._by_key.get(flight.pod.key) is flight:
            del self._by_key[flight.pod.key]
        self._drop_unneeded()
        return flight

    def since(self, flight: InFlightPod, began: int | None) -> Iterator[InFlightEvent] | None:
        """What the attempt could not know: the events after its cycle began. None: some of them were forgotten."""
        start = flight.began if began is None else max(flight.began, began)
        if start < self._forgotten_through:
            return None
        first = bisect_right(self._events, start, lo=self._head, key=_position)
        events, uid = self._events, flight.pod.uid
        return (events[i] for i in range(first, len(events)) if events[i].uid in ("", uid))

    def verify(self) -> list[str]:
        wrong: list[str] = []
        for earlier, later in pairwise(self._flights.values()):
            if later.began < earlier.began:
                wrong.append(f"{later.pod.key} is in flight out of order")
        for uid, flight in self._flights.items():
            if flight.pod.uid != uid:
                wrong.append(f"{flight.pod.key} is in flight under another pod's uid")
            if not flight.deleted and self._by_key.get(flight.pod.key) is not flight:
                wrong.append(f"{flight.pod.key} is in flight and cannot be found by its name")
        wrong += [f"{flight.pod.key} is in flight and put off" for uid, flight in self._put_off.items() if uid in self._flights]
        if len(self._by_key) != sum(not flight.deleted for flight in self):
            wrong.append("pods are found in flight by name that are not in flight")
        if not self._flights and self.n_events:
            wrong.append(f"{self.n_events} events are kept for no pod")
        positions = [occurrence.position for occurrence in self._events[self._head :]]
        if positions != sorted(positions):
            wrong.append("events in flight are out of order")
        return wrong

    def _drop_unneeded(self) -> None:
        if not self._flights:
            self._events.clear()
            self._head = self.n_events = 0
            return
        oldest = next(iter(self._flights.values())).began
        events, head = self._events, self._head
        while head < len(events) and events[head].position <= oldest:
            self.n_events -= events[head].n_events
            head += 1
        self._head = head
        if head >= _TRIM_MIN and head * 2 >= len(events):
            del events[:head]
            self._head = 0

    def _forget_older_half(self) -> None:
        middle = (self._head + len(self._events) + 1) // 2
        self._forgotten_through = self._events[middle - 1].position
        self.n_events -= sum(occurrence.n_events for occurrence in self._events[self._head : middle])
        del self._events[:middle]
        self._head = 0


def _position(occurrence: InFlightEvent) -> int:
    return occurrence.position
