"""What is kept of a job's pods from look to look against a recount of all of them, and what a look costs: what has changed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

from rayched.controllers.workloads import jobs, replica_sets
from rayched.controllers.workloads.jobs import JobMemory, JobTurn
from rayched.controllers.workloads.owned_pods import OwnedPod, PodSet
from rayched.store.entries import Entry
from rayched.v1.workloads_pb2 import Job, JobStatus, ReplicaSet
from tests.controllers.job_oracle import BackoffOracle, Recount, numbers_in, recount

NOW = 1_700_000_000.0
COMPLETIONS, PARALLELISM = 12, 6
KEYS = 14
WORKLOADS = str(Path(jobs.__file__).parent)


def a_pod(number: int, index: int | None = None, **changes: Any) -> OwnedPod:
    found = OwnedPod(
        entry=Entry(b"pod-%d" % number, b"", 1, 1),
        name=f"pod-{number}",
        uid=f"uid-{number}",
        labels={},
        owner=None,
        node_name="",
        phase="Pending",
        ready_since=None,
        created_at=NOW,
        ended_at=0.0,
        deleting=False,
        tracked=True,
        index=index,
        restarts=0,
        cost=0,
    )
    return replace(found, **changes)


def a_job(completions: int, parallelism: int, *, indexed: bool, policy: str = "TerminatingOrFailed") -> Job:
    job = Job(metadata={"name": "count", "namespace": "default"})
    job.spec.completions, job.spec.parallelism, job.spec.backoff_limit = completions, parallelism, 1_000_000
    job.spec.completion_mode = "Indexed" if indexed else "NonIndexed"
    job.spec.pod_replacement_policy = policy
    job.spec.template.spec.restart_policy = "OnFailure"
    return job


# ---- against the oracle


class Life:
    """One job whose pods, status and spec change at random, also in ways that no controller brings about."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.job = a_job(
            COMPLETIONS, PARALLELISM, indexed=seed % 2 == 0, policy="Failed" if seed % 3 == 0 else "TerminatingOrFailed"
        )
        self.pods, self.memory, self.backoff = PodSet(), JobMemory(), BackoffOracle()
        self.now = NOW

    def step(self) -> None:
        random, pods = self.random, self.pods
        self.now += random.choice([0.0, 1.0, 400.0])
        number = random.randrange(KEYS)
        old = pods.every.get(b"pod-%d" % number)
        match random.randrange(12):
            case 0 | 1 | 2 | 3:
                index = random.choice([None, *range(COMPLETIONS + 2)])
                pods.put(a_pod(number, index, created_at=self.now - random.randrange(3)))
            case 4 | 5 | 6 if old is not None:
                pods.put(replace(old, **self._change()))
            case 7:
                pods.remove(b"pod-%d" % number)
                if not pods.every:
                    self.pods = PodSet()
            case 8:
                self._edit_status()
            case 9 if random.random() < 0.3:
                self.job.spec.completions = random.randrange(1, COMPLETIONS + 3)
                self.job.spec.parallelism = random.randrange(PARALLELISM + 1)
            case 10 if random.random() < 0.3:
                self.job.spec.pod_replacement_policy = random.choice(["Failed", "TerminatingOrFailed"])
            case 11 if random.random() < 0.2:
                # A new leader begins with nothing but what is stored.
                self.memory, self.backoff = JobMemory(), BackoffOracle()
            case _:
                pass
        self.look()

    def _change(self) -> dict[str, Any]:
        changes: list[dict[str, Any]] = [
            {"phase": "Succeeded", "ended_at": self.now},
            {"phase": "Failed", "ended_at": self.now - 5},
            {"deleting": True},
            {"tracked": False},
            {"tracked": True},
            {"node_name": "node-1", "phase": "Running", "ready_since": self.now},
            {"restarts": self.random.randrange(4)},
            {"uid": f"uid-{self.random.randrange(KEYS)}"},
        ]
        return self.random.choice(changes)

    def _edit_status(self) -> None:
        """Somebody else's hand."""
        status = self.job.status
        uid, which = f"uid-{self.random.randrange(KEYS)}", self.random.choice(["succeeded", "failed"])
        named = {*status.uncounted_terminated_pods.succeeded, *status.uncounted_terminated_pods.failed}
        if uid not in named:
            getattr(status.uncounted_terminated_pods, which).append(uid)
        if self.job.spec.completion_mode == "Indexed":
            status.completed_indexes = self.random.choice(["", "0", "2-4", "1,3,5", f"0-{COMPLETIONS}"])

    def look(self) -> None:
        every = list(self.pods.every.values())
        self.backoff.observe(self.job, every, self.now)
        wanted, turn = recount(self.job, every), jobs.turn_of(self.job, self.pods, self.memory, self.now)
        self._judge(wanted, turn)
        if self.random.random() < 0.6:
            self.job.status.CopyFrom(turn.status)
            # Whether it has ended is not what this is about.
            for name in ("conditions", "completion_time", "start_time"):
                self.job.status.ClearField(name)

    def _judge(self, wanted: Recount, turn: JobTurn) -> None:
        status, pods = turn.status, self.pods
        assert (status.active, status.ready, status.terminating) == (wanted.active, wanted.ready, wanted.terminating)
        assert pods.n_restarts == wanted.restarts
        assert set(pods.tracked) == {pod.key for pod in pods.every.values() if pod.tracked}
        assert_some_of([pod.name for pod in turn.release], wanted.release, replica_sets.AT_ONCE_MAX)
        assert (status.succeeded, status.failed) == (wanted.counted["Succeeded"], wanted.counted["Failed"])
        before = self.job.status.uncounted_terminated_pods
        room = max(0, jobs.UNCOUNTED_MAX - len(before.succeeded) - len(before.failed))
        for outcome, uids in (
            ("Succeeded", [*status.uncounted_terminated_pods.succeeded]),
            ("Failed", [*status.uncounted_terminated_pods.failed]),
        ):
            kept = wanted.kept[outcome]
            assert uids[: len(kept)] == kept
            room -= assert_some_of(uids[len(kept) :], wanted.unnamed[outcome], room)
        backoff = self.memory.backoff
        assert (backoff.failures, backoff.last_failure_at) == (self.backoff.failures, self.backoff.last_failure_at)
        if self.job.spec.completion_mode == "Indexed":
            assert numbers_in(status.completed_indexes) == wanted.done
        if not status.conditions:
            self._judge_pods(wanted, turn)

    def _judge_pods(self, wanted: Recount, turn: JobTurn) -> None:
        spec = self.job.spec
        names = [pod.name for pod in turn.withdraw]
        n_right = wanted.active - len(wanted.out_of_place)
        to_run = max(0, min(spec.completions - wanted.total["Succeeded"], spec.parallelism))
        too_many = max(0, n_right - to_run)
        assert names[: len(wanted.out_of_place)] == wanted.out_of_place[: replica_sets.AT_ONCE_MAX]
        assert len(names) == min(len(wanted.out_of_place) + too_many, replica_sets.AT_ONCE_MAX)
        missing = to_run - n_right - (wanted.terminating if spec.pod_replacement_policy == "Failed" else 0)
        waits = self.backoff.failures and self.memory.backoff.ends_at() > self.now
        if missing <= 0 or names or waits:
            assert not turn.create
        elif spec.completion_mode == "Indexed":
            assert turn.create == wanted.free[: min(missing, replica_sets.AT_ONCE_MAX)]
        else:
            assert turn.create == [None] * min(missing, replica_sets.AT_ONCE_MAX)


