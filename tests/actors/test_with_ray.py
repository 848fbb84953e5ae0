"""The actors as processes: real Ray, real etcd.

Decisions do not depend on the number of workers nor on their health; a dead queue or scheduler is replaced, and nothing is lost
or bound twice.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
import tenacity

from leader.belief import BeliefCell
from leader.channel import open_channel
from rayched.actors import shards
from rayched.actors.configured import ProfilesText, profiles_of
from rayched.actors.queue_actor import create_queue_actor
from rayched.actors.scheduler_actor import QUESTIONS, create_scheduler_actor
from rayched.actors.scheduler_values import SchedulerActorConfig
from rayched.actors.shards import RayShards
from rayched.actors.worker import create_workers, worker_names
from rayched.api import kinds
from rayched.engine.prepared import PluginHalf
from rayched.engine.shards import ColumnRequest
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.scheduler.attempt import Attempt
from rayched.scheduler.scheduler import PodToSchedule, Scheduler
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.snapshot.transfer import export_rows
from rayched.store.keys import Keys, KeyTextError
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.services_pb2 import ExplainRequest
from rayched.v1.storage_pb2 import Stored
from tests.core.builders import a_node, a_pod, stored
from tests.patience import patient_store

pytestmark = pytest.mark.cluster

PROFILES = ProfilesText("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n", "default")
WAIT_SECONDS_MAX = 300.0
PATIENCE_SECONDS = 3.0
"""For the answer of a worker: on a busy machine one that is well takes longer than the half a second of production."""


@pytest.fixture(scope="module")
def local_ray() -> Iterator[Any]:
    """A Ray of this test run's own, with a directory short enough for its sockets."""
    import ray

    directories = []
    # Ray gives the first of its processes 30 s to start, and then gives up.
    for attempt in tenacity.Retrying(stop=tenacity.stop_after_attempt(3), retry=tenacity.retry_if_exception_type(RuntimeError)):
        with attempt:
            ray.shutdown()
            directories.append(tempfile.mkdtemp(prefix="ra-", dir="/tmp"))
            ray.init(
                address="local",
                _node_ip_address="127.0.0.1",
                num_cpus=16,
                include_dashboard=False,
                object_store_memory=80_000_000,
                log_to_driver=False,
                configure_logging=False,
                _temp_dir=directories[-1],
            )
    yield ray
    ray.shutdown()
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)


# -------------------------------------------------------------------------------------------------------------- workers


def random_node(random: Random, name: str) -> Node:
    node = a_node(
        name, cpu=str(random.randint(2, 8)), labels={"disk": random.choice(("ssd", "hdd")), "zone": random.choice("abc")}
    )
    if random.random() < 0.3:
        node.spec.taints.add(key="dedicated", value="x", effect=random.choice(("NoSchedule", "PreferNoSchedule")))
    return node


def random_pod(random: Random, name: str) -> Pod:
    pod = a_pod(name, cpu=f"{random.randint(100, 1500)}m", selector={"disk": "ssd"} if random.random() < 0.3 else {})
    if random.random() < 0.3:
        pod.spec.tolerations.add(key="dedicated", operator="Exists")
    return pod


class Run:
    """One seeded run over a snapshot of its own, with these workers; the decisions are its result."""

    def __init__(self, workers: dict[str, Any]) -> None:
        self.random = Random(5)
        self.snapshot = Snapshot()
        profiles = profiles_of(PROFILES).profiles
        self.shards = RayShards(self.snapshot, profiles, lambda: None, time.monotonic, always=True)
        self.shards.use(workers)
        self.scheduler = Scheduler(self.snapshot, profiles, 9, self.shards.of_profile)
        self.templates = TemplateTable()
        self.number = 0
        for i in range(200):
            self.snapshot.add_node(random_node(self.random, f"n{i}"))

    def decide(self, pods: int) -> list[str]:
        chosen = []
        for _ in range(pods):
            self.number += 1
            pod = random_pod(self.random, f"p{self.number}")
            # What nobody asked before: a column of its own, for which the workers are asked.
            liking = pod.spec.affinity.node_affinity.preferred_during_scheduling_ignored_during_execution.add(weight=1)
            liking.preference.match_expressions.add(key=f"key-{self.number}", operator="DoesNotExist")
            name = f"default/{pod.metadata.name}"
            outcome = self.scheduler.schedule(PodToSchedule(pod.metadata.uid, name, self.templates.intern(pod), pod), 0, 0.0)
            chosen.append(outcome.node_name if isinstance(outcome, Attempt) else outcome.message)
            if self.random.random() < 0.3:
                self.snapshot.update_node(random_node(self.random, f"n{self.random.randrange(200)}"))
            if self.random.random() < 0.1:
                self.snapshot.add_node(random_node(self.random, f"new{self.number}"))
        return chosen


