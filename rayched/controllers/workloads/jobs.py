"""What a job wants done, from its status, its pods and the time; and its next status.

A pod is counted once, whoever leads and whenever a leader dies, because each step is a write of its own on what the one before
left:

1. the pod ends; its finalizer keeps its object there, whoever deletes it;
2. the status names its uid (of an Indexed job that has succeeded: its index);
3. the finalizer is taken away;
4. the status counts the uid and no longer names it.

A step that is done twice writes the same, and one that is not done is done by the next leader, who sees in the store how far it
got.

| pod | counts as |
|---|---|
| Succeeded | succeeded; of an Indexed job each index once |
| Failed | failed |
| asked to end, and not ended | failed at once, or with podReplacementPolicy Failed not before it has ended |
| deleted by the job itself: suspended, beyond parallelism, one index twice | nothing |

A look costs what has changed, not what is there (job_tally.py): only who has more pods than are wanted, since its parallelism was
lowered, has them all ranked.

Pure; times are Unix seconds. Source: the Job controller of Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from rayched.api.validation.jobs import INDEXED
from rayched.controllers.workloads import job_conditions as conditions
from rayched.controllers.workloads.index_set import LastIndexSet
from rayched.controllers.workloads.job_conditions import JobVerdict
from rayched.controllers.workloads.job_tally import JobTally, TallyRules
from rayched.controllers.workloads.owned_pods import OwnedPod, PodSet
from rayched.controllers.workloads.replica_sets import AT_ONCE_MAX, first_to_go
from rayched.v1.workloads_pb2 import Job, JobStatus

BACKOFF_SECONDS: Final = 10.0
BACKOFF_SECONDS_MAX: Final = 600.0
UNCOUNTED_MAX: Final = 500
"""uids that a status names at once."""
ONLY_FAILED: Final = "Failed"

RULE_A_UID_IS_COUNTED_ONCE: bool = True
"""Broken by tests alone."""


@dataclass(slots=True, eq=False)
class FailureBackoff:
    """How often pods of one job have failed in a row, as this leader has seen it."""

    failures: int = 0
    last_failure_at: float = 0.0

    def observe(self, news: Iterable[OwnedPod], now: float) -> None:
        """Pods of the job that have ended since it was told of others."""
        for pod in sorted(news, key=lambda pod: (pod.ended_at, pod.uid)):
            if pod.phase == "Succeeded":
                self.failures = 0
            else:
                self.failures += 1
                # Its node's clock may be ahead of the leader's.
                self.last_failure_at = min(pod.ended_at or now, now)

    def ends_at(self) -> float:
        """When pods may be created again."""
        if not self.failures:
            return 0.0
        return self.last_failure_at + min(BACKOFF_SECONDS * 2.0 ** min(self.failures - 1, 32), BACKOFF_SECONDS_MAX)


@dataclass(slots=True, eq=False)
class JobMemory:
    """What a leader keeps of one job between two looks."""

    backoff: FailureBackoff = field(default_factory=FailureBackoff)
    completed: LastIndexSet = field(default_factory=LastIndexSet)
    tally: JobTally = field(default_factory=JobTally)


@dataclass(slots=True, eq=False)
class JobTurn:
    """What is to be done now. The status is to be written where it differs from the stored one, after all else."""

    status: JobStatus
    create: list[int | None] = field(default_factory=list)
    """The index of each new pod; None: it has none."""
    withdraw: list[OwnedPod] = field(default_factory=list)
    """Deleted without being counted."""
    end: list[OwnedPod] = field(default_factory=list)
    """Deleted, to be counted as failed."""
    release: list[OwnedPod] = field(default_factory=list)
    """Their finalizer goes."""
    remove: bool = False
    """The job's time after its end is over."""
    recheck_at: float | None = None


def is_finished(job: Job) -> bool:
    return conditions.true_condition(job.status, *conditions.TERMINAL.values()) is not None


