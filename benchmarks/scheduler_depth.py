"""Depth `scheduler`: QueueActor, SchedulerActor and workers as Ray actors, binding into memory.

The SchedulerActor is the one of production but for its store, which is `memory_store`: its loop, its core, its exchange with the
queue. Pods arrive as encoded bytes through the watch; each binding is a guarded transaction; each bound pod comes back as encoded
bytes through the watch, updates the cache and wakes the queue. No API, no etcd and no events, as kube-scheduler was measured.

The clock runs from the first measured pod handed to the watch until the last one was seen bound in the cache. Then single pods
are submitted to the idle cluster, one at a time.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import shapes
from benchmarks.measured import Measured, percentile
from benchmarks.memory_store import MemoryStore, MemoryWatcher
from benchmarks.processes import cpu_seconds, peak_memory_bytes
from benchmarks.validity import Judge
from benchmarks.workloads import Churn, Workload
from leader.belief import BeliefCell
from rayched.actors.configured import ProfilesText
from rayched.actors.placement import on_this_host
from rayched.actors.queue_actor import create_queue_actor
from rayched.actors.scheduler_actor import SchedulerActor, SchedulerActorConfig, Transactions, Watch
from rayched.actors.worker import create_workers
from rayched.api import kinds
from rayched.api.kinds import AnyObject
from rayched.replica.local_ray import LocalRay
from rayched.store.codec import encode
from rayched.store.entries import Change, Entry
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Namespace
from rayched.v1.storage_pb2 import Stored

ROOT: Final = "/bench"
PUT_BATCH: Final = 100
"""Pods that arrive at one revision: a batch of submissions."""
SECONDS_MAX: Final = 300.0
SINGLE_PODS: Final = 100
EPOCH: Final = 2
"""The revision of the epoch's key: the first thing that the store holds."""
_EPOCH_SECONDS: Final = 1e6
_CONFIGURATION: Final = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: {percentage}
"""


class NotBound(Exception):
    """Pods stayed without a node: one line."""


@dataclass(frozen=True)
class Result:
    """What the SchedulerActor's process found out about itself."""

    measured: Measured
    n_wrong: int
    wrong: tuple[str, ...]
    problem: str = ""


# ----------------------------------------------------------------------------------------------- in the actor's process


class MeasuredSchedulerActor(SchedulerActor):
    """A SchedulerActor over a store in memory, with the load in its own process."""

    def __init__(self, config: SchedulerActorConfig, queue_actor: Any, workers: Sequence[Any], workload: Workload) -> None:
        self._load = Load(workload, Keys(ROOT))
        super().__init__(config, queue_actor, workers)

    def _connect(self, config: SchedulerActorConfig, keys: Keys) -> tuple[Transactions, Watch]:  # noqa: ARG002
        load = self._load

        def delivered(changes: Sequence[Change]) -> None:
            # Follows the delivery through the inbox: when it is carried out, the cache has absorbed it.
            self._inbox.put(lambda: load.seen(changes))

        return load.memory, MemoryWatcher(load.memory, self._watched, delivered)

    def prepare(self) -> None:
        """The pods that are there before."""
        self._load.prepare()

    def measure(self, templates: int, others: dict[str, int]) -> Result:
        """`others` are processes whose CPU and memory count as well, by name."""
        return self._load.measure(templates, others)


