"""Workers that answer late, never, twice or not at all: decisions are those of a scheduler without workers, to the bit.

The workers are the real ones, called in this process whenever the test lets them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from random import Random
from typing import Any

import pytest
import ray

from rayched.actors.configured import ProfilesText, profiles_of
from rayched.actors.shards import ANSWER_SECONDS_MAX, RayShards
from rayched.actors.worker import FilterScoreWorker
from rayched.scheduler.attempt import Attempt
from rayched.scheduler.scheduler import PodToSchedule, Scheduler
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.snapshot.transfer import OutOfStep
from rayched.snapshot.work_budget import AttemptAwaits
from rayched.v1.core_pb2 import Node, Pod
from tests.core.builders import a_node, a_pod

PROFILES = ProfilesText("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n", "default")
NODES = 30


class Handle:
    """What RayShards sees of an actor: calls wait until `run`, in their order."""

    def __init__(self) -> None:
        self.worker = FilterScoreWorker(PROFILES)
        self.calls: deque[tuple[tuple[Any, ...], Future[Any]]] = deque()
        self.dead = False
        self.evaluate = self

    def remote(self, *arguments: Any) -> Handle:
        if self.dead:
            raise ray.exceptions.RayActorError
        self.calls.append((arguments, Future()))
        return self

    def future(self) -> Future[Any]:
        return self.calls[-1][1]

    def run(self, *, twice: bool = False) -> None:
        """Answer the oldest call."""
        if not self.calls:
            return
        arguments, future = self.calls.popleft()
        try:
            answer = self.worker.evaluate(*arguments)
        except Exception as problem:
            future.set_exception(ray.exceptions.RaySystemError(repr(problem)))
            return
        if twice:
            # What Ray sends again after a lost connection may find that the update does not fit any more.
            with suppress(OutOfStep):
                self.worker.evaluate(*arguments)
        future.set_result(answer)

    def die(self) -> None:
        self.dead = True
        while self.calls:
            self.calls.popleft()[1].set_exception(ray.exceptions.RayActorError())


class World:
    """Changes of a cluster and decisions, in one order, told to a scheduler."""

    def __init__(self, make: Callable[[Snapshot], RayShards | None]) -> None:
        self.snapshot = Snapshot()
        profiles = profiles_of(PROFILES).profiles
        self.shards = make(self.snapshot)
        self.scheduler = Scheduler(self.snapshot, profiles, 9, None if self.shards is None else self.shards.of_profile)
        self.templates = TemplateTable()

    def decide(self, pod: Pod, *, may_await: bool) -> str:
        name = f"default/{pod.metadata.name}"
        asked = PodToSchedule(pod.metadata.uid, name, self.templates.intern(pod), pod)
        outcome = self.scheduler.schedule(asked, 0, 0.0, may_await=may_await)
        return outcome.node_name if isinstance(outcome, Attempt) else outcome.message

    def prefetch(self, pod: Pod) -> None:
        self.scheduler.prefetch(self.templates.intern(pod))


def a_random_node(random: Random, name: str) -> Node:
    node = a_node(name, cpu=str(random.randint(2, 8)), labels={"disk": random.choice(("ssd", "hdd"))})
    if random.random() < 0.3:
        node.spec.taints.add(key="dedicated", value="x", effect=random.choice(("NoSchedule", "PreferNoSchedule")))
    return node


def named(handles: Sequence[Any]) -> dict[str, Any]:
    return {f"worker-{number}": handle for number, handle in enumerate(handles)}


def a_random_pod(random: Random, number: int) -> Pod:
    pod = a_pod(f"p{number}", cpu=f"{random.randint(100, 900)}m", selector={"disk": "ssd"} if random.random() < 0.3 else {})
    if random.random() < 0.3:
        pod.spec.tolerations.add(key="dedicated", operator="Exists")
    # What nobody asked before: a column of its own.
    liking = pod.spec.affinity.node_affinity.preferred_during_scheduling_ignored_during_execution.add(weight=1)
    liking.preference.match_expressions.add(key=f"key-{number % 40}", operator="DoesNotExist")
    return pod


@pytest.mark.row("F6")
@pytest.mark.parametrize("seed", range(12))
def test_decisions_are_those_without_workers_whatever_workers_do(seed: int) -> None:
    random, now = Random(seed), [0.0]
    handles = [Handle() for _ in range(3)]

    def make(snapshot: Snapshot) -> RayShards:
        found = RayShards(snapshot, profiles_of(PROFILES).profiles, lambda: None, lambda: now[0], always=True)
        found.use(named(handles))
        return found

    told: list[Node] = [a_random_node(random, f"n{number}") for number in range(NODES)]
    history: list[Node | Pod] = list(told)
    chosen: list[str] = []
    world = World(make)
    assert world.shards is not None
    for node in told:
        world.snapshot.add_node(node)

    def something_happens() -> None:
        now[0] += random.choice((0.0, 0.01, ANSWER_SECONDS_MAX))
        for place, handle in enumerate(handles):
            match random.randrange(8):
                case 0 | 1 | 2 | 3:
                    handle.run()
                case 4:
                    handle.run(twice=True)
                case 5 if random.random() < 0.1:
                    handle.die()
                    handles[place] = Handle()
                    world.shards.use(named(handles))  # type: ignore[union-attr]
        if random.random() < 0.4:
            node = a_random_node(random, f"n{random.randrange(NODES + 10)}")
            history.append(node)
            world.snapshot.add_node(node)

    n_awaited = 0
    pods = [a_random_pod(random, number) for number in range(80)]
    for number, pod in enumerate(pods):
        while True:
            try:
                chosen.append(world.decide(pod, may_await=True))
                break
            except AttemptAwaits as awaits:
                n_awaited += 1
                for coming in pods[number + 1 : number + 4]:
                    world.prefetch(coming)
                while not awaits.work.is_over:
                    something_happens()
        history.append(pod)
        something_happens()

    alone = World(lambda _: None)
    expected = []
    for change in history:
        if isinstance(change, Node):
            alone.snapshot.add_node(change)
        else:
            expected.append(alone.decide(change, may_await=False))
    assert chosen == expected
    assert world.scheduler.draws() == alone.scheduler.draws()
    assert list(world.scheduler.evaluations()) == list(alone.scheduler.evaluations())
    assert n_awaited > 10 and world.shards.counts.evaluations > 10 and world.shards.counts.local_evaluations > 0