def turn_of(job: Job, pods: PodSet, memory: JobMemory, now: float) -> JobTurn:
    turn = JobTurn(JobStatus())
    turn.status.CopyFrom(job.status)
    finished = conditions.true_condition(job.status, *conditions.TERMINAL.values())
    if finished is not None:
        _after_end(job, pods, finished.last_transition_time.seconds, turn, now)
        return turn
    _UnfinishedJob(job, pods, turn, memory, now).decide()
    return turn


def _after_end(job: Job, pods: PodSet, ended_at: float, turn: JobTurn, now: float) -> None:
    turn.release = list(islice(pods.tracked.values(), AT_ONCE_MAX))
    if job.spec.HasField("ttl_seconds_after_finished"):
        goes_at = ended_at + job.spec.ttl_seconds_after_finished
        turn.remove = now >= goes_at
        turn.recheck_at = None if turn.remove else goes_at


class _UnfinishedJob:
    """One look at a job."""

    def __init__(self, job: Job, pods: PodSet, turn: JobTurn, memory: JobMemory, now: float) -> None:
        self._job, self._pods, self._turn, self._now = job, pods, turn, now
        spec = job.spec
        self._indexed = spec.completion_mode == INDEXED
        self._completions = spec.completions if spec.HasField("completions") else None
        self._only_failed = spec.pod_replacement_policy == ONLY_FAILED
        self._memory, self._tally = memory, memory.tally
        self._succeeded = self._failed = 0

    def decide(self) -> None:
        """Counts first: what is to be done follows from the counts."""
        below, stored = self._completions or 0, self._job.status
        recorded = self._memory.completed.of(stored.completed_indexes if self._indexed else "", below)
        named = frozenset((*stored.uncounted_terminated_pods.succeeded, *stored.uncounted_terminated_pods.failed))
        self._tally.follow(self._pods, TallyRules(self._indexed, below, self._only_failed), named, recorded)
        self._memory.backoff.observe(self._tally.news(), self._now)
        self._count()
        status, spec, active = self._turn.status, self._job.spec, self._pods.active
        status.active, status.ready = len(active), self._pods.n_ready
        status.terminating = len(self._pods.terminating)
        verdict = conditions.verdict_in(status) or self._failure()
        if verdict is None:
            if not status.HasField("start_time") and not spec.suspend:
                status.start_time.seconds = int(self._now)
            self._manage()
            if self._is_complete():
                verdict = conditions.COMPLETIONS_REACHED
            elif conditions.set_suspended(status, spec.suspend, self._now) and not spec.suspend:
                # A deadline counts from when the job went on.
                status.start_time.seconds = int(self._now)
        elif verdict.type == conditions.FAILURE_TARGET:
            self._turn.end = [*islice(active.values(), AT_ONCE_MAX)]
        else:
            # Who was created beside the last one that was needed.
            self._turn.withdraw = [*islice(active.values(), AT_ONCE_MAX)]
        if verdict is not None:
            self._conclude(verdict)

    # ---- counting

    def _count(self) -> None:
        """Steps 2, 3 and 4 of the module, of each pod that is there and each uid that the status names."""
        status, before, tally = self._turn.status, self._job.status.uncounted_terminated_pods, self._tally
        self._turn.release = list(islice(tally.release.values(), AT_ONCE_MAX))
        uncounted = status.uncounted_terminated_pods
        uncounted.SetInParent()
        n_named = len(before.succeeded) + len(before.failed)
        for outcome, field_name in (("Succeeded", "succeeded"), ("Failed", "failed")):
            # A named pod that still has the finalizer is not counted, whatever has become of it or of the job's policy since.
            named = set(getattr(before, field_name))
            kept = [uid for uid in getattr(before, field_name) if uid in tally.held]
            counted = named.difference(kept) if RULE_A_UID_IS_COUNTED_ONCE else named
            setattr(status, field_name, getattr(self._job.status, field_name) + len(counted))
            # All of them count at once in what is decided; the status names as many as it has room for.
            new = tally.unnamed[outcome]
            named_now = [pod.uid for pod in islice(new.values(), max(0, UNCOUNTED_MAX - n_named))]
            n_named += len(named_now)
            del getattr(uncounted, field_name)[:]
            getattr(uncounted, field_name).extend([*kept, *named_now])
            total = getattr(status, field_name) + len(kept) + len(new)
            if outcome == "Succeeded":
                self._succeeded = total
            else:
                self._failed = total
        if self._indexed:
            done = tally.done()
            self._succeeded = status.succeeded = len(done)
            status.completed_indexes = self._memory.completed.keep(done, self._completions or 0)

    # ---- the verdict

    def _failure(self) -> JobVerdict | None:
        spec, status = self._job.spec, self._job.status
        if self._failed > spec.backoff_limit or self._restarted_too_often():
            return conditions.BACKOFF_LIMIT_EXCEEDED
        # Of one that goes on the time begins anew, once its status says so.
        stands = spec.suspend or conditions.true_condition(status, conditions.SUSPENDED) is not None
        if spec.HasField("active_deadline_seconds") and status.HasField("start_time") and not stands:
            ends_at = status.start_time.seconds + spec.active_deadline_seconds
            if self._now >= ends_at:
                return conditions.DEADLINE_EXCEEDED
            self._again_at(ends_at)
        return None

    def _restarted_too_often(self) -> bool:
        spec = self._job.spec
        if spec.template.spec.restart_policy != "OnFailure":
            return False
        restarts = self._pods.n_restarts
        return restarts > 0 if not spec.backoff_limit else restarts >= spec.backoff_limit

    def _is_complete(self) -> bool:
        if self._pods.active:
            return False
        return self._succeeded > 0 if self._completions is None else self._succeeded >= self._completions

    def _conclude(self, verdict: JobVerdict) -> None:
        """First that it will end, then, once every pod is gone or counted, that it has."""
        status, uncounted = self._turn.status, self._turn.status.uncounted_terminated_pods
        conditions.become(status, verdict, self._now)
        left = self._pods.active or self._pods.terminating or self._pods.uncounted or uncounted.succeeded or uncounted.failed
        if left or conditions.verdict_in(self._job.status) is None:
            return
        terminal = conditions.TERMINAL[verdict.type]
        conditions.become(status, verdict._replace(type=terminal), self._now)
        if terminal == conditions.COMPLETE:
            status.completion_time.seconds = int(self._now)

    # ---- pods

    def _manage(self) -> None:
        active = self._pods.active
        if self._job.spec.suspend:
            self._turn.withdraw = list(islice(active.values(), AT_ONCE_MAX))
            return
        superfluous = self._tally.out_of_place()
        n_active = len(active) - len(superfluous)
        wanted = self._wanted(n_active)
        if n_active > wanted:
            rest = [pod for pod in active.values() if pod.key not in superfluous]
            superfluous.update((pod.key, pod) for pod in first_to_go(rest, n_active - wanted, self._now))
        self._turn.withdraw = list(superfluous.values())[:AT_ONCE_MAX]
        missing = wanted - n_active - (len(self._pods.terminating) if self._only_failed else 0)
        if missing <= 0 or superfluous:
            return
        failed_until = self._memory.backoff.ends_at()
        if failed_until > self._now:
            self._again_at(failed_until)
            return
        count = min(missing, AT_ONCE_MAX)
        self._turn.create = [*self._tally.free_indexes(count)] if self._indexed else [None] * count

    def _wanted(self, n_active: int) -> int:
        """How many pods are to run."""
        parallelism = self._job.spec.parallelism
        if self._completions is None:
            # Once one has succeeded the others end by themselves, and none follows them.
            return n_active if self._succeeded else parallelism
        return max(0, min(self._completions - self._succeeded, parallelism))

    def _again_at(self, when: float) -> None:
        now = self._turn.recheck_at
        self._turn.recheck_at = when if now is None else min(now, when)