class Load:
    """The objects of a workload, and when its pods were seen bound. Two threads: the actor's loop and whoever measures."""

    def __init__(self, workload: Workload, keys: Keys) -> None:
        self._workload = workload
        self._keys = keys
        self.memory = MemoryStore()
        self.memory.put_all([(keys.epoch, b"")])
        nodes = list(workload.make_nodes(workload.nodes))
        self.memory.put_all([self._pair(item) for item in (*workload.objects, *nodes)])
        self._bound: dict[bytes, float] = {}
        self._wanted = 0
        self._there = threading.Event()

    def seen(self, changes: Sequence[Change]) -> None:
        """The cache has absorbed these."""
        now = time.perf_counter()
        for change in changes:
            if isinstance(change, Entry) and change.mod_revision != change.create_revision and b"/pods/" in change.key:
                self._bound.setdefault(change.key, now)
        if len(self._bound) >= self._wanted:
            self._there.set()

    def prepare(self) -> None:
        pods = [self._pair(pod) for pod in self._workload.pods_before()]
        self._submit(pods, 0 if self._workload.gated else len(pods))
        if self._workload.gated:
            # Their conditions are written; after that nothing happens to them.
            self._wait_until_quiet()

    def measure(self, templates: int, others: dict[str, int]) -> Result:
        workload = self._workload
        pods = [self._pair(pod) for pod in workload.pods_measured(templates)]
        churning = _Churning(workload.churn, self) if workload.churn is not None else None
        before = {name: cpu_seconds(pid) for name, pid in others.items()}
        if churning is not None:
            churning.start()
        cpu_began, began = time.process_time(), time.perf_counter()
        problem = self._submit(pods, len(pods))
        arrived = self._arrived
        ended = max((self._bound.get(key, 0.0) for key, _ in pods), default=0.0)
        cpu = {"scheduler": time.process_time() - cpu_began}
        cpu |= {name: cpu_seconds(pid) - before[name] for name, pid in others.items()}
        if churning is not None:
            churning.stop()
        latencies = sorted(1000 * (self._bound[key] - arrived[key]) for key, _ in pods if key in self._bound)
        peak = {"scheduler": peak_memory_bytes()} | {name: peak_memory_bytes(pid) for name, pid in others.items()}
        single = [] if problem else sorted(self._single(number) for number in range(SINGLE_PODS))
        judge = self._judge()
        measured = Measured(
            seconds=ended - began,
            cpu_seconds=cpu,
            latency_ms_p50=percentile(latencies, 50),
            latency_ms_p99=percentile(latencies, 99),
            peak_bytes=peak,
            unplaced=len(pods) - len(latencies),
            single_ms=single,
        )
        return Result(measured, judge.n_wrong, tuple(judge.wrong), problem)

    def put(self, item: AnyObject) -> bytes:
        key, value = self._pair(item)
        self.memory.put_all([(key, value)])
        return key

    # ---------------------------------------------------------------------------------------------------------- private

    def _submit(self, pods: Sequence[tuple[bytes, bytes]], wait_for: int) -> str:
        """Hand pods over as fast as they are taken; then wait until so many more are seen bound. What went wrong, if anything."""
        self._arrived: dict[bytes, float] = {}
        self._bound.clear()
        self._there.clear()
        self._wanted = wait_for or len(pods) + 1
        for start in range(0, len(pods), PUT_BATCH):
            batch = pods[start : start + PUT_BATCH]
            now = time.perf_counter()
            self._arrived.update((key, now) for key, _ in batch)
            self.memory.put_all(batch)
        if wait_for and not self._there.wait(SECONDS_MAX):
            return f"{len(self._bound)} of {wait_for} pods were bound within {SECONDS_MAX:.0f} s"
        return ""

    def _single(self, number: int) -> float:
        """Milliseconds of one pod that comes alone."""
        template = next(iter(self._workload.measured.pods(1, "single")))
        shapes.named(template, f"single-{number}")
        self._submit([self._pair(template)], 1)
        return 1000 * (max(self._bound.values()) - min(self._arrived.values()))

    def _wait_until_quiet(self) -> None:
        revision = -1
        while revision != self.memory.revision:
            revision = self.memory.revision
            time.sleep(1.0)

    def _pair(self, item: AnyObject) -> tuple[bytes, bytes]:
        kind = kinds.of_message(item)
        key = self._keys.object_key(kind, item.metadata.namespace if kind.namespaced else "", item.metadata.name)
        return key, encode(kinds.wrap(item))

    def _judge(self) -> Judge:
        """Replays what happened."""
        namespaces = {
            item.metadata.name: dict(item.metadata.labels) for item in self._workload.objects if isinstance(item, Namespace)
        }
        judge = Judge(self._workload.make_nodes(self._workload.nodes), namespaces)
        placed: set[bytes] = set()
        for change in self.memory.history:
            if isinstance(change, Entry) and b"/pods/" in change.key and change.key not in placed:
                pod = Stored.FromString(change.value).object.pod
                if pod.spec.node_name:
                    placed.add(change.key)
                    judge.place(pod, pod.spec.node_name)
        return judge


class _Churning:
    """What happens beside the measured pods, on a thread of its own."""

    def __init__(self, churn: Churn, load: Load) -> None:
        self._churn = churn
        self._load = load
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="churn", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        made: list[bytes] = []
        while True:
            for key in made:
                self._load.memory.delete(key)
            made = [self._load.put(shapes.a_pod(self._churn.pod, "churn", f"churn-{number}"))]
            if self._churn.recreates:
                node = shapes.a_node("churn-node", amounts={"cpu": "0", "memory": "0", "pods": "0"})
                made += [self._load.put(node), self._load.put(shapes.a_service("churn", "churn-service"))]
            else:
                made = []
            number += 1
            if self._stopped.wait(self._churn.period_seconds):
                return


# ---------------------------------------------------------------------------------------------- in the driver's process


@contextmanager
def a_ray() -> Iterator[None]:
    """A Ray of this run's own."""
    local = LocalRay()
    local.start()
    try:
        yield
    finally:
        local.stop()


def run(workload: Workload, percentage: int, templates: int, workers: int) -> Result:
    """One run, within `a_ray`. Raises NotBound."""
    import ray

    profiles = ProfilesText(_CONFIGURATION.format(percentage=percentage), "bench")
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/dev/shm") as directory:
        belief_path = str(Path(directory) / "belief")
        cell = BeliefCell.create(belief_path)
        handles: list[Any] = []
        pids: dict[str, int] = {}
        try:
            queue_actor = create_queue_actor(profiles)
            helpers = create_workers(workers, profiles)
            config = SchedulerActorConfig((), ROOT, belief_path, profiles, seed=1)
            remote: Any = ray.remote(MeasuredSchedulerActor)
            options = remote.options(num_cpus=0, max_restarts=0, max_concurrency=8, scheduling_strategy=on_this_host())
            scheduler = options.remote(config, queue_actor, helpers, workload)
            handles = [queue_actor, *helpers, scheduler]
            pids = {"queue": ray.get(queue_actor.pid.remote())}
            pids |= {f"worker-{place}": ray.get(worker.pid.remote()) for place, worker in enumerate(helpers)}
            pids["scheduler"] = ray.get(scheduler.wait_until_synced.remote())
            valid_until = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + int(_EPOCH_SECONDS * 1e9)
            cell.publish(EPOCH, valid_until)
            ray.get(scheduler.prepare.remote())
            others = {name: pid for name, pid in pids.items() if name != "scheduler"}
            result: Result = ray.get(scheduler.measure.remote(templates, others))
        finally:
            for handle in handles:
                ray.kill(handle)
            cell.close()
    if result.problem:
        raise NotBound(f"{workload.name} on {workload.nodes} nodes: {result.problem}")
    return result
