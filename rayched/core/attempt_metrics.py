"""What the scheduler counts about its attempts and its writes, cheaply enough for the hot path.

A bound pod costs two appends; what was appended is folded into histograms with numpy, FOLD_AT pods at a time or at a scrape. All
else is counted where it happens: failures, waits, preemptions and transactions are rarer than pods by far.

* An attempt lasts from the begin of its cycle to the commit of its binding, or to its failure.
* The time of a cycle is read off the clock readings that begin one cycle after the other, so nobody reads the clock for it.
* A pod's SLI time runs from the begin of its first attempt; a new leader begins anew, as kube-scheduler does. An attempt that a
  race made void counts as none.
* Of the changes that the watch brings one delivery in SAMPLED_EVERY is timed.

Owner: the SchedulerCore. Buckets: pkg/scheduler/metrics of kube-scheduler 1.34. Cost: 0.3 µs a bound pod.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from rayched.api.stages import Stage
from rayched.core.cache.records import CacheChange, NodeChanged, PlanChanged, PodChanged
from rayched.core.groups.group_measures import GroupMeasures
from rayched.framework.durations import EXTENSION_POINT_BUCKETS, Durations
from rayched.framework.status import CODE_LABELS, SUCCESS
from rayched.scheduler.attempt import Attempt, AttemptFailure
from rayched.store.errors import NotApplied, StoreError
from rayched.store.transactions import Conflict, Outcome, Write

ATTEMPT_BUCKETS: Final = tuple(0.001 * 2**i for i in range(15))
SLI_BUCKETS: Final = tuple(0.01 * 2**i for i in range(20))
ATTEMPTS_BUCKETS: Final = tuple(float(2**i) for i in range(5))
VICTIMS_BUCKETS: Final = tuple(float(2**i) for i in range(7))
ATTEMPTS_LABEL_MAX: Final = 15
"""Pods with so many attempts or more share a label."""
FOLD_AT: Final = 4_096
SAMPLED_EVERY: Final = 16
SCHEDULED: Final = "scheduled"
UNSCHEDULABLE: Final = "unschedulable"
ERROR: Final = "error"
OK: Final = "ok"
CONFLICT: Final = "conflict"
FENCED: Final = "fenced"
UNKNOWN: Final = "unknown"


class Told(NamedTuple):
    """What became of an attempt, for a log."""

    pod: str
    """namespace/name."""
    result: str
    node: str
    attempt: int
    """The how-manieth of the pod."""
    cycle: int
    """The decision's number; -1 for that of the last cycle."""
    message: str = ""


class _SentAttempt(NamedTuple):
    op: str
    n_writes: int
    at: float


