"""How attempts end: the outcome for the queue, the Event, the pod's status, and what is counted.

Every pod that the queue handed out gets exactly one outcome in its session: bound, failed, or as if it had not been handed out.

Owner: the SchedulerCore. Cost: about 2 µs a bound pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from rayched.api.occurrences import cut
from rayched.core.attempt_metrics import AttemptMeasures
from rayched.core.cache.records import PodRecord, nominated_in
from rayched.core.exchange.queue_session import QueueLink
from rayched.core.parts import CoreParts
from rayched.core.writes import event_reasons as occurrences
from rayched.core.writes import pod_patches as pod_changes
from rayched.core.writes.bindings import ENDS_BOUND, AttemptEnd, EndedAttempt
from rayched.core.writes.event_reasons import Scheduled
from rayched.core.writes.pod_patches import NotScheduled
from rayched.core.writes.preemptions import DecidedPreemption
from rayched.framework.status import error
from rayched.scheduler.attempt import AttemptFailure
from rayched.store.transactions import Committed, Conflict, GuardedPut, Outcome, TransactionRefused

CONDITION_BYTES_MAX: Final = 32_768
"""Of the message in a pod's condition, as Kubernetes limits those of metav1.Condition. It counts reasons, and each node may have
its own."""


class AttemptEnds:
    """Ends each attempt once: for the queue, the pod's status, Events and metrics."""

    def __init__(self, parts: CoreParts) -> None:
        self._clock, self._wall_clock = parts.ports.clock, parts.ports.wall_clock
        self._cache, self._scheduler, self._feed = parts.cache, parts.scheduler, parts.feed
        self._statuses, self._events = parts.statuses, parts.events
        self._bindings, self._preemptions = parts.bindings, parts.preemptions
        # Each pod that comes, and each attempt, asks these.
        self._is_queued, self._is_making_room = parts.feed.is_queued, parts.preemptions.is_under_way
        self._assumed_on = parts.scheduler.occupancy.assumed_on
        self.link: QueueLink | None = None
        """The session with the queue, while leading."""
        self.attempts: Counter[str] = Counter()
        """Ended attempts by result: scheduled, unschedulable, error."""
        self.measures = AttemptMeasures(parts.ports.clock)

    def is_to_be_tried(self, record: PodRecord) -> bool:
        """It waits for a node, a profile has it, no attempt holds room for it and none is making room."""
        uid = record.uid
        return self._is_queued(record) and self._assumed_on(uid) is None and not self._is_making_room(uid)

    def room_answered(self, write: GuardedPut, outcome: Outcome, now: float) -> None:
        """What became of a preemption."""
        answered = self._preemptions.outcome(write, outcome)
        room = answered.room
        for victim in filter(None, map(self._cache.pod, answered.victims)):
            self._events.emit(occurrences.preempted(victim, *answered.whom), now, self._wall_clock())
        if room is None:
            return
        self.measures.made_room(room.uid, "success" if isinstance(outcome, Committed) else "error", now)
        match outcome:
            case Committed():
                self._tell_failed(room.uid, room.began, room.failure, now)
            case Conflict():
                self._bindings.lose(room.uid, write, outcome)
            case TransactionRefused(problem):
                self._refused(room, str(problem), now)
            case _:
                self.end(EndedAttempt(room.uid, AttemptEnd.AGAIN))

    def room_refused(self, room: DecidedPreemption, problem: str, now: float) -> None:
        """A preemption that was not sent, as no write can make it."""
        self.measures.made_room(room.uid, "error", now)
        self._refused(room, problem, now)

    def _refused(self, room: DecidedPreemption, problem: str, now: float) -> None:
        self._scheduler.nominations.forget(room.uid)
        failure = AttemptFailure(error(problem), f"preemption rejected: {problem}", nominated_node_name="")
        self.failed(room.uid, room.began, failure, now)

    def end_all(self, ended: Iterable[EndedAttempt]) -> None:
        for one in ended:
            self.end(one)

    def end(self, ended: EndedAttempt) -> None:
        """Report the outcome of a pod that the queue handed out, to the queue and in the pod's status."""
        uid, link = ended.uid, self.link
        now = self._clock()
        if ended.end is ENDS_BOUND:
            self.attempts["scheduled"] += 1
            if ended.attempt is not None:
                of = ended.attempt
                self.measures.bound(of, now)
                told = Scheduled(of.uid, of.name, of.node_name, of.template.scheduler_name)
                self._events.emit_later(told, now, self._wall_clock())
            if link is not None:
                link.ended(uid)
        elif ended.end is AttemptEnd.FAILED and ended.failure is not None and ended.attempt is not None:
            of = ended.attempt
            self.measures.failed(uid, of.template.scheduler_name, ended.failure, of.started, of.name, of.number)
            self.failed(uid, ended.attempt.began, ended.failure, now)
        elif link is not None:
            record = self._cache.pod(uid)
            if record is None or not self.is_to_be_tried(record):
                link.ended(uid)
                return
            # The attempt is void, and with it the end that it put to the pod's nomination.
            self._scheduler.nominations.nominate(uid, record.template, nominated_in(record))
            if not link.give_back(uid):
                # It was handed out in an earlier session; to this queue it is new.
                link.tell(*self._feed.pending_pod(record, now))

    def tell_freed(self) -> None:
        """Room that undone attempts gave back may be what others wait for. Sent after the attempts' own outcomes."""
        freed, link = self._scheduler.freed, self.link
        if not freed or link is None:
            return
        for attempt in freed:
            link.tell_all(self._feed.undone(attempt.uid, attempt.template, attempt.node_name))
        freed.clear()

    def failed(self, uid: str, began: int, failure: AttemptFailure, now: float) -> None:
        self.attempts["unschedulable" if failure.rejected else "error"] += 1
        reason = pod_changes.REASON_UNSCHEDULABLE if failure.rejected else pod_changes.REASON_ERROR
        link, record = self.link, self._cache.pod(uid)
        if link is None or record is None or not self._feed.is_queued(record):
            if link is not None:
                link.ended(uid)
            return
        message = cut(failure.message, CONDITION_BYTES_MAX)
        why = NotScheduled(reason, message, failure.nominated_node_name)
        if failure.preemption is not None:
            self._preemptions.decided(
                DecidedPreemption(uid, record.template, began, failure, why, failure.preemption, self._cache.revision)
            )
            return
        self._statuses.want(uid, why, now)
        self._tell_failed(uid, began, failure, now)

    def _tell_failed(self, uid: str, began: int, failure: AttemptFailure, now: float) -> None:
        """Report to the queue and by an Event; the pod's status has it, or will."""
        link, record = self.link, self._cache.pod(uid)
        if link is None or record is None or not self._feed.is_queued(record):
            return
        self._events.emit(occurrences.failed_scheduling(record, failure.message), now, self._wall_clock())
        if not link.failed(uid, began, failure):
            link.tell(*self._feed.pending_pod(record, now))
