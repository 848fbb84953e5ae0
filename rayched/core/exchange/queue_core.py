"""The QueueActor without its shell: owner of the SchedulingQueue, driven by exchanges alone.

The queue audits itself: with a roll of the scheduler it examines the pods named there (`queue.audit`).

Invariants: a session starts with an empty queue; requests of older sessions change nothing and get an answer without pods; log
positions of a session follow each other without a gap, else the caller is broken and the session is void.

No I/O, no clock. Cost: about 8 µs a pod that comes, is handed out and ends.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Final

from rayched.api import kinds
from rayched.api.kinds import AnyObject
from rayched.configuration.configuration import Configuration
from rayched.core.exchange.messages import (
    GROUP_MARK,
    Activated,
    AssignedPod,
    AssignedPods,
    AttemptFailed,
    AttemptsEnded,
    ClusterChange,
    ExchangeAnswer,
    ExchangeRequest,
    GivenBack,
    LogEntry,
    PendingPodGone,
    PendingPodSeen,
    PutOff,
    SentObject,
    TakenUp,
)
from rayched.framework.cluster_event import ASSIGNED_POD_ADD
from rayched.framework.profile import Profile
from rayched.queue.audit import Invariant, QueueAudit, Standing
from rayched.queue.backoff import BackoffPolicy
from rayched.queue.durations import PreEnqueueDurations
from rayched.queue.event_batch import EventBatch
from rayched.queue.flags import DEFAULT_FLAGS, QueueFlags
from rayched.queue.hints import HintTable
from rayched.queue.places import QueueSettings
from rayched.queue.queued_pod import Moves, PendingPod, Place
from rayched.queue.scheduling_queue import AlreadyQueued, Moving, NotInFlight, PreCheck, SchedulingQueue
from rayched.v1.core_pb2 import Pod

SLICE_SECONDS: Final = 0.2
"""An exchange takes no longer, but for its last step: the scheduler ends a queue that does not answer."""
STEPS_AT_ONCE: Final = 8
"""Entries, or pieces of one, between two looks at the clock."""

QueueFactory = Callable[[PreEnqueueDurations], SchedulingQueue]


class LogGap(RuntimeError):
    """Entries are missing between two exchanges; the queue can no longer be right."""


def queue_factory(
    configuration: Configuration, profiles: Mapping[str, Profile], flags: QueueFlags = DEFAULT_FLAGS
) -> QueueFactory:
    """Makes empty queues for these profiles, which share one QueueSort plugin."""
    sort_key = next(iter(profiles.values())).queue_sort.sort_key
    hints = HintTable.of_profiles(profiles.values())
    pre_enqueue = {name: profile.pre_enqueue for name, profile in profiles.items()}
    backoff = BackoffPolicy(configuration.pod_initial_backoff_seconds, configuration.pod_max_backoff_seconds)
    settings = QueueSettings(backoff, flags.unschedulable_seconds_max, flags.retries_in_a_row_max, flags.fair_namespaces)

    def new_queue(durations: PreEnqueueDurations) -> SchedulingQueue:
        hints.time_with(durations.timed_hint)
        return SchedulingQueue(sort_key, hints, pre_enqueue, settings, durations)

    return new_queue


class QueueCore:
    """The QueueActor's state: one queue, driven by calls of `exchange`."""

    def __init__(
        self,
        new_queue: QueueFactory,
        stopwatch: Callable[[], float] = lambda: 0.0,
        moved: Callable[[Moves], None] = lambda _: None,
    ) -> None:
        """`stopwatch`: seconds, to measure plugins with. `moved` is told of the moves of pods."""
        self._new_queue = new_queue
        self._moved = moved
        self._session = 0
        self._stopwatch = stopwatch
        self._received = 0
        """The position of the last entry that came."""
        self._position = 0
        """Of the last one that was applied."""
        self._left: deque[LogEntry] = deque()
        """Entries that came and were not begun yet."""
        self._moving: Moving | None = None
        """What was begun with the last entry before them, and has not ended."""
        self._groups: dict[str, str] = {}
        """Entries that are pod groups: names by uid."""
        self._templates: dict[int, Pod | bytes] = {}
        """Read when they are first asked for."""
        self._to_forget: list[int] = []
        """Templates that may go once nothing is left that names them."""
        self.durations = PreEnqueueDurations(stopwatch)
        self.queue = new_queue(self.durations)
        self._incoming: Counter[tuple[str, str]] = Counter()
        self._incoming_groups: Counter[tuple[str, str]] = Counter()
        self._hint_failures: Counter[str] = Counter()
        self._turns = 0
        """What queues of earlier sessions counted."""
        self.violations: Counter[str] = Counter()
        """What the audit found in all sessions, by invariant."""
        self.audit = self._new_audit()
        self.refused: Counter[str] = Counter()
        """Outcomes that concern no pod in flight, by type: each is a fault of the caller, none of them harms the queue."""

    @property
    def session(self) -> int:
        return self._session

    def incoming(self) -> Counter[tuple[str, str]]:
        """How many pods came into each queue in all sessions, by (queue, event label)."""
        return self._incoming + Counter(self.queue.incoming)

    def incoming_groups(self) -> Counter[tuple[str, str]]:
        """How many of them stand for a pod group."""
        return self._incoming_groups + Counter(self.queue.incoming_groups)

    def turns(self) -> int:
        """How often a namespace that had its share of a second let another go first, in all sessions."""
        return self._turns + self.queue.places.turns

    def groups(self) -> Counter[str]:
        """Entries that are pod groups, by place."""
        queued = self.queue.places.queued
        places = (queued[name].place for name in self._groups.values() if name in queued)
        return Counter("backoff" if place is Place.ERROR_BACKOFF else place.value for place in places)

    def hint_failures(self) -> Counter[str]:
        """Hint functions that raised in all sessions, by plugin."""
        return self._hint_failures + self.queue.hint_failures

    def exchange(self, request: ExchangeRequest) -> ExchangeAnswer:
        """Apply the log, then hand out pods. What takes longer than SLICE_SECONDS goes on with the next call."""
        if request.session < self._session:
            return ExchangeAnswer(self._session)
        if request.session > self._session:
            self._begin(request.session)
        if request.entries and request.first != self._received + 1:
            raise LogGap(f"the log continues at {request.first}, but {self._received} was the last entry")
        self._received += len(request.entries)
        self._left.extend(request.entries)
        self._templates.update(request.templates)
        self.queue.places.spent(request.spent, request.now)
        self._to_forget.extend(request.forget)
        gated: list[str] = []
        problems: list[str] = []
        lost: list[str] = []
        until, steps = self._stopwatch() + SLICE_SECONDS, 0
        while self._left or self._moving is not None:
            moves, is_wake = self._step(request.now)
            steps += 1
            if moves:
                self._note(moves, gated)
                if is_wake:
                    problems += [violation.text for violation in self.audit.woke(moves, request.now)]
            if not steps % STEPS_AT_ONCE and (self._left or self._moving is not None) and self._stopwatch() >= until:
                problems += self.queue.raised.take()
                return ExchangeAnswer(
                    self._session,
                    more=True,
                    gated=tuple(gated),
                    counts=self.queue.pending().by_place,
                    problems=tuple(problems),
                    behind=len(self._left) + (self._moving is not None),
                )
        for template in self._to_forget:
            self._templates.pop(template, None)
        self._to_forget.clear()
        queue = self.queue
        self._note(queue.flush(request.now), gated)
        for uid, name, standing in request.roll:
            found, moves = self.audit.check(uid, name, Standing(standing), request.now)
            if found:
                problems += [violation.text for violation in found]
                lost += [violation.uid for violation in found if violation.invariant is Invariant.LOST]
                self._note(moves, gated)
        popped = queue.pop_batch(request.want, request.now)
        problems += queue.raised.take()
        counts = queue.pending()
        return ExchangeAnswer(
            session=self._session,
            uids=tuple([pod.uid for pod in popped]),
            more=counts.active > 0 or counts.backoff > counts.error_backoff,
            next_due=queue.next_due(request.now),
            gated=tuple(gated),
            counts=counts.by_place,
            awaits_bindings=queue.is_awaited(ASSIGNED_POD_ADD),
            suggested=self.audit.suggest(request.suggest),
            problems=tuple(problems),
            lost=tuple(lost),
            namespaces=queue.places.namespaces(popped),
        )

    def _begin(self, session: int) -> None:
        self._session = session
        self._received = self._position = 0
        self._left.clear()
        self._moving = None
        self._templates.clear()
        self._groups.clear()
        self._to_forget.clear()
        self._incoming = self.incoming()
        self._incoming_groups = self.incoming_groups()
        self._hint_failures = self.hint_failures()
        self._turns = self.turns()
        self.queue = self._new_queue(self.durations)
        self.audit = self._new_audit()

    def _new_audit(self) -> QueueAudit:
        return QueueAudit(self.queue.places, self.queue.hints, self.violations)

    def _step(self, now: float) -> tuple[Moves, bool]:
        """The next entry, or a piece of one that takes long: the moves made, and whether an event made them."""
        if self._moving is None:
            entry = self._left.popleft()
            self._position += 1
            if not isinstance(entry, ClusterChange | AssignedPods):
                return self._apply(entry, now), False
            self._moving = self._wakes(entry, now)
        try:
            next(self._moving)
        except StopIteration as end:
            self._moving = None
            return end.value, True
        return (), True

    def _wakes(self, entry: ClusterChange | AssignedPods, now: float) -> Moving:
        """What happened in the cluster is held against all that wait."""
        event, position = entry.event, self._position
        if isinstance(entry, AssignedPods):
            news = self._assigned(entry)
            self.audit.happened(event, None, None, position, news=news)
            return self.queue.moving_all_for_each(event, now, news, position=position)
        old, new, pre_check = self._object(entry.old), self._object(entry.new), _pre_check(entry)
        self.audit.happened(event, old, new, position, pre_check)
        return self.queue.moving_all(event, now, old=old, new=new, pre_check=pre_check, position=position)

    def _apply(self, entry: LogEntry, now: float) -> Moves:
        queue = self.queue
        match entry:
            case PendingPodSeen():
                pending = self._pending_pod(entry)
                if GROUP_MARK in entry.name:
                    self._groups[entry.uid] = entry.name
                self.audit.updated(pending, self._position, is_new=entry.is_new)
                if entry.is_new:
                    return queue.add(pending, entry.timestamp)
                return queue.update(pending, entry.timestamp, position=self._position)
            case AttemptsEnded():
                for uid in entry.uids:
                    queue.done(uid)
                    self._groups.pop(uid, None)
            case PendingPodGone():
                queue.delete(entry.uid, entry.name)
                self._groups.pop(entry.uid, None)
            case AttemptFailed():
                return self._failed(entry, now)
            case GivenBack():
                return queue.give_back(entry.uids, now)
            case PutOff():
                queue.put_off(entry.uid)
            case TakenUp():
                queue.take_up(entry.uid, position=self._position)
            case Activated():
                return queue.activate(entry.names, now)
        return ()

    def _note(self, moves: Moves, gated: list[str]) -> None:
        """Remember who became gated, and tell of it all."""
        if moves:
            gated.extend(move.uid for move in moves if move.place is Place.GATED)
            self._moved(moves)

    def _failed(self, entry: AttemptFailed, now: float) -> Moves:
        try:
            return self.queue.add_unschedulable(
                entry.uid,
                now,
                unschedulable_plugins=entry.unschedulable_plugins,
                pending_plugins=entry.pending_plugins,
                began=entry.began,
                nominated_node_name=entry.nominated_node_name,
            )
        except (AlreadyQueued, NotInFlight) as problem:
            self.refused[type(problem).__name__] += 1
            return ()

    def _pending_pod(self, entry: PendingPodSeen) -> PendingPod:
        pod = self._template(entry.template)
        return PendingPod(
            uid=entry.uid,
            key=entry.name,
            pod=pod,
            priority=entry.priority,
            scheduler_name=pod.spec.scheduler_name,
            template=entry.template,
            nominated_node_name=entry.nominated_node_name,
            members=entry.members,
            is_group=GROUP_MARK in entry.name,
        )

    def _template(self, number: int) -> Pod:
        found = self._templates[number]
        if isinstance(found, bytes):
            found = self._templates[number] = Pod.FromString(found)
        return found

    def _object(self, sent: AssignedPod | SentObject | None) -> AnyObject | None:
        if sent is None:
            return None
        if isinstance(sent, SentObject):
            return kinds.by_name(sent.kind).message.FromString(sent.content)
        return _on_node(self._template(sent.template), sent.node_name, sent.nominated_node_name)

    def _assigned(self, entry: AssignedPods) -> EventBatch:
        # Templates may be forgotten before anybody looks.
        templates = [self._template(template) for template in entry.templates]
        return EventBatch(len(templates), lambda: [_on_node(*one) for one in zip(templates, entry.node_names, strict=True)])


def _on_node(template: Pod, node_name: str, nominated_node_name: str = "") -> Pod:
    pod = Pod()
    pod.CopyFrom(template)
    pod.spec.node_name = node_name
    pod.status.nominated_node_name = nominated_node_name
    return pod


def _pre_check(change: ClusterChange) -> PreCheck | None:
    """Which of the waiting pods the change is for; None: all of them."""
    highest, but = change.priority_max, change.except_uid
    if highest is None and not but:
        return None
    return lambda pod: (highest is None or pod.priority <= highest) and pod.uid != but