class AttemptMeasures:
    """See the module. Times in seconds of the core's clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.cycle_began: list[float] = []
        """When each cycle began; whoever begins one appends."""
        self._batch_ends: list[int] = []
        """Positions in `cycle_began` of entries that are the end of a batch."""
        self._first_time: defaultdict[str, list[float]] = defaultdict(list)
        """By profile: durations of first attempts that ended with a binding."""
        self._tries: dict[str, tuple[float, int]] = {}
        """Of pods that failed before, by uid: when the first attempt began, and how many there were."""
        self._making_room: dict[str, float] = {}
        self._sent: dict[int, _SentAttempt] = {}
        self._deliveries = 0

        self.groups = GroupMeasures(clock)
        self.tell: Callable[[Told], None] | None = None
        """Is told of each attempt, where somebody wants to know that much."""
        self.attempts: Counter[tuple[str, str]] = Counter()
        """By result and profile."""
        self.durations = Durations(ATTEMPT_BUCKETS)
        """Of attempts, by result and profile."""
        self.algorithm = Durations(ATTEMPT_BUCKETS)
        self.sli = Durations(SLI_BUCKETS)
        """By the label of attempts."""
        self.tries = Durations(ATTEMPTS_BUCKETS)
        self.permit_waits = Durations(ATTEMPT_BUCKETS)
        """By status."""
        self.victims = Durations(VICTIMS_BUCKETS)
        self.rooms = Durations(ATTEMPT_BUCKETS)
        """Preemptions carried out, by result."""
        self.events = Durations(EXTENSION_POINT_BUCKETS)
        """By kind of change."""
        self.transactions = Durations(ATTEMPT_BUCKETS)
        """By op and outcome."""
        self.writes = Durations(ATTEMPT_BUCKETS)
        """By op and result."""

    # ------------------------------------------------------------------------------------------------------- attempts

    def batch_ended(self, now: float) -> None:
        if self.cycle_began:
            self._batch_ends.append(len(self.cycle_began))
            self.cycle_began.append(now)
            if len(self.cycle_began) >= FOLD_AT:
                self.fold()

    def bound(self, attempt: Attempt, now: float) -> None:
        """Its binding is committed."""
        tried = self._tries.pop(attempt.uid, None) if self._tries else None
        profile = attempt.template.scheduler_name
        if self.tell is not None:
            self.tell(Told(attempt.name, SCHEDULED, attempt.node_name, 1 + (tried[1] if tried else 0), attempt.number))
        if tried is None:
            self._first_time[profile].append(now - attempt.started)
            return
        began, count = tried
        self.attempts[SCHEDULED, profile] += 1
        self.durations.observe((SCHEDULED, profile), now - attempt.started)
        self.sli.observe((attempts_label(count + 1),), now - began)
        self.tries.observe((), count + 1)

    def failed(self, uid: str, profile: str, failure: AttemptFailure, started: float, name: str = "", cycle: int = -1) -> None:
        """An attempt that began at `started` failed just now. `name` and `cycle` are for who is told."""
        result = UNSCHEDULABLE if failure.rejected else ERROR
        began, count = self._tries.get(uid, (started, 0))
        self._tries[uid] = (began, count + 1)
        if self.tell is not None:
            self.tell(Told(name, result, "", count + 1, cycle, failure.message))
        self.attempts[result, profile] += 1
        self.durations.observe((result, profile), self._clock() - started)
        if failure.preemption is not None:
            self.victims.observe((), len(failure.preemption.victims))
            self._making_room[uid] = self._clock()

    def forget(self, uid: str) -> None:
        """The pod has a node, or is gone."""
        if self._tries:
            self._tries.pop(uid, None)
        if self._making_room:
            self._making_room.pop(uid, None)

    def waited(self, attempt: Attempt, failure: AttemptFailure | None, now: float) -> None:
        """The attempt's wait at Permit is over."""
        code = SUCCESS.code if failure is None else failure.status.code
        self.permit_waits.observe((CODE_LABELS[code],), now - attempt.started)

    def made_room(self, uid: str, result: str, now: float) -> None:
        """A preemption was carried out, or was not."""
        began = self._making_room.pop(uid, None)
        if began is not None:
            self.rooms.observe((result,), now - began)

    def end_term(self) -> None:
        """What pods had behind them is forgotten with the queue."""
        self._tries.clear()
        self._making_room.clear()
        self.groups.forget()

    def fold(self) -> None:
        """Puts into histograms what was only noted down so far."""
        marks, ends = self.cycle_began, self._batch_ends
        # A batch that has not ended has a cycle whose end is not known; it is begun again where folding left off.
        if ends:
            last = ends[-1] + 1
            seconds = np.diff(np.array(marks[:last]))
            between = np.array(ends[:-1], np.intp)
            self.algorithm.observe_all((), np.delete(seconds, between))
            del marks[:last]
            ends.clear()
        for profile, durations in self._first_time.items():
            if durations:
                taken = np.array(durations)
                durations.clear()
                self.attempts[SCHEDULED, profile] += len(taken)
                self.durations.observe_all((SCHEDULED, profile), taken)
                self.sli.observe_all((attempts_label(1),), taken)
                self.tries.observe((), 1.0, len(taken))

    def bound_durations(self) -> tuple[list[int], list[int]]:
        """Of bound pods: of their last attempts by ATTEMPT_BUCKETS, of their SLI times by SLI_BUCKETS."""
        self.fold()
        return self.durations.counts(lambda labels: labels[0] == SCHEDULED), self.sli.counts(lambda _: True)

    # --------------------------------------------------------------------------------------------------------- writes

    def sent(self, number: int, op: str, n_writes: int, now: float) -> None:
        self._sent[number] = _SentAttempt(op, n_writes, now)

    def answered(self, number: int, answer: Any, outcomes: Sequence[tuple[Write, Outcome]], now: float) -> None:
        """A transaction's answer came, a TxnResponse or a StoreError, and with it the outcomes of its writes."""
        sent = self._sent.pop(number, None)
        if sent is not None:
            outcome = _outcome(answer, outcomes)
            seconds = now - sent.at
            self.transactions.observe((sent.op, outcome), seconds)
            self.writes.observe((sent.op, "success" if outcome == OK else "error"), seconds, sent.n_writes)

    def under_way(self) -> Counter[str]:
        """Writes without an answer yet, by op."""
        found: Counter[str] = Counter()
        for sent in self._sent.values():
            found[sent.op] += sent.n_writes
        return found

    # --------------------------------------------------------------------------------------------------------- events

    def timed(self, changes: Iterable[CacheChange]) -> Iterable[CacheChange]:
        """The changes of a delivery, perhaps with a stopwatch around each."""
        self._deliveries += 1
        return changes if self._deliveries % SAMPLED_EVERY else self._timed(changes)

    def _timed(self, changes: Iterable[CacheChange]) -> Iterator[CacheChange]:
        clock = self._clock
        began = clock()
        for change in changes:
            yield change
            now = clock()
            self.events.observe((_event_of(change),), now - began)
            began = now


def _outcome(answer: Any, outcomes: Sequence[tuple[Write, Outcome]]) -> str:
    if isinstance(answer, StoreError):
        return ERROR if isinstance(answer, NotApplied) else UNKNOWN
    if not answer.succeeded:
        return FENCED
    return CONFLICT if any(type(outcome) is Conflict for _, outcome in outcomes) else OK


def attempts_label(count: int) -> str:
    return str(count) if count < ATTEMPTS_LABEL_MAX else f"{ATTEMPTS_LABEL_MAX}+"


def _event_of(change: CacheChange) -> str:
    """As kube-scheduler labels what its informers bring."""
    if isinstance(change, PlanChanged):
        return "GroupPlanUpdate"
    old, new = change.old, change.new
    if isinstance(change, PodChanged):
        record, before = change.new or change.old, change.old
        assigned = record is not None and record.stage is not Stage.PENDING
        comes = before is None or (assigned and before.stage is Stage.PENDING)
        return f"{'AssignedPod' if assigned else 'UnschedulablePod'}{_action(comes, change.new is None)}"
    return f"{'Node' if isinstance(change, NodeChanged) else change.kind}{_action(old is None, new is None)}"


def _action(comes: bool, goes: bool) -> str:
    return "Delete" if goes else "Add" if comes else "Update"