def assert_some_of(found: list[str], all_of_them: list[str], most: int) -> int:
    """As many as may be, each once; how many."""
    assert len(found) == min(len(all_of_them), max(0, most)) and Counter(found) <= Counter(all_of_them)
    return len(found)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_kept_is_what_a_recount_gives(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 4 == 1:
        # So few that not everything has its turn at once.
        monkeypatch.setattr(jobs, "UNCOUNTED_MAX", 3)
        for module in (jobs, replica_sets):
            monkeypatch.setattr(module, "AT_ONCE_MAX", 2)
    life = Life(seed)
    for _ in range(200):
        life.step()


# ---- the cost


@contextmanager
def counted() -> Iterator[Callable[[], int]]:
    """Counts the operations of Python that the controllers' own code carries out, each turn of each loop among them."""
    count = 0

    def local(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return local

    def begin(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(WORKLOADS):
            return None
        frame.f_trace_opcodes = True
        return local

    before = sys.gettrace()
    sys.settrace(begin)
    try:
        yield lambda: count
    finally:
        sys.settrace(before)


class LargeJob:
    """A job in the middle of its life: `succeeded` of its pods have, and so many others run."""

    def __init__(self, succeeded: int, running: int, *, indexed: bool) -> None:
        self.job = a_job(10 * (succeeded + running), running, indexed=indexed)
        self.pods, self.memory = PodSet(), JobMemory()
        for number in range(succeeded + running):
            has_ended = number < succeeded
            self.pods.put(
                a_pod(number, number, phase="Succeeded" if has_ended else "Running", tracked=not has_ended, node_name="node-1")
            )
        self.job.status.succeeded = succeeded
        if indexed:
            self.job.status.completed_indexes = f"0-{succeeded - 1}"
        self.next = succeeded
        self.look()

    def look(self) -> JobTurn:
        turn = jobs.turn_of(self.job, self.pods, self.memory, NOW)
        self.job.status.CopyFrom(turn.status)
        return turn

    def one_ends(self) -> JobStatus:
        """One pod succeeds, is counted and replaced: all that the controller does about it."""
        pod = self.pods.every[b"pod-%d" % self.next]
        self.pods.put(replace(pod, phase="Succeeded", ended_at=NOW))
        turn = self.look()
        assert len(turn.create) == 1
        new = len(self.pods.every)
        self.pods.put(a_pod(new, turn.create[0] if turn.create[0] is not None else new, node_name="node-1", phase="Running"))
        (released,) = self.look().release
        self.pods.put(replace(released, tracked=False))
        turn = self.look()
        assert not (turn.release or turn.create or turn.withdraw or turn.end)
        self.next += 1
        return turn.status


@pytest.mark.parametrize("indexed", [False, True])
def test_a_look_costs_what_has_changed_and_not_what_is_there(indexed: bool) -> None:
    costs = []
    for succeeded, running in ((80, 20), (800, 200), (8_000, 2_000)):
        large = LargeJob(succeeded, running, indexed=indexed)
        large.one_ends()
        with counted() as so_far:
            for _ in range(10):
                status = large.one_ends()
        assert status.succeeded == succeeded + 11 and status.active == running
        costs.append(so_far())
    # Of a hundred times as many pods each look-up takes some more steps, and nothing else.
    assert costs[2] <= 1.2 * costs[0], costs


@pytest.mark.parametrize("indexed", [False, True])
def test_a_look_at_which_nothing_has_changed_costs_the_same_whatever_is_there(indexed: bool) -> None:
    costs = []
    for succeeded, running in ((80, 20), (8_000, 2_000)):
        large = LargeJob(succeeded, running, indexed=indexed)
        large.look()
        with counted() as so_far:
            large.look()
        costs.append(so_far())
    assert costs[1] <= 1.1 * costs[0], costs


@pytest.mark.parametrize("indexed", [False, True])
def test_two_thousand_that_end_at_once_cost_each_its_own(indexed: bool) -> None:
    """Not each of the looks that it takes until all are counted looks at those that are left."""
    costs = []
    for running in (500, 2_000):
        large = LargeJob(1_000, running, indexed=indexed)
        large.job.spec.completions = 1_000 + running
        large.look()
        for number in range(1_000, 1_000 + running):
            large.pods.put(replace(large.pods.every[b"pod-%d" % number], phase="Succeeded"))
        looks = 0
        with counted() as so_far:
            while large.pods.tracked or looks < 2:
                for pod in large.look().release:
                    large.pods.put(replace(pod, tracked=False))
                looks += 1
        large.look()
        assert large.job.status.succeeded == 1_000 + running
        assert looks <= 3 + running // 250
        costs.append(so_far() / running)
    assert costs[1] <= 1.3 * costs[0], costs


def test_availability_costs_what_ripens() -> None:
    costs = []
    for count in (100, 10_000):
        pods, replica_set = PodSet(), ReplicaSet()
        replica_set.spec.replicas, replica_set.spec.min_ready_seconds = count, 30
        for number in range(count):
            pods.put(a_pod(number, tracked=False, phase="Running", ready_since=NOW + number / count))
        replica_sets.status_of(replica_set, pods, NOW)
        with counted() as so_far:
            judged = replica_sets.status_of(replica_set, pods, NOW + 1)
        assert judged.status.available_replicas == 0 and judged.recheck_at == NOW + 30
        costs.append(so_far())
        assert replica_sets.status_of(replica_set, pods, NOW + 31).status.available_replicas == count
    assert costs[1] == costs[0], costs
