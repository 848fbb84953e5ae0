"""Random histories of pods, agents, users and leaders, of which leaders die in the middle of a turn and lose answers.

Whatever happens:

* no job has more active pods than its parallelism, and no index two;
* each index succeeds once: no pod is made for one that has succeeded;
* each pod is counted once by its uid: in the end the status says exactly how many succeeded and failed;
* a ReplicaSet has in the end as many active pods as it wants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from rayched.api.kinds import JOB, REPLICA_SET
from rayched.store.transactions import Outcome, Write
from rayched.v1.core_pb2 import Pod
from tests.controllers.workload_world import LeaderDied, WorkloadWorld, a_job, a_replica_set, index_of, is_active
from tests.planted_bugs import WORKLOADS, planted

PARALLELISM, COMPLETIONS, REPLICAS = 4, 9, 5
STEPS = 120
SEEDS = 40


class History:
    """One world with one Indexed job, one plain one and one ReplicaSet."""

    def __init__(self, seed: int, policy: str) -> None:
        self.random = Random(seed)
        self.world = WorkloadWorld(seed)
        self.succeeded: dict[str, set[str]] = {"indexed": set(), "plain": set()}
        self.failed: dict[str, set[str]] = {"indexed": set(), "plain": set()}
        self.successes: Counter[int] = Counter()
        common = {"parallelism": PARALLELISM, "backoff_limit": 10_000, "pod_replacement_policy": policy}
        self.world.create(a_job(COMPLETIONS, name="indexed", completion_mode="Indexed", **common))
        self.world.create(a_job(COMPLETIONS, name="plain", **common))
        self.world.create(a_replica_set(REPLICAS))
        self.world.on_write = self._judge

    # ---- what always holds

    def _judge(self, writes: Sequence[Write], outcomes: Sequence[Outcome]) -> None:
        pods = self.world.pods()
        for name in ("indexed", "plain"):
            active = [pod for pod in pods if is_active(pod) and owner_of(pod) == name]
            assert len(active) <= PARALLELISM, f"{len(active)} pods of {name} are active"
            if name == "indexed":
                indexes = Counter(map(index_of, active))
                assert max(indexes.values(), default=0) <= 1, f"one index twice: {indexes}"
                again = {index for index in indexes if self.successes[index]}
                assert not again, f"made again though it has succeeded: {again}"

    # ---- what happens

    def step(self) -> None:
        world, random = self.world, self.random
        pods = world.pods()
        match random.randrange(9):
            case 0 | 1 | 2:
                self._lead()
            case 3:
                world.new_leader()
            case 4 if pods:
                pod = random.choice(pods)
                if is_active(pod) and pod.status.phase == "Pending":
                    world.run(pod, f"node-{random.randrange(3)}")
            case 5 | 6 if pods:
                pod = random.choice(pods)
                if is_active(pod):
                    self._end(pod, "Succeeded" if random.random() < 0.6 else "Failed")
            case 7 if pods:
                pod = random.choice(pods)
                if is_active(pod):
                    self._failed(pod)
                world.ask_to_end(pod, random.choice([None, 0]))
            case _ if pods:
                for pod in pods:
                    if pod.metadata.HasField("deletion_timestamp") and random.random() < 0.5:
                        world.stop(pod)
        world.now += random.choice([0.0, 0.1, 1.0, 700.0])

    def _lead(self) -> None:
        world = self.world
        # A watch may be late, but what it delivers is whole.
        world.see(self.random.choice([None, None, 0, 1, 2, 5]))
        try:
            world.turn()
        except LeaderDied:
            world.new_leader()

    def _end(self, pod: Pod, phase: str) -> None:
        owner = owner_of(pod)
        if phase == "Failed":
            self._failed(pod)
        elif owner in self.succeeded:
            self.succeeded[owner].add(pod.metadata.uid)
            if owner == "indexed":
                self.successes[index_of(pod)] += 1
        self.world.end(pod, phase)

    def _failed(self, pod: Pod) -> None:
        if owner_of(pod) in self.failed:
            self.failed[owner_of(pod)].add(pod.metadata.uid)

    # ---- the end

    def finish(self) -> None:
        """Nothing goes wrong any more, and every pod does what it is there for."""
        world = self.world
        world.lose = lambda: None
        for _ in range(4 * COMPLETIONS):
            world.settle()
            for pod in world.pods():
                if pod.metadata.HasField("deletion_timestamp"):
                    world.stop(pod)
                elif is_active(pod) and owner_of(pod) in self.succeeded:
                    self._end(pod, "Succeeded")
            world.now += 700
        world.settle()
        for name in ("indexed", "plain"):
            status = world.job(name).status
            assert status.conditions[-1].type == "Complete", status
            assert status.succeeded == len(self.succeeded[name]) == COMPLETIONS, status
            assert status.failed == len(self.failed[name]), (status, self.failed[name])
        assert world.job("indexed").status.completed_indexes == f"0-{COMPLETIONS - 1}"
        assert all(times == 1 for times in self.successes.values())
        active = [pod for pod in world.active() if owner_of(pod) == "web"]
        assert len(active) == world.replica_set().status.replicas == REPLICAS
        for kind, name in ((JOB, "indexed"), (JOB, "plain"), (REPLICA_SET, "web")):
            world.delete(kind, name)
        for _ in range(3):
            world.settle()
            for pod in world.pods():
                world.stop(pod)
        assert not world.pods()


def owner_of(pod: Pod) -> str:
    return pod.metadata.owner_references[0].name if pod.metadata.owner_references else ""


def play(seed: int) -> None:
    history = History(seed, "TerminatingOrFailed" if seed % 2 else "Failed")
    random = Random(-seed)

    def lose() -> str | None:
        return random.choice(["answer", "late", "death"]) if random.random() < 0.15 else None

    history.world.lose = lose
    for _ in range(STEPS):
        history.step()
    history.finish()


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.row("W11")
def test_whatever_happens_each_pod_counts_once(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("bug", WORKLOADS)
@pytest.mark.row("W11")
def test_a_rule_that_is_broken_is_noticed(bug: str) -> None:
    with planted(bug), pytest.raises(AssertionError):
        for seed in range(SEEDS):
            play(seed)