@pytest.fixture
def shards_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are waited for."""
    monkeypatch.setattr(shards, "ANSWER_SECONDS_MAX", PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def four_workers(local_ray: Any) -> dict[str, Any]:
    workers = create_workers(worker_names(4), PROFILES)
    local_ray.get([worker.pid.remote() for worker in workers.values()])
    return workers


@pytest.mark.row("F6", "F4")
def test_decisions_are_the_same_with_no_worker_one_and_four(
    local_ray: Any, four_workers: dict[str, Any], shards_forced: None
) -> None:
    runs = [Run({}), Run({"worker-0": four_workers["worker-0"]}), Run(four_workers)]
    decisions = [run.decide(60) for run in runs]
    assert decisions[0] == decisions[1] == decisions[2]
    assert [run.shards.counts.evaluations > 10 for run in runs] == [False, True, True]
    assert [run.shards.counts.local_evaluations for run in runs] == [0, 0, 0]


def test_a_worker_takes_updates_in_their_order_though_nobody_asks_whether_it_lives(local_ray: Any) -> None:
    (worker,) = create_workers(["worker-0"], PROFILES).values()
    snapshot, rows = Snapshot(), slice(0, 300)
    for number in range(300):
        snapshot.add_node(random_node(Random(number), f"n{number}"))
    asked = [ColumnRequest("TaintToleration", PluginHalf.FILTER, a_pod("asked").SerializeToString())]
    calls, position = [], None
    for number in range(200):
        update = export_rows(snapshot, rows, position)
        position = update.upto
        calls.append(worker.evaluate.remote("default-scheduler", update, asked, 0, 300))
        if number == 0:
            local_ray.get(calls)
        snapshot.update_node(random_node(Random(number), f"n{number}"))
    # One that does not fit raises OutOfStep.
    assert len(local_ray.get(calls)) == 200
    local_ray.kill(worker)


def test_the_rows_of_a_dead_or_hung_worker_are_evaluated_locally_until_it_is_replaced(
    local_ray: Any, shards_forced: None, caplog: pytest.LogCaptureFixture
) -> None:
    workers = create_workers(worker_names(2), PROFILES)
    pids = local_ray.get([worker.pid.remote() for worker in workers.values()])
    run, alone = Run(workers), Run({})
    assert run.decide(10) == alone.decide(10) and run.shards.counts.local_evaluations == 0
    os.kill(pids[0], signal.SIGKILL)
    assert run.decide(10) == alone.decide(10)
    dead = run.shards.counts.local_evaluations
    assert dead > 0 and run.shards.counts.evaluations > 0
    workers |= create_workers(["worker-0"], PROFILES)
    hung = local_ray.get(workers["worker-0"].pid.remote())
    run.shards.use(workers)
    assert run.decide(10) == alone.decide(10) and run.shards.counts.local_evaluations == dead
    os.kill(hung, signal.SIGSTOP)
    try:
        assert run.decide(10) == alone.decide(10)
        # It was waited for once, and not asked again.
        assert run.shards.counts.local_evaluations > dead
        assert len([said for said in caplog.messages if said.startswith("worker-0 ") and "it is late" in said]) == 1
    finally:
        os.kill(hung, signal.SIGCONT)
    late = run.shards.counts.local_evaluations
    wait_until(lambda: (late_call := run.shards._workers[0].late) is not None and late_call.done())
    assert run.decide(10) == alone.decide(10) and run.shards.counts.local_evaluations == late
    for worker in workers.values():
        local_ray.kill(worker)


# ---------------------------------------------------------------------------------------------------------- the actors


class Cluster:
    """A queue, a scheduler and an etcd; this test plays the elector, the API and the replica that replaces what died."""

    def __init__(self, ray: Any, etcd: EtcdServer, root: str, directory: Path) -> None:
        self.ray = ray
        self.keys = Keys(root)
        self.channel = open_channel([etcd.endpoint])
        self.store = patient_store(self.channel)
        path = directory / "belief"
        self.cell = BeliefCell.create(path)
        self.config = SchedulerActorConfig((etcd.endpoint,), root, str(path), PROFILES, seed=3)
        self.workers = create_workers(worker_names(1), PROFILES)
        self.queue = create_queue_actor(PROFILES)
        self.scheduler = create_scheduler_actor(self.config, self.queue, self.workers)
        self.epoch = 0

    def close(self) -> None:
        for actor in (self.scheduler, self.queue, *self.workers.values()):
            with suppress(self.ray.exceptions.RayError):
                self.ray.kill(actor)
        self.channel.close()

    def lead(self) -> None:
        self.epoch = self.store.put(self.keys.epoch, b"{}")
        self.believe(3600.0)

    def believe(self, seconds: float) -> None:
        self.cell.publish(self.epoch, time.clock_gettime_ns(time.CLOCK_BOOTTIME) + int(seconds * 1e9))

    def put(self, *messages: Node | Pod) -> None:
        pairs = []
        for message in messages:
            kind = kinds.of_message(message)
            namespace = "default" if kind.namespaced else ""
            pairs.append((self.keys.object_key(kind, namespace, message.metadata.name), stored(message)))
        self.store.put_many(pairs)

    def bound(self) -> dict[str, Stored]:
        page = self.store.list_all(self.keys.prefix(kinds.POD))
        pods = [Stored.FromString(entry.value) for entry in page.entries]
        return {pod.object.pod.metadata.name: pod for pod in pods if pod.object.pod.spec.node_name}

    def wait_for_bound(self, count: int) -> None:
        wait_until(lambda: len(self.bound()) >= count)

    def ask(self, call: Any) -> Any:
        return self.ray.get(call, timeout=WAIT_SECONDS_MAX)


@pytest.fixture
def cluster(local_ray: Any, etcd: EtcdServer, etcd_root: str, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(local_ray, etcd, etcd_root, tmp_path)
    cluster.put(*(a_node(f"n{i}", cpu="100") for i in range(10)))
    yield cluster
    cluster.close()


@pytest.mark.row("K1.1", "F9")
def test_pods_are_bound_through_everything_and_a_standby_decides_nothing(cluster: Cluster) -> None:
    cluster.put(*(a_pod(f"p{i}") for i in range(150)))
    assert cluster.ask(cluster.scheduler.wait_until_synced.remote()) == cluster.ask(cluster.scheduler.pid.remote())
    status = cluster.ask(cluster.scheduler.status.remote())
    assert not status.leads and status.nodes == 10 and cluster.bound() == {}
    cluster.lead()
    cluster.wait_for_bound(150)
    writes = [stored.leader_write for stored in cluster.bound().values()]
    assert {write.epoch for write in writes} == {cluster.epoch} and len({write.attempt for write in writes}) == 150
    wait_until(lambda: cluster.ask(cluster.scheduler.status.remote()).assumed_pods == 0)
    # The queue's counts come with its next answer.
    wait_until(lambda: sum(cluster.ask(cluster.scheduler.status.remote()).pending_pods.values()) == 0)
    status = cluster.ask(cluster.scheduler.status.remote())
    assert status.leads and status.epoch == cluster.epoch and status.bound_pods == 150
    assert status.attempts["scheduled"] == 150
    families = {family.name: family for family in cluster.ask(cluster.queue.metrics.remote())}
    came = {tuple(sample.labels.values()): sample.value for sample in families["scheduler_queue_incoming_pods"].samples}
    assert came["active", "UnschedulablePodAdd"] == 150
    assert not any(sample.value for sample in families["rayched_queue_invariant_violations"].samples)
    last_tick = cluster.cell.last_tick()
    assert last_tick is not None
    # It lives also when nothing happens: a sign of life five times a second.
    wait_until(lambda: (cluster.cell.last_tick() or 0) > last_tick + 3e8)
    cluster.cell.withdraw()
    assert cluster.ask(cluster.scheduler.drained.remote(2.0))
    cluster.put(a_pod("too-late"))
    time.sleep(0.3)
    assert "too-late" not in cluster.bound()


@pytest.mark.row("B102")
def test_a_question_that_raises_ends_with_its_asker_and_the_term_goes_on(cluster: Cluster) -> None:
    cluster.lead()
    cluster.put(a_pod("before"))
    cluster.wait_for_bound(1)
    scheduler = cluster.scheduler
    pid = cluster.ask(scheduler.pid.remote())
    for request in (ExplainRequest(namespace="a/b", name="p"), ExplainRequest(name="p\0q"), ExplainRequest(name="")):
        with pytest.raises(KeyTextError):
            cluster.ask(scheduler.explain.options(concurrency_group=QUESTIONS).remote(request))
    with pytest.raises(TypeError):
        cluster.ask(scheduler.activate.remote(7))
    cluster.put(a_pod("after"))
    cluster.wait_for_bound(2)
    assert cluster.ask(scheduler.pid.remote()) == pid and cluster.ask(scheduler.status.remote()).epoch == cluster.epoch


def test_a_killed_queue_and_then_a_killed_scheduler_are_replaced_and_every_pod_is_bound_once(cluster: Cluster) -> None:
    cluster.lead()
    cluster.put(*(a_pod(f"a{i}") for i in range(100)), a_pod("too-large", cpu="101"))
    cluster.wait_for_bound(50)
    os.kill(cluster.ask(cluster.queue.pid.remote()), signal.SIGKILL)
    cluster.put(*(a_pod(f"b{i}") for i in range(100)))
    cluster.queue = create_queue_actor(PROFILES)
    cluster.ask(cluster.scheduler.use_queue.remote(cluster.queue, 1))
    cluster.wait_for_bound(200)
    nodes = {name: stored.object.pod.spec.node_name for name, stored in cluster.bound().items()}
    os.kill(cluster.ask(cluster.scheduler.pid.remote()), signal.SIGKILL)
    cluster.put(*(a_pod(f"c{i}") for i in range(100)))
    cluster.lead()
    cluster.queue = create_queue_actor(PROFILES)
    cluster.scheduler = create_scheduler_actor(cluster.config, cluster.queue, cluster.workers)
    cluster.wait_for_bound(300)
    bound = cluster.bound()
    assert {name: bound[name].object.pod.spec.node_name for name in nodes} == nodes
    # The pod that fits nowhere is pending again, with its old text.
    wait_until(lambda: cluster.ask(cluster.scheduler.status.remote()).pending_pods.get("unschedulable") == 1)
    # etcd has the last bindings before the scheduler has heard of them, by its watch and by the answers.
    wait_until(lambda: cluster.ask(cluster.scheduler.status.remote()).bound_pods == 300)
    wait_until(lambda: cluster.ask(cluster.scheduler.status.remote()).attempts["scheduled"] >= 100)
    assert cluster.ask(cluster.scheduler.status.remote()).attempts["scheduled"] == 100


def test_a_queue_that_hangs_is_ended_so_that_it_can_be_replaced(cluster: Cluster) -> None:
    pid = cluster.ask(cluster.queue.pid.remote())
    cluster.ask(cluster.scheduler.wait_until_synced.remote())
    cluster.lead()
    cluster.put(a_pod("first"))
    cluster.wait_for_bound(1)
    alive = cluster.queue.alive.remote()
    os.kill(pid, signal.SIGSTOP)
    cluster.put(a_pod("second"))
    assert cluster.ray.wait([alive], timeout=WAIT_SECONDS_MAX)[0]
    cluster.queue = create_queue_actor(PROFILES)
    cluster.ask(cluster.scheduler.use_queue.remote(cluster.queue, 1))
    cluster.wait_for_bound(2)
