"""Events: what people are told of a leader's work, written last, bounded, and dropped rather than waited for.

* What happens again to the same object for the same reason is one Event that counts. It is written when it first happens, then
  after a pause that doubles each time from REPEAT_SECONDS_MIN to REPEAT_SECONDS_MAX; the message is the newest.
* Nothing decides by Events. They are written after bindings and statuses, one batch at a time, at most one in PRESSURE_SECONDS
  while pods wait for their decision or their binding, at most RATE_PER_SECOND on the long run, and none twice when an answer is
  missing. Ordinary news that comes after other news is gathered for GATHER_SECONDS, so what a burst has left goes at a steady
  400 a second. What exceeds WAITING_MAX is dropped and counted; ordinary news gives way to warnings before that.
* Each is written under a lease of etcd, so that it goes after an hour whoever leads then. A lease holds at most EVENTS_A_LEASE:
  etcd removes what a lease holds at one stroke. A further write prolongs an Event's life, as in Kubernetes.
* Where etcd's space is kept for what matters more, what waits and what comes is given up and counted.
* An Event that is there already (the leader before wrote it, or it was forgotten here) refuses the write and is then counted on.

No I/O. Owner: whoever tells, as the SchedulerCore. Memory: at most WAITING_MAX + SERIES_MAX entries. Cost: about 1 µs to emit
ordinary news, and 15 µs an Event written.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from rayched.api import kinds
from rayched.api.occurrences import NORMAL, EventOccurrence, event_of
from rayched.store.codec import PoisonedObject, decode_entry, encode
from rayched.store.entries import Entry
from rayched.store.keys import Keys
from rayched.store.transactions import WRITES_MAX, Committed, Conflict, GuardedPut, Outcome
from rayched.v1.core_pb2 import Event
from rayched.v1.storage_pb2 import LeaderWrite

OP_EVENT: Final = "event"
LIFE_SECONDS: Final = 3_600
"""How long an Event is kept after it was written last: Kubernetes' default."""
LEASE_SECONDS: Final = LIFE_SECONDS + 300
LEASE_USED_SECONDS: Final = LEASE_SECONDS - LIFE_SECONDS
"""A lease takes Events so long, so that the last of them live as long as they should."""
EVENTS_A_LEASE: Final = 1_000
LEASE_PAUSE_SECONDS: Final = 1.0
"""Before another is asked for, when none was given."""
REPEAT_SECONDS_MIN: Final = 5.0
REPEAT_SECONDS_MAX: Final = 300.0
PRESSURE_SECONDS: Final = 1.0
"""An Event costs as much as a binding: in a burst all of them at once would take half of its rate."""
GATHER_SECONDS: Final = 0.25
WAITING_MAX: Final = 10_000
NORMAL_WAITING_MAX: Final = 9_000
SERIES_MAX: Final = 8_192
"""Events whose repetitions are remembered."""
BURST: Final = 10_000
RATE_PER_SECOND: Final = 100.0
"""An hour of these is 360,000 Events of about 500 bytes."""
REST_SECONDS: Final = 1.0
"""Once the allowance is used up: one transaction then, not a hundred."""

WRITTEN, DROPPED, GIVEN_UP = "written", "dropped", "given_up"


class Unworded(Protocol):
    """Something that happened; put into words when it is written, as in a burst few are."""

    @property
    def occurrence(self) -> EventOccurrence:
        """Of type NORMAL."""


@dataclass(slots=True)
class _Series:
    """One Event and what happened since it was written."""

    occurrence: EventOccurrence
    """The newest."""
    first_unix: float
    last_unix: float
    count: int = 1
    """All that happened."""
    mod_revision: int = 0
    """Of the stored Event; 0: there is none, as far as is known here."""
    stored: int = 0
    """The stored Event's count."""
    sent: int = 0
    """The count in the write that is under way."""
    pause_seconds: float = 0.0
    """After the next write."""
    not_before: float = 0.0
    waiting: bool = False
    busy: bool = False


@dataclass(slots=True)
class _Lease:
    id: int
    until: float
    left: int = EVENTS_A_LEASE


