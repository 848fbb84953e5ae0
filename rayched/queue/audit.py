"""The queue's self-audit: a few pods at a time are held against what the scheduler says of them and against what happened.

The scheduler states of each pod that it asks about whether the queue has it, is waiting for the outcome of its attempt, or has
nothing to do with it (`Standing`), as of the last entry of the log that was applied. The audit keeps a journal of the newest
events of its own, apart from the queue's handling of them. For each pod it checks that

* it is in exactly one place, the one that the scheduler means and that its record says, filed where events and timers find it;
* no timer of it is missing, set later than due, or over;
* while it is unschedulable, no event since its last attempt began was worth another one (an event that was skipped, or not
  replayed after the attempt);
* where it waits for its next attempt, the event or the timer that is said to have woken it was a reason. Of each WAKES_PER_LOOKth
  event that wakes pods one of them is looked at, besides.

Each violation names the pod, is counted (`rayched_queue_invariant_violations_total`), and where possible repaired: the pod is
queued again. What cannot be repaired here, because the pod is nowhere, the caller tells anew.

Events older than the journal, and those beyond the newest JUDGED_MAX for one pod, are taken as handled; a pod is asked about
again and again, so a fault that is not a single accident is found. `SchedulingQueue.verify` checks the whole structure, in O(n).

Owner: the QueueCore. Cost: about 4 µs a pod, 1 to 3 µs for each event that is judged, 0.2 µs for each that is put down.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from rayched.framework.cluster_event import (
    BACKOFF_COMPLETE,
    FORCE_ACTIVATE,
    GIVEN_BACK,
    INVARIANT_REPAIR,
    SCHEDULE_ATTEMPT_FAILURE,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_UPDATE,
    UNSCHEDULABLE_TIMEOUT,
    ClusterEvent,
)
from rayched.queue.changes import is_pod_updated, pod_change_events
from rayched.queue.event_batch import EventBatch
from rayched.queue.hints import HintTable, Requeue
from rayched.queue.in_flight import InFlightEvent
from rayched.queue.places import Places
from rayched.queue.queued_pod import Move, Moves, PendingPod, Place, QueuedPodInfo

JOURNAL_MAX: Final = 1_024
"""Events that the audit remembers."""
JUDGED_MAX: Final = 4
"""Events judged for one pod at one visit, newest first."""
ANSWERS_MAX: Final = 4_096
"""Judgements that are remembered."""
WAKES_PER_LOOK: Final = 16
_NEEDS_NO_EVENT: Final = frozenset(
    {UNSCHEDULABLE_POD_ADD.label, UNSCHEDULABLE_POD_UPDATE.label, FORCE_ACTIVATE.label, GIVEN_BACK, INVARIANT_REPAIR}
)

PreCheck = Callable[[QueuedPodInfo], bool]


class Invariant(enum.StrEnum):
    """What can be violated; the label of the metric."""

    LOST = "lost"
    """A pending pod is nowhere in the queue."""
    ONE_PLACE = "one_place"
    """A pod is in two places, or not filed where its record says."""
    STRANGER = "stranger"
    """The queue holds a pod that does not wait for a node."""
    IN_FLIGHT = "in_flight"
    """Scheduler and queue differ over whether a pod is being scheduled."""
    TIMER = "timer"
    """A timer is missing, set too late, or did not ring."""
    MISSED_EVENT = "missed_event"
    """A pod still waits although an event was worth an attempt."""
    CAUSE = "cause"
    """A pod was woken without a reason."""


class Standing(enum.Enum):
    """What the scheduler knows of a pod."""

    QUEUED = "queued"
    IN_FLIGHT = "in flight"
    NOWHERE = "nowhere"


@dataclass(frozen=True, slots=True)
class QueueViolation:
    invariant: Invariant
    uid: str
    key: str
    what: str

    @property
    def text(self) -> str:
        return f"queue: pod {self.key}: {self.what} (invariant {self.invariant.value})"


@dataclass(frozen=True, slots=True)
class _Event(InFlightEvent):
    pre_check: PreCheck | None = None


class QueueAudit:
    """Compares pods of the queue with what the scheduler states about them."""

    def __init__(self, places: Places, hints: HintTable, violations: Counter[str] | None = None) -> None:
        """`violations` by invariant goes on counting; it outlives the queue."""
        self._places = places
        self._hints = hints
        self._journal: deque[_Event] = deque(maxlen=JOURNAL_MAX)
        self._answers: dict[tuple[int, object, str, frozenset[str]], bool] = {}
        self._wakes = 0
        self._round: list[QueuedPodInfo] = []
        self.violations: Counter[str] = Counter() if violations is None else violations

    # --------------------------------------------------------------------------------------------------------- journal

    def happened(
        self,
        event: ClusterEvent,
        old: object,
        new: object,
        position: int,
        pre_check: PreCheck | None = None,
        news: EventBatch | None = None,
    ) -> None:
        """To be told before the queue is; `news` as in `InFlightEvent`."""
        if self._hints.is_of_interest(event):
            self._journal.append(_Event(position, event, old, new, "", news, pre_check))

    def updated(self, pending: PendingPod, position: int, *, is_new: bool = False) -> None:
        """A pending pod changed, which is an event for itself; to be told before the queue is.

        `is_new`: it is told as a new pod. Then it is an event only for the attempt that the pod is in.
        """
        flight = self._places.in_flight.get(pending.uid)
        if flight is None and is_new:
            return
        pod = flight.pod if flight is not None else self._places.queued.get(pending.key)
        if pod is None or pod.uid != pending.uid or pod.place in (Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF):
            return
        if is_pod_updated(pod.pod, pending.pod):
            for event in pod_change_events(pod.pod, pending.pod):
                self._journal.append(_Event(position, event, pod.pod, pending.pod, pod.uid))

    # ---------------------------------------------------------------------------------------------------------- checking

    def suggest(self, n: int) -> tuple[tuple[str, str], ...]:
        """Uid and name of some pods that the queue holds, in turn: the scheduler may say what it knows of them."""
        if not self._round:
            self._round = [*self._places.queued.values(), *(flight.pod for flight in self._places.in_flight)]
        return tuple((pod.uid, pod.key) for pod in (self._round.pop() for _ in range(min(n, len(self._round)))))

    def check(self, uid: str, key: str, standing: Standing, now: float) -> tuple[list[QueueViolation], Moves]:
        """To be called when the log was applied and time's work is done. Counts, repairs, and tells what moves that brought."""
        found = list(self.faults(uid, key, standing, now))
        moves: list[Move] = []
        if found:
            self.violations.update(one.invariant.value for one in found)
            self._repair(uid, key, standing, now, moves)
        return found, tuple(moves)

    def woke(self, moves: Moves, now: float) -> list[QueueViolation]:
        """An event moved these pods just now."""
        self._wakes += 1
        if self._wakes % WAKES_PER_LOOK != 1:
            return []
        pod = self._places.queued.get(moves[0].key)
        if pod is None or pod.uid != moves[0].uid:
            return []
        found = [QueueViolation(invariant, pod.uid, pod.key, what) for invariant, what in self._without_cause(pod, now)]
        self.violations.update(one.invariant.value for one in found)
        return found

    def faults(self, uid: str, key: str, standing: Standing, now: float, *, flushed: bool = True) -> Iterator[QueueViolation]:
        """What is wrong about one pod. `flushed`: nothing that is over may be left. Changes nothing."""

        def violated(invariant: Invariant, what: str) -> QueueViolation:
            return QueueViolation(invariant, uid, key, what)

        flight = self._places.in_flight.get(uid)
        holders = [(place, pod) for place, pod in self._places.holders(key) if pod.uid == uid]
        where = [place.value for place, _ in holders]
        if flight is not None:
            where.append(Place.IN_FLIGHT.value)
        if len(where) > 1:
            yield violated(Invariant.ONE_PLACE, f"is in {len(where)} places: {', '.join(where)}")
            return
        match standing:
            case Standing.NOWHERE if holders:
                yield violated(Invariant.STRANGER, f"is {where[0]}, but does not wait for a node")
            case Standing.NOWHERE | Standing.QUEUED if flight is not None:
                yield violated(Invariant.IN_FLIGHT, "is in flight, but nobody schedules it")
            case Standing.IN_FLIGHT if flight is None:
                yield violated(Invariant.IN_FLIGHT, f"is being scheduled, but is {where[0] if where else 'nowhere'}")
            case Standing.QUEUED if not holders:
                yield violated(Invariant.LOST, "waits for a node, but is nowhere")
            case Standing.QUEUED:
                for invariant, what in self._faults_of_place(*holders[0], now, flushed):
                    yield violated(invariant, what)

    def _faults_of_place(self, place: Place, pod: QueuedPodInfo, now: float, flushed: bool) -> Iterator[tuple[Invariant, str]]:
        if pod.place is not place or self._places.queued.get(pod.key) is not pod:
            yield Invariant.ONE_PLACE, f"is {place.value}, but known as {pod.place.value}"
            return
        match place:
            case Place.UNSCHEDULABLE | Place.GATED:
                yield from ((Invariant.ONE_PLACE, what) for what in self._places.pool.misfilings(pod))
                yield from ((Invariant.TIMER, what) for what in self._places.wrong_timers(pod, now, flushed))
                if place is Place.UNSCHEDULABLE:
                    yield from self._missed(pod)
            case _:
                yield from ((Invariant.TIMER, what) for what in self._places.wrong_timers(pod, now, flushed))
                yield from self._without_cause(pod, now)

    def _missed(self, pod: QueuedPodInfo) -> Iterator[tuple[Invariant, str]]:
        if not pod.rejectors:
            yield Invariant.MISSED_EVENT, "waits for an event, but no plugin holds it"
            return
        for number, event in enumerate(reversed(self._journal)):
            if event.position <= pod.seen_through or number >= JUDGED_MAX:
                return
            if self._concerns(event, pod) and self._is_worth(event, pod):
                yield Invariant.MISSED_EVENT, f"still waits, although {event.event.label} was worth an attempt"
                return

    def _without_cause(self, pod: QueuedPodInfo, now: float) -> Iterator[tuple[Invariant, str]]:
        label = pod.woken_by
        if not pod.rejectors or label in _NEEDS_NO_EVENT:
            return
        if label == BACKOFF_COMPLETE:
            if self._places.backoff.is_backing_off(pod, now):
                yield Invariant.CAUSE, "left backoff before its end"
        elif label == UNSCHEDULABLE_TIMEOUT.label:
            if now <= self._places.flush_due(pod):
                yield Invariant.CAUSE, "left the unschedulable pods before its time"
        elif pod.woken_at:
            events = self._events_at(pod.woken_at, label)
            if events and not any(self._is_worth(event, pod) for event in events):
                yield Invariant.CAUSE, f"was woken by {events[0].event.label}, which is not worth an attempt"
            elif not events and self._remembers(pod.woken_at):
                yield Invariant.CAUSE, f"was woken by {label}, which did not happen"

    def _concerns(self, event: _Event, pod: QueuedPodInfo) -> bool:
        return event.uid in ("", pod.uid) and (event.pre_check is None or event.pre_check(pod))

    def _is_worth(self, event: _Event, pod: QueuedPodInfo) -> bool:
        """One answer serves all pods of a template that the same plugins hold."""
        if pod.template is None or event.uid:
            return self._judged(event, pod)
        question = (event.position, pod.template, pod.scheduler_name, pod.rejectors)
        known = self._answers.get(question)
        if known is None:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            known = self._answers[question] = self._judged(event, pod)
        return known

    def _judged(self, event: _Event, pod: QueuedPodInfo) -> bool:
        judge = self._hints.judge
        # Objects are made for the hints alone.
        return self._hints.may_wake(pod, event.event) and any(
            judge(pod, event.event, old, new, _unheard, self._places.pool.questions) is not Requeue.SKIP
            for old, new in event.changes()
        )

    def _events_at(self, position: int, label: str) -> list[_Event]:
        """Those that may have woken a pod: an update of its own may be several, and a replay does not say which one it was."""
        newer = takewhile(lambda event: event.position >= position, reversed(self._journal))
        at = [event for event in newer if event.position == position]
        return at if label == SCHEDULE_ATTEMPT_FAILURE else [event for event in at if event.event.label == label]

    def _remembers(self, position: int) -> bool:
        return len(self._journal) < JOURNAL_MAX or self._journal[0].position < position

    # --------------------------------------------------------------------------------------------------------- repairing

    def _repair(self, uid: str, key: str, standing: Standing, now: float, moves: list[Move]) -> None:
        """What is left of the pod goes to where it belongs; a pod of which nothing is left is told anew by the caller."""
        places = self._places
        flight = places.in_flight.get(uid)
        held = next((pod for _, pod in places.holders(key) if pod.uid == uid), None)
        pod = flight.pod if flight is not None else held
        if pod is None:
            return
        is_gone = standing is Standing.NOWHERE or (flight is not None and flight.deleted)
        places.in_flight.end(uid)
        places.take_out(pod)
        if not is_gone:
            places.queued[key] = pod
            places.requeue(pod, Requeue.AFTER_BACKOFF, INVARIANT_REPAIR, now, moves)
        places.count_held_anew()


def _unheard(_plugin: str, _problem: Exception) -> None:
    """A hint that raises was counted when the queue asked it."""
