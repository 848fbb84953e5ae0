"""From what is known of ReplicaSets and jobs to guarded writes, and what became of them. No I/O, no clock, no lock.

    deliveries ──▶ view ──▶ changed ─┬▶ decide ──▶ plans ──▶ settle
                    time ──▶ due ────┘                          │ not before the view shows what was written
                                     ▲──────────────────────────┘

Nothing is decided before the view has seen the own epoch: then it has seen all that was written under the epochs before. And
nothing is decided about a controller before the view has seen what was last written for it, so no pod is made for a place that
has one already. A creation whose outcome nobody knows may still arrive: its condition is the controller's revision, so that is
moved first (a write of the controller as it is), after which it is there or never will be.

Costs what has changed: a turn looks at 500 controllers, and writes for 100 of them, 1,000 writes at most; the rest waits for the
next. A controller of many pods rests after its writes for 20 µs a pod.

`now` is a monotonic clock's, and says when to look again. `wall` is the wall clock's: deadlines and times of objects count by it.

Owner: the driver, under its lock.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import ClassVar, Final

from rayched.api.well_known_taints import DefaultTolerations
from rayched.controllers.workloads import jobs, replica_sets
from rayched.controllers.workloads.jobs import FailureBackoff
from rayched.controllers.workloads.pod_making import PodMaker, TemplateRefused
from rayched.controllers.workloads.pod_writes import OP_CREATE, OP_STATUS, AttemptNumbers, PodWrites
from rayched.controllers.workloads.replica_sets import AT_ONCE_MAX
from rayched.controllers.workloads.workload_view import PodOwner, WorkloadView
from rayched.store.codec import decode_entry, encode
from rayched.store.entries import Entry
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Delivery, ListedAll
from rayched.store.transactions import (
    Committed,
    Conflict,
    GuardedDelete,
    GuardedPut,
    Outcome,
    OutcomeUnknown,
    TransactionRefused,
    Write,
)
from rayched.v1.workloads_pb2 import Job, JobStatus, Object, ReplicaSet, ReplicaSetStatus

LOOKS_A_TURN: Final = 500
CONTROLLERS_A_TURN: Final = 100
WRITES_A_TURN: Final = 500
"""No further controller is looked at once there are so many; the last one may add as many again."""
REFUSED_SECONDS: Final = 30.0
"""Until it is tried again to make pods of a template that admission refused; classes that come change that at once."""
RETRY_SECONDS: Final = 1.0
REST_SECONDS_A_POD: Final = 20e-6
REST_SECONDS_MIN: Final = 0.01
STRAYS: Final = ""
"""In place of a uid: pods whose controller is gone."""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class WorkloadPlan:
    """What is to be written for one controller: first `pods`, then `creations` by and by, then `last`."""

    uid: str
    kind: str = ""
    key: bytes = b""
    """Of the controller itself."""
    pods: list[Write] = field(default_factory=list)
    creations: list[GuardedPut] = field(default_factory=list)
    last: list[Write] = field(default_factory=list)
    recheck_at: float | None = None
    """By the wall clock."""
    stopped: bool = False
    """A creation was not done: the others are not sent."""

    def again_at(self, wall: float) -> None:
        self.recheck_at = wall if self.recheck_at is None else min(wall, self.recheck_at)

    def __len__(self) -> int:
        return len(self.pods) + len(self.creations) + len(self.last)


class WorkloadReconciler:
    """See the module."""

    RULE_THE_VIEW_REACHES_WHAT_WAS_WRITTEN: ClassVar[bool] = True
    """Broken by tests alone."""

    def __init__(
        self,
        keys: Keys,
        incarnation: str,
        random: Random,
        tolerations: DefaultTolerations,
        decode: Callable[[Entry], Object] = decode_entry,
    ) -> None:
        """`incarnation` begins the attempt ids of all writes, and is of no other reconciler. `decode` may share what it gives."""
        self.view = WorkloadView(keys, decode)
        self._keys = keys
        self._numbers = AttemptNumbers(incarnation)
        self._maker = PodMaker(keys, random, tolerations)
        self._to_look_at: dict[str, None] = {}
        self._waiting: dict[str, int] = {}
        """By uid: the revision that the view has to reach first."""
        self._due: list[tuple[float, str]] = []
        """A heap: when a controller is to be looked at although nothing has changed. One may be in it several times."""
        self._due_at: dict[str, float] = {}
        """The earliest of them."""
        self._resting: dict[str, float] = {}
        self._uncertain: set[str] = set()
        """Of whom a creation may still arrive."""
        self._backoffs: dict[str, FailureBackoff] = {}
        self._may_create = True
        self._refused: dict[str, int] = {}
        """By uid: the version of the classes with which its template was refused."""

    def deliver(self, delivery: Delivery) -> bool:
        """Takes in what the watch of the cluster delivered; whether there may be something to do."""
        if isinstance(delivery, ListedAll) and delivery.revision < self.view.revision:
            # etcd was set back: the revisions that are waited for may never come.
            self._waiting.clear()
        return self.view.deliver(delivery)

    def seconds_until_due(self, now: float) -> float | None:
        """None: only a change brings something to do."""
        return max(0.0, self._due[0][0] - now) if self._due else None

    # --------------------------------------------------------------------------------------------------------- deciding

    def decide(self, epoch: int | None, now: float, wall: float, *, may_create: bool = True) -> list[WorkloadPlan]:
        """What is to be written now. Each plan that is not empty is answered by `settle`.

        Without `may_create` nothing new is made, as where etcd's space is nearly used up; what frees space goes on.
        """
        view = self.view
        self._may_create = may_create
        if epoch is None or not view.complete or view.revision < epoch:
            return []
        self._gather(now)
        plans: list[WorkloadPlan] = []
        n_writes = 0
        writes = PodWrites(self._keys, view, self._numbers, epoch, wall)
        for uid in islice(self._ready(), LOOKS_A_TURN):
            if len(plans) >= CONTROLLERS_A_TURN or n_writes >= WRITES_A_TURN:
                break
            del self._to_look_at[uid]
            plan = self._plan(uid, writes, wall)
            if plan is None:
                continue
            if len(plan):
                plans.append(plan)
                n_writes += len(plan)
                self._rest(uid, now)
            if plan.recheck_at is not None:
                self._look_at(uid, now + max(0.0, plan.recheck_at - wall))
        return plans

    @property
    def is_behind(self) -> bool:
        """There are controllers to look at that had no turn."""
        return next(self._ready(), None) is not None

    def _rest(self, uid: str, now: float) -> None:
        seconds = len(self.view.pods_of(uid).every) * REST_SECONDS_A_POD
        if seconds > REST_SECONDS_MIN:
            self._resting[uid] = now + seconds
            self._look_at(uid, now + seconds)

    def _gather(self, now: float) -> None:
        """Whom to look at: they changed, they are due, or what they waited for is seen."""
        view = self.view
        self._to_look_at.update(view.changed)
        view.changed.clear()
        if view.strays:
            self._to_look_at[STRAYS] = None
        for uid in [uid for uid, revision in self._waiting.items() if revision <= view.revision]:
            del self._waiting[uid]
            self._to_look_at[uid] = None
        for uid in [uid for uid, version in self._refused.items() if version != view.classes.version]:
            del self._refused[uid]
            self._to_look_at[uid] = None
        while self._due and self._due[0][0] <= now:
            at, uid = heapq.heappop(self._due)
            if self._due_at.get(uid) == at:
                del self._due_at[uid]
            self._to_look_at[uid] = None
        for uid in [uid for uid, until in self._resting.items() if until <= now]:
            del self._resting[uid]

    def _ready(self) -> Iterator[str]:
        """Those that wait for the view, or rest, stay on the list."""
        for uid in list(self._to_look_at):
            waits = uid in self._waiting and self.RULE_THE_VIEW_REACHES_WHAT_WAS_WRITTEN
            if not waits and uid not in self._resting:
                yield uid

    def _plan(self, uid: str, writes: PodWrites, wall: float) -> WorkloadPlan | None:
        if uid == STRAYS:
            strays = islice(self.view.strays.values(), AT_ONCE_MAX)
            return WorkloadPlan(STRAYS, pods=[write for pod in strays if (write := writes.of_stray(pod)) is not None])
        workload = self.view.workloads.get(uid)
        if workload is None:
            self._forget(uid)
            return None
        if not workload.makes_pods:
            return None
        if uid in self._uncertain:
            return WorkloadPlan(uid, key=workload.entry.key, last=[self._as_it_is(workload, writes)])
        plan = WorkloadPlan(uid, workload.kind.name, workload.entry.key)
        adopted, released = self.view.adoptable.get(uid, {}), self.view.released.get(uid, {})
        if adopted or released:
            # Who belongs to it comes first; how many are missing is seen after that.
            plan.pods += [writes.adoption(workload, pod) for pod in islice(adopted.values(), AT_ONCE_MAX)]
            plan.pods += [writes.release(pod) for pod in islice(released.values(), AT_ONCE_MAX)]
        elif isinstance(workload.message, Job):
            self._plan_job(workload, workload.message, plan, writes, wall)
        else:
            self._plan_replica_set(workload, workload.message, plan, writes, wall)
        return plan

    def _forget(self, uid: str) -> None:
        for table in (self._waiting, self._backoffs, self._refused, self._due_at, self._resting):
            table.pop(uid, None)
        self._uncertain.discard(uid)

    def _plan_replica_set(
        self, workload: PodOwner, replica_set: ReplicaSet, plan: WorkloadPlan, writes: PodWrites, wall: float
    ) -> None:
        pods = self.view.pods_of(workload.uid)
        turn = replica_sets.turn_of(replica_set, pods, wall)
        plan.pods = [writes.deletion(pod, tracked=False) for pod in turn.delete]
        failure = self._create(workload, [None] * turn.create, plan, writes, wall)
        judged = replica_sets.status_of(replica_set, pods, wall, failure)
        if judged.recheck_at is not None:
            plan.again_at(judged.recheck_at)
        observed = replica_set.status.observed_generation >= replica_set.metadata.generation
        # What is written now changes the counts: the status waits for that.
        if judged.status != replica_set.status and (not len(plan) or not observed):
            plan.last.append(self._with_status(workload, judged.status, writes))

    def _plan_job(self, workload: PodOwner, job: Job, plan: WorkloadPlan, writes: PodWrites, wall: float) -> None:
        uid = workload.uid
        turn = jobs.turn_of(job, self.view.pods_of(uid), self._backoffs.setdefault(uid, FailureBackoff()), wall)
        if turn.recheck_at is not None:
            plan.again_at(turn.recheck_at)
        plan.pods = [
            *(writes.deletion(pod, tracked=False) for pod in turn.withdraw),
            *(writes.deletion(pod, tracked=True) for pod in turn.end),
            *(writes.counted(pod) for pod in turn.release),
        ]
        self._create(workload, turn.create, plan, writes, wall)
        if turn.remove:
            plan.last.append(GuardedDelete(workload.entry.key, workload.entry.mod_revision))
        elif turn.status != job.status:
            plan.last.append(self._with_status(workload, turn.status, writes))

    def _create(
        self, workload: PodOwner, indexes: Sequence[int | None], plan: WorkloadPlan, writes: PodWrites, wall: float
    ) -> str:
        """Why none can be created; empty: nothing is in the way."""
        if not indexes:
            return ""
        uid, classes = workload.uid, self.view.classes
        if not self._may_create:
            plan.again_at(wall + RETRY_SECONDS)
            return ""
        try:
            prototype = self._maker.prototype(workload, classes)
        except TemplateRefused as error:
            if uid not in self._refused:
                log.warning("%s %s/%s: no pod can be made of its template: %s", *_names(workload), error)
            self._refused[uid] = classes.version
            plan.again_at(wall + REFUSED_SECONDS)
            return str(error)
        taken = set(self.view.pods_of(uid).names)
        for index in indexes:
            name = self._maker.name(workload, index, taken)
            taken.add(name)
            plan.creations.append(self._maker.creation(workload, prototype, name, index, wall, writes.next(OP_CREATE)))
        return ""

    def _with_status(self, workload: PodOwner, status: ReplicaSetStatus | JobStatus, writes: PodWrites) -> GuardedPut:
        item = decode_entry(workload.entry)
        if isinstance(status, JobStatus):
            item.job.status.CopyFrom(status)
        else:
            item.replica_set.status.CopyFrom(status)
        return _put(workload, item, writes)

    def _as_it_is(self, workload: PodOwner, writes: PodWrites) -> GuardedPut:
        return _put(workload, decode_entry(workload.entry), writes)

    # ---------------------------------------------------------------------------------------------------------- settling

    def settle(self, plan: WorkloadPlan, done: Sequence[tuple[Write, Outcome]], now: float) -> None:
        """What became of the writes of a plan that were sent, in their order. Those that were not are decided again."""
        uid, seen_at, again = plan.uid, 0, False
        creations = {write.key for write in plan.creations}
        for write, outcome in done:
            match outcome:
                case Committed(revision) | Conflict(revision=revision):
                    # What a conflict met comes with the watch.
                    seen_at = max(seen_at, revision)
                    if write.key == plan.key:
                        # The controller has another revision by now: what was sent before has arrived, or never will.
                        self._uncertain.discard(uid)
                    if isinstance(outcome, Conflict):
                        self.view.strays.pop(write.key, None)
                case OutcomeUnknown():
                    again = True
                    if write.key in creations:
                        self._uncertain.add(uid)
                case TransactionRefused():
                    again = True
                case _:
                    pass
        if seen_at:
            self._waiting[uid] = max(seen_at, self._waiting.get(uid, 0))
        if again or not seen_at:
            self._look_at(uid, now + RETRY_SECONDS)

    def _look_at(self, uid: str, when: float) -> None:
        known = self._due_at.get(uid)
        if known is None or when < known:
            self._due_at[uid] = when
            heapq.heappush(self._due, (when, uid))


def slow_start(plans: Sequence[WorkloadPlan]) -> Iterator[list[tuple[WorkloadPlan, list[GuardedPut]]]]:
    """The creations of plans in rounds: of each plan one, then two, four, and so on, so that what fails fails for few.

    Whoever takes a round marks a plan as stopped where one was not done, and it is in no further round.
    """
    sent = {id(plan): 0 for plan in plans}
    count = 1
    while True:
        found = [(plan, plan.creations[sent[id(plan)] : sent[id(plan)] + count]) for plan in plans if not plan.stopped]
        found = [(plan, some) for plan, some in found if some]
        if not found:
            return
        yield found
        for plan, some in found:
            sent[id(plan)] += len(some)
        count *= 2


def _put(workload: PodOwner, item: Object, writes: PodWrites) -> GuardedPut:
    write = writes.next(OP_STATUS)
    entry = workload.entry
    return GuardedPut(entry.key, entry.mod_revision, encode(item, write), attempt=write.attempt)


def _names(workload: PodOwner) -> tuple[str, str, str]:
    metadata = workload.message.metadata
    return workload.kind.name, metadata.namespace, metadata.name
