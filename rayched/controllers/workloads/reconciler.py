"""From what is known of ReplicaSets and jobs to guarded writes, and what became of them. No I/O, no clock, no lock.

    deliveries ──▶ view ──▶ changed ─┬▶ decide ──▶ plans ──▶ settle
                    time ──▶ due ────┘                          │ not before the view shows what was written
                                     ▲──────────────────────────┘

Nothing is decided before the view has seen the own epoch: then it has seen all that was written under the epochs before. And
nothing is decided about a controller before the view has seen what was last written for it, so no pod is made for a place that
has one already. A creation whose outcome nobody knows may still arrive, and so may the deletion of one pod among others: its
condition is the controller's revision, so that is moved first (a write of the controller as it is), after which it is there or
never will be.

A controller about which nothing can be decided, and a pod about which nothing can be written, are put off, and the others go on.

Costs what has changed: a turn looks at 500 controllers, and writes for 100 of them, 1,000 writes at most; the rest waits for the
next. A controller of many pods rests after its writes for 20 µs a pod, so that what becomes of them meanwhile is written at one
go.

`now` is a monotonic clock's, and says when to look again. `wall` is the wall clock's: deadlines and times of objects count by it.

Owner: the driver, under its lock.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from random import Random
from typing import ClassVar, Final

from rayched.api.occurrences import EventOccurrence
from rayched.api.well_known_taints import DefaultTolerations
from rayched.controllers.workloads import job_groups, jobs, replica_sets, workload_events
from rayched.controllers.workloads.jobs import JobMemory
from rayched.controllers.workloads.look_list import RETRY_SECONDS, LookList, RetryTimes
from rayched.controllers.workloads.owned_pods import OwnedPod
from rayched.controllers.workloads.pod_making import PodMaker, TemplateRefused
from rayched.controllers.workloads.pod_writes import OP_CREATE, AttemptNumbers, PodWrites
from rayched.controllers.workloads.replica_sets import AT_ONCE_MAX
from rayched.controllers.workloads.workload_metrics import FAILED_DECISIONS
from rayched.controllers.workloads.workload_plan import STRAYS, WorkloadPlan
from rayched.controllers.workloads.workload_view import PodOwner, WorkloadView
from rayched.store.codec import decode_entry
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
FREE_FAILURES: Final = 3
"""Of the write of a pod whose controller has changed."""
REST_SECONDS_A_POD: Final = 20e-6
REST_SECONDS_MIN: Final = 0.01
log = logging.getLogger(__name__)


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
        self._looks = LookList()
        self._pod_retries = RetryTimes[bytes]()
        """Of pods that are written each alone, by key."""
        self._uncertain: set[str] = set()
        """Of whom a creation, or a deletion of one pod among others, may still arrive."""
        self._memories: defaultdict[str, JobMemory] = defaultdict(JobMemory)
        self._may_create = True
        self._refused: dict[str, int] = {}
        """By owner: the version of the classes with which its template was refused."""
        self._news: list[EventOccurrence] = []

    def deliver(self, delivery: Delivery) -> bool:
        """Takes in what the watch of the cluster delivered; whether there may be something to do."""
        if isinstance(delivery, ListedAll) and delivery.revision < self.view.revision:
            self._looks.expect_nothing()
        return self.view.deliver(delivery)

    def seconds_until_due(self, now: float) -> float | None:
        """None: only a change brings something to do."""
        return self._looks.seconds_until_due(now)

    def take_news(self) -> list[EventOccurrence]:
        """What people are to be told since they were told last."""
        found, self._news = self._news, []
        return found

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
        for owner in islice(self._ready(), LOOKS_A_TURN):
            if len(plans) >= CONTROLLERS_A_TURN or n_writes >= WRITES_A_TURN:
                break
            self._looks.take(owner)
            plan = self._planned(owner, writes, now, wall)
            if plan is None:
                continue
            if len(plan):
                plans.append(plan)
                n_writes += len(plan)
                self._rest(owner, now)
            if plan.recheck_at is not None:
                self._looks.look_at(owner, now + max(0.0, plan.recheck_at - wall))
        return plans

    @property
    def is_behind(self) -> bool:
        """There are controllers to look at that had no turn."""
        return next(self._ready(), None) is not None

    def _rest(self, owner: str, now: float) -> None:
        seconds = len(self.view.pods_of(owner).every) * REST_SECONDS_A_POD
        if seconds > REST_SECONDS_MIN:
            self._looks.rest(owner, now + seconds)

    def _gather(self, now: float) -> None:
        """Whom to look at: they changed, they are due, or what they waited for is seen."""
        view, looks = self.view, self._looks
        looks.add(view.changed)
        view.changed.clear()
        if view.strays or view.stray_groups():
            looks.add((STRAYS,))
        for owner in [owner for owner, version in self._refused.items() if version != view.classes.version]:
            del self._refused[owner]
            looks.add((owner,))
        looks.gather(now, view.revision)

    def _ready(self) -> Iterator[str]:
        return self._looks.ready(heed_waiting=self.RULE_THE_VIEW_REACHES_WHAT_WAS_WRITTEN)

    def _planned(self, owner: str, writes: PodWrites, now: float, wall: float) -> WorkloadPlan | None:
        """One controller that nothing can be decided about costs nobody else his pods: it is tried again later."""
        try:
            return self._plan(owner, writes, now, wall)
        except Exception:
            FAILED_DECISIONS.inc()
            log.exception("nothing can be decided about %s; tried again later", owner or "pods whose controller is gone")
            self._looks.fail(owner, now)
            return None

    def _plan(self, owner: str, writes: PodWrites, now: float, wall: float) -> WorkloadPlan | None:
        if owner == STRAYS:
            groups = [writes.of_stray_group(*group) for group in islice(self.view.stray_groups(), AT_ONCE_MAX)]
            pods = self._each(STRAYS, self.view.strays.values(), writes.of_stray, now)
            return WorkloadPlan(STRAYS, pods=[*pods, *groups], each_alone=True)
        workload = self.view.workloads.get(owner)
        if workload is None:
            self._forget(owner)
            return None
        if not workload.makes_pods:
            return None
        if owner in self._uncertain:
            return WorkloadPlan(owner, key=workload.entry.key, last=[writes.of_owner(workload, decode_entry(workload.entry))])
        plan = WorkloadPlan(owner, workload.kind.name, workload.entry.key)
        plan.pods = self._belonging(workload, writes, now)
        if plan.pods:
            # How many are missing is seen after that.
            plan.each_alone = True
        elif isinstance(workload.message, Job):
            self._plan_job(workload, workload.message, plan, writes, wall)
        else:
            self._plan_replica_set(workload, workload.message, plan, writes, wall)
        return plan

    def _belonging(self, workload: PodOwner, writes: PodWrites, now: float) -> list[Write]:
        """Who is to belong to it, and who is not any more. A job that has finished takes nobody."""
        owner = workload.identity
        if isinstance(workload.message, Job) and jobs.is_finished(workload.message):
            return []
        adopted, released = self.view.adoptable.get(owner, {}), self.view.released.get(owner, {})
        return [
            *self._each(owner, adopted.values(), partial(writes.adoption, workload), now),
            *self._each(owner, released.values(), writes.release, now),
        ]

    def _each(self, owner: str, pods: Iterable[OwnedPod], write_of: Callable[[OwnedPod], Write], now: float) -> list[Write]:
        """The writes of the first pods that are not put off. A pod that none can be made for is put off."""
        found: list[Write] = []
        for pod in pods:
            if len(found) >= AT_ONCE_MAX:
                break
            if self._pod_retries.holds(pod.key, now):
                continue
            try:
                found.append(write_of(pod))
            except Exception:
                FAILED_DECISIONS.inc()
                log.exception("nothing can be written about pod %s; it is tried again later", pod.name)
                self._looks.look_at(owner, self._pod_retries.fail(pod.key, now))
        return found

    def _forget(self, owner: str) -> None:
        self._looks.forget(owner)
        self._memories.pop(owner, None)
        self._refused.pop(owner, None)
        self._uncertain.discard(owner)

    def _plan_replica_set(
        self, workload: PodOwner, replica_set: ReplicaSet, plan: WorkloadPlan, writes: PodWrites, wall: float
    ) -> None:
        pods = self.view.pods_of(workload.identity)
        turn = replica_sets.turn_of(replica_set, pods, wall)
        plan.pods = _deletions(workload, turn.delete, plan, writes, tracked=False)
        failure = self._create(workload, [None] * turn.create, plan, writes, wall)
        judged = replica_sets.status_of(replica_set, pods, wall, failure)
        if judged.recheck_at is not None:
            plan.again_at(judged.recheck_at)
        observed = replica_set.status.observed_generation >= replica_set.metadata.generation
        # What is written now changes the counts: the status waits for that.
        if judged.status != replica_set.status and (not len(plan) or not observed):
            plan.last.append(self._with_status(workload, judged.status, writes))

    def _plan_job(self, workload: PodOwner, job: Job, plan: WorkloadPlan, writes: PodWrites, wall: float) -> None:
        owner = workload.identity
        turn = jobs.turn_of(job, self.view.pods_of(owner), self._memories[owner], wall)
        if turn.recheck_at is not None:
            plan.again_at(turn.recheck_at)
        plan.pods = [
            *_deletions(workload, turn.withdraw, plan, writes, tracked=False),
            *_deletions(workload, turn.end, plan, writes, tracked=True),
            *(writes.counted(pod) for pod in turn.release),
        ]
        if not jobs.is_finished(job):
            self._create(workload, turn.create, plan, writes, wall, job)
        if turn.remove:
            plan.last.append(GuardedDelete(workload.entry.key, workload.entry.mod_revision))
        elif turn.status != job.status:
            plan.tell(workload.entry.key, *workload_events.of_status(workload, job.status, turn.status))
            plan.last.append(self._with_status(workload, turn.status, writes))

    def _create(
        self,
        workload: PodOwner,
        indexes: Sequence[int | None],
        plan: WorkloadPlan,
        writes: PodWrites,
        wall: float,
        job: Job | None = None,
    ) -> str:
        """Why none can be created; empty: nothing is in the way. A job's group comes before its pods."""
        group = None if job is None else job_groups.wanted_group(workload, job, self._keys, self.view.groups)
        if isinstance(group, str):
            self._news.append(workload_events.not_created(workload, group))
            plan.again_at(wall + REFUSED_SECONDS)
            return group
        if not indexes and group is None:
            return ""
        owner, classes = workload.identity, self.view.classes
        if not self._may_create:
            plan.again_at(wall + RETRY_SECONDS)
            return ""
        try:
            prototype = self._maker.prototype(workload, classes)
        except TemplateRefused as error:
            if owner not in self._refused:
                log.warning("%s: no pod can be made of its template: %s", workload, error)
            self._refused[owner] = classes.version
            self._news.append(workload_events.not_created(workload, str(error)))
            plan.again_at(wall + REFUSED_SECONDS)
            return str(error)
        if group is not None:
            write = writes.next(job_groups.OP_GANG)
            plan.pods.append(job_groups.group_write(group, workload, prototype, self._maker.uid(), wall, write))
            return ""
        taken, new = self.view.pods_of(owner).names, set[str]()
        for index in indexes:
            name = self._maker.name(workload, index, lambda name: name in taken or name in new)
            new.add(name)
            creation = self._maker.creation(workload, prototype, name, index, wall, writes.next(OP_CREATE))
            plan.creations.append(creation)
            plan.tell(creation.key, workload_events.pod_created(workload, name))
        return ""

    def _with_status(self, workload: PodOwner, status: ReplicaSetStatus | JobStatus, writes: PodWrites) -> GuardedPut:
        item = decode_entry(workload.entry)
        if isinstance(status, JobStatus):
            item.job.status.CopyFrom(status)
        else:
            item.replica_set.status.CopyFrom(status)
        return writes.of_owner(workload, item)

    # ---------------------------------------------------------------------------------------------------------- settling

    def settle(self, plan: WorkloadPlan, done: Sequence[tuple[Write, Outcome]], now: float) -> None:
        """What became of the writes of a plan that were sent, in their order. Those that were not are decided again."""
        owner, looks, written, met, failed = plan.owner, self._looks, 0, False, False
        for write, outcome in done:
            match outcome:
                case Committed(revision):
                    written = max(written, revision)
                    self._news += plan.news.get(write.key, ())
                case Conflict():
                    met = True
                    self._expect(owner, write, outcome, now)
                case OutcomeUnknown():
                    failed = True
                    if any(key == plan.key for key, _ in write.also):
                        self._uncertain.add(owner)
                case TransactionRefused(error):
                    failed = failed or not plan.each_alone
                    told = (workload_events.refused(one, str(error)) for one in plan.news.get(write.key, ()))
                    self._news += filter(None, told)
                case _:
                    pass
            if write.key == plan.key and isinstance(outcome, Committed | Conflict):
                # The controller has another revision by now: what was sent before has arrived, or never will.
                self._uncertain.discard(owner)
            if plan.each_alone:
                self._settle_alone(plan, write, outcome, now)
        if written:
            looks.wait_for(owner, written)
        if failed:
            looks.fail(owner, now)
        elif written:
            looks.succeed(owner)
        if not written and not met:
            looks.look_at(owner, now + RETRY_SECONDS)

    def _expect(self, owner: str, write: Write, conflict: Conflict, now: float) -> None:
        """What a conflict met comes with the watch: at its own revision, or at one that nobody knows where it is gone."""
        wanted = (write.mod_revision, *(revision for _, revision in write.also))
        for revision, entry in zip(wanted, (conflict.current, *conflict.also), strict=True):
            if entry is not None:
                self._looks.wait_for(owner, entry.mod_revision)
            elif revision:
                self._looks.hope_for(owner, conflict.revision, now)

    def _settle_alone(self, plan: WorkloadPlan, write: Write, outcome: Outcome, now: float) -> None:
        """A pod that has changed comes with the watch. One that is as it was is decided again: what was in the way is its
        controller, or etcd."""
        if isinstance(outcome, Conflict):
            current = outcome.current
            if current is None or current.mod_revision != write.mod_revision:
                self.view.strays.pop(write.key, None)
                return
        if isinstance(outcome, Committed):
            self._pod_retries.forget(write.key)
        elif isinstance(outcome, Conflict | TransactionRefused):
            # A controller often changes just then, so that costs no time at first.
            free = FREE_FAILURES if isinstance(outcome, Conflict) else 0
            self._looks.look_at(plan.owner, self._pod_retries.fail(write.key, now, free))


def _deletions(
    workload: PodOwner, pods: Iterable[OwnedPod], plan: WorkloadPlan, writes: PodWrites, *, tracked: bool
) -> list[Write]:
    """Of pods that were chosen among others, so the workload has to be as it was seen."""
    found = []
    for pod in pods:
        found.append(writes.deletion(pod, tracked=tracked, also=workload.condition))
        plan.tell(pod.key, workload_events.pod_deleted(workload, pod.name))
    return found