class EventWrites:
    """What is to be told, what is under way, and when the next may be written."""

    def __init__(
        self, keys: Keys, incarnation: str, *, repeating: bool = False, has_room: Callable[[], bool] = lambda: True
    ) -> None:
        """`repeating`: ordinary news happens again and again to the same objects, and is looked at, and kept, as warnings are.
        `has_room`: whether the store has room for Events."""
        self._keys = keys
        self._incarnation = incarnation
        self._repeating = repeating
        self._has_room = has_room
        self._number = 0
        self._series: OrderedDict[bytes, _Series] = OrderedDict()
        """By the occurrence's id; those that wait or are under way, and repeated ones, the latest last."""
        self._fresh: deque[tuple[EventOccurrence | Unworded, float, float]] = deque()
        """Ordinary news as it came, with its times; where it hardly ever repeats it is looked at only when its turn comes."""
        self._due: tuple[list[tuple[float, int, bytes]], list[tuple[float, int, bytes]]] = ([], [])
        """Heaps of when which may be written: warnings and ordinary news."""
        self._sent: dict[str, bytes] = {}
        """By the attempt ids of the batch that is under way."""
        self._lease: _Lease | None = None
        self._lease_asked_until = 0.0
        self._allowance = float(BURST)
        self._allowed_at = 0.0
        self._rests_until = float("-inf")
        """The allowance is used up until then."""
        self._wrote_at = float("-inf")
        self.counts: Counter[str] = Counter()
        """Events written, dropped and given up."""

    def __len__(self) -> int:
        """Events that wait to be written."""
        return len(self._fresh) + len(self._due[0]) + len(self._due[1])

    def emit(self, occurrence: EventOccurrence, now: float, now_unix: float) -> None:
        """Tell people, some time. Never fails, never waits."""
        is_ordinary = occurrence.type == NORMAL
        if self._gives_up():
            self.counts[GIVEN_UP] += 1
        elif is_ordinary and len(self) >= NORMAL_WAITING_MAX:
            self.counts[DROPPED] += 1
        elif is_ordinary and not self._repeating:
            self._fresh.append((occurrence, now, now_unix))
        else:
            self._take(occurrence, now, now_unix)

    def emit_later(self, told: Unworded, now: float, now_unix: float) -> None:
        """As `emit`, of ordinary news."""
        if self._gives_up():
            self.counts[GIVEN_UP] += 1
        elif len(self) < NORMAL_WAITING_MAX:
            self._fresh.append((told, now, now_unix))
        else:
            self.counts[DROPPED] += 1

    def _take(self, occurrence: EventOccurrence, now: float, now_unix: float) -> None:
        """Count it with its like, to be written when that is due."""
        series_id = occurrence.id
        series = self._series.get(series_id)
        if series is None:
            if len(self) >= WAITING_MAX:
                self.counts[DROPPED] += 1
                return
            series = self._series[series_id] = _Series(occurrence, now_unix, now_unix)
            self._forget_oldest()
        else:
            series.occurrence, series.last_unix = occurrence, now_unix
            series.count += 1
            self._series.move_to_end(series_id)
        self._wait(series_id, series, now)

    def _gives_up(self) -> bool:
        """The store has no room; then nothing waits for it either."""
        if self._has_room():
            return False
        self.counts[GIVEN_UP] += len(self)
        self._fresh.clear()
        for heap in self._due:
            for _, _, series_id in heap:
                del self._series[series_id]
            heap.clear()
        return True

    def clear(self) -> None:
        """The term is over: what is not sent is not worth sending, and answers still to come are ignored."""
        self._series.clear()
        self._fresh.clear()
        for heap in self._due:
            heap.clear()
        self._sent.clear()
        self._lease = None
        self._lease_asked_until = 0.0

    def next_due(self, under_pressure: bool) -> float | None:
        """When something may be written next; None: nothing waits, or an answer is awaited."""
        dues = [heap[0][0] for heap in self._due if heap]
        if self._fresh:
            dues.append(max(self._fresh[0][1], self._wrote_at + GATHER_SECONDS))
        if not dues or self._sent:
            return None
        due = min(dues)
        pressed_until = self._wrote_at + PRESSURE_SECONDS if under_pressure else due
        return max(due, self._rests_until, pressed_until, self._lease_asked_until)

    # ------------------------------------------------------------------------------------------------------------ leases

    def lease_wanted(self, now: float) -> bool:
        """Whether a lease of LEASE_SECONDS is to be asked for. True is said once; `lease_granted` is the answer."""
        if self._gives_up():
            return False
        lease = self._lease
        if lease is not None and (not lease.left or now >= lease.until):
            lease = self._lease = None
        due = self.next_due(under_pressure=False)
        if lease is not None or due is None or due > now:
            return False
        # An answer that never comes is not waited for.
        self._lease_asked_until = now + LEASE_SECONDS
        return True

    def lease_granted(self, lease: int | None, now: float) -> None:
        """None: it was refused, or there was no answer."""
        self._lease = None if lease is None else _Lease(lease, now + LEASE_USED_SECONDS)
        self._lease_asked_until = now + LEASE_PAUSE_SECONDS if lease is None else 0.0

    # ----------------------------------------------------------------------------------------------------------- writing

    def batch(self, epoch: int, revision: int, now: float, under_pressure: bool) -> list[GuardedPut]:
        """The Events whose turn it is, as many as one transaction takes. They count as sent."""
        lease = self._lease
        due = None if self._gives_up() else self.next_due(under_pressure)
        if due is None or due > now or lease is None or now >= lease.until:
            return []
        self._allowance = min(BURST, self._allowance + (now - self._allowed_at) * RATE_PER_SECOND)
        self._allowed_at = now
        for _ in range(min(len(self._fresh), WRITES_MAX)):
            told, came, came_unix = self._fresh.popleft()
            self._take(told if isinstance(told, EventOccurrence) else told.occurrence, came, came_unix)
        writes: list[GuardedPut] = []
        for heap in self._due:
            while heap and heap[0][0] <= now and len(writes) < min(WRITES_MAX, lease.left, int(self._allowance)):
                series_id = heapq.heappop(heap)[2]
                writes.append(self._write(series_id, self._series[series_id], epoch, revision, now, lease.id))
        lease.left -= len(writes)
        self._allowance -= len(writes)
        self._wrote_at = now
        if self._allowance < 1.0:
            self._rests_until = now + REST_SECONDS
        return writes

    def _write(self, series_id: bytes, series: _Series, epoch: int, revision: int, now: float, lease: int) -> GuardedPut:
        series.waiting, series.busy = False, True
        series.sent = series.count
        series.pause_seconds = min(max(REPEAT_SECONDS_MIN, 2 * series.pause_seconds), REPEAT_SECONDS_MAX)
        series.not_before = now + series.pause_seconds
        self._number += 1
        attempt = f"{self._incarnation}-event-{self._number}"
        self._sent[attempt] = series_id
        write = LeaderWrite(op=OP_EVENT, epoch=epoch, attempt=attempt, decided_at_revision=revision)
        event = event_of(series.occurrence, series.count, series.first_unix, series.last_unix)
        key = self._keys.object_key(kinds.EVENT, event.metadata.namespace, event.metadata.name)
        return GuardedPut(key, series.mod_revision, encode(kinds.wrap(event), write), attempt=attempt, lease=lease)

    # ---------------------------------------------------------------------------------------------------------- outcomes

    def is_mine(self, write: GuardedPut) -> bool:
        return write.attempt in self._sent

    def outcome(self, write: GuardedPut, outcome: Outcome, now: float) -> None:
        """What became of a write."""
        series_id = self._sent.pop(write.attempt)
        series = self._series.get(series_id)
        if series is None:
            return
        series.busy = False
        match outcome:
            case Committed(revision):
                self.counts[WRITTEN] += 1
                series.mod_revision, series.stored = revision, series.sent
                if series.count > series.stored:
                    self._wait(series_id, series, now)
                elif series.occurrence.type == NORMAL and not self._repeating:
                    # It will hardly happen again, and if it does the store tells.
                    del self._series[series_id]
            case Conflict(current):
                self._count_on(series, current)
                self._wait(series_id, series, now)
            case _:
                # Perhaps the lease is gone. The next time it happens it is told again.
                self.counts[DROPPED] += 1
                self._lease = None
                del self._series[series_id]

    def _count_on(self, series: _Series, current: Entry | None) -> None:
        """The Event is not as it was thought to be: from now on it is as the store has it, and what happened since on top."""
        event = event_in(current)
        series.count -= series.stored
        series.stored = event.count if event is not None else 0
        series.count += series.stored
        series.first_unix = float(event.first_timestamp.seconds) if event is not None else series.last_unix
        series.mod_revision = current.mod_revision if current is not None else 0
        # The write that was refused told nobody anything.
        series.not_before = 0.0

    def _wait(self, series_id: bytes, series: _Series, now: float) -> None:
        if series.waiting or series.busy:
            return
        series.waiting = True
        self._number += 1
        due = max(now, series.not_before)
        heapq.heappush(self._due[series.occurrence.type == NORMAL], (due, self._number, series_id))

    def _forget_oldest(self) -> None:
        """Of what neither waits nor is under way."""
        while len(self._series) - len(self) - len(self._sent) > SERIES_MAX:
            series_id = next(iter(self._series))
            series = self._series[series_id]
            if series.waiting or series.busy:
                self._series.move_to_end(series_id)
            else:
                del self._series[series_id]


def event_in(entry: Entry | None) -> Event | None:
    """The Event that a key has; None: it has none that can be read, and is written anew."""
    if entry is None:
        return None
    try:
        event = kinds.unwrap(decode_entry(entry))
    except PoisonedObject:
        return None
    return event if isinstance(event, Event) else None
