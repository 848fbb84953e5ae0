"""Depth `scheduler`: QueueActor, SchedulerActor and workers as Ray actors, binding into memory.

The SchedulerActor is the one of production but for its store, which is `memory_store`: its loop, its core, its exchange with the
queue. Pods arrive as encoded bytes through the watch; each binding is a guarded transaction; each bound pod comes back as encoded
bytes through the watch, updates the cache and wakes the queue. No API, no etcd and no events, as kube-scheduler was measured.

The clock runs from the first measured pod handed to the watch until the last one was seen bound in the cache. Then single pods
are submitted to the idle cluster, one at a time.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks import shapes
from benchmarks.measured import Measured, percentile
from benchmarks.memory_cluster import EPOCH, MemoryCluster, Pair
from benchmarks.memory_store import MemoryWatcher
from benchmarks.processes import cpu_seconds, peak_memory_bytes
from benchmarks.workloads import Workload
from leader.belief import BeliefCell
from rayched.actors.configured import ProfilesText
from rayched.actors.placement import on_this_host
from rayched.actors.queue_actor import create_queue_actor
from rayched.actors.scheduler_actor import SchedulerActor
from rayched.actors.scheduler_links import Transactions, Watch
from rayched.actors.scheduler_values import SchedulerActorConfig
from rayched.actors.worker import create_workers, worker_names
from rayched.replica.ray.local_ray import LocalRay
from rayched.store.entries import Change
from rayched.store.keys import Keys

ROOT: Final = "/bench"
PUT_BATCH: Final = 100
"""Pods that arrive at one revision: a batch of submissions."""
SECONDS_MAX: Final = 900.0
SINGLE_PODS: Final = 100
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

    def __init__(self, config: SchedulerActorConfig, queue_actor: Any, workers: Mapping[str, Any], workload: Workload) -> None:
        self._load = Load(workload, Keys(ROOT))
        super().__init__(config, queue_actor, workers)

    def _connect(self, config: SchedulerActorConfig, keys: Keys) -> tuple[Transactions, Watch]:  # noqa: ARG002
        load = self._load

        def delivered(changes: Sequence[Change]) -> None:
            # Follows the delivery through the inbox: when it is carried out, the cache has absorbed it.
            self._inbox.put(lambda: load.seen(changes))

        return load.memory, MemoryWatcher(load.memory, self._watched, delivered)

    def _tick(self) -> None:
        super()._tick()
        self._load.ticked()

    def prepare(self) -> None:
        """The pods that are there before."""
        self._load.prepare()

    def measure(self, templates: int, others: dict[str, int]) -> Result:
        """`others` are processes whose CPU and memory count as well, by name."""
        before = self._shards.counts.evaluations
        result = self._load.measure(templates, others)
        asked = self._shards.counts.evaluations - before
        return replace(result, measured=replace(result.measured, workers_asked=asked))


class Load(MemoryCluster):
    """Submits a workload's pods and measures. Two threads: the actor's loop and whoever measures."""

    longest_piece = 0.0
    """Seconds that the loop's thread computed between two signs of life, at most, since this was set to 0."""
    _ticked = 0, 0.0

    def ticked(self) -> None:
        """A sign of life, on the thread that gives it."""
        thread, now = threading.get_ident(), time.thread_time()
        if self._ticked[0] == thread:
            self.longest_piece = max(self.longest_piece, now - self._ticked[1])
        self._ticked = thread, now

    def prepare(self) -> None:
        """The pods that are there before: those that get a node have one, the others are left to themselves."""
        waited: list[Pair] = []
        others: list[Pair] = []
        for group, pod in self.workload.pods_before():
            stays = self.workload.ending is not None and self.workload.ending.stays
            (others if group.gated or (group.ends and stays) else waited).append(self.pair(pod))
        self._submit(others, wait=False)
        if any(group.gated for group in self.workload.init):
            # Their conditions are written; after that nothing happens to them.
            self._wait_until_quiet()
        self._submit(waited)

    def measure(self, templates: int, others: dict[str, int]) -> Result:
        """`others` are processes whose CPU and memory count as well, by name."""
        workload = self.workload
        pods = self.pairs(workload.pods_measured(templates))
        meanwhile = self.meanwhile()
        before = {name: cpu_seconds(pid) for name, pid in others.items()}
        for one in meanwhile:
            one.start()
        self.longest_piece = 0.0
        cpu_began, began = time.process_time(), time.perf_counter()
        problem = self._submit(pods)
        longest_piece = self.longest_piece
        arrived = self._arrived
        ended = max((self.bound.get(key, 0.0) for key, _ in pods), default=0.0)
        cpu = {"scheduler": time.process_time() - cpu_began}
        cpu |= {name: cpu_seconds(pid) - before[name] for name, pid in others.items()}
        for one in meanwhile:
            one.stop()
        latencies = sorted(1000 * (self.bound[key] - arrived[key]) for key, _ in pods if key in self.bound)
        peak = {"scheduler": peak_memory_bytes()} | {name: peak_memory_bytes(pid) for name, pid in others.items()}
        # Where each pod takes its node for itself there is none for another one.
        single = [] if problem or workload.victims_each else sorted(self._single(number) for number in range(SINGLE_PODS))
        judge = self.judged(templates)
        measured = Measured(
            seconds=ended - began,
            cpu_seconds=cpu,
            latency_ms_p50=percentile(latencies, 50),
            latency_ms_p99=percentile(latencies, 99),
            peak_bytes=peak,
            unplaced=len(pods) - len(latencies),
            single_ms=single,
            longest_piece_ms=1000 * longest_piece,
        )
        return Result(measured, judge.n_wrong, tuple(judge.wrong), problem)

    # ---------------------------------------------------------------------------------------------------------- private

    def _submit(self, pods: Sequence[Pair], *, wait: bool = True) -> str:
        """Hand pods over as fast as they are taken; then wait until they are seen bound. What went wrong, if anything."""
        self._arrived: dict[bytes, float] = {}
        self.await_pods(key for key, _ in pods if wait)
        for start in range(0, len(pods), PUT_BATCH):
            batch = pods[start : start + PUT_BATCH]
            now = time.perf_counter()
            self._arrived.update((key, now) for key, _ in batch)
            self.memory.put_all(batch)
        if wait and pods and not self.all_bound.wait(SECONDS_MAX):
            return f"{len(self.bound)} of {len(pods)} pods were bound within {SECONDS_MAX:.0f} s"
        return ""

    def _single(self, number: int) -> float:
        """Milliseconds of one pod that comes alone."""
        template = next(self.workload.singles(1))
        shapes.named(template, f"single-{number}")
        key, value = self.pair(template)
        self._submit([(key, value)])
        return 1000 * (self.bound[key] - self._arrived[key])

    def _wait_until_quiet(self) -> None:
        revision = -1
        while revision != self.memory.revision:
            revision = self.memory.revision
            time.sleep(1.0)


# ---------------------------------------------------------------------------------------------- in the driver's process


@contextmanager
def a_ray() -> Iterator[None]:
    """A Ray of this run's own. What it sets in the environment ends with it."""
    before = dict(os.environ)
    local = LocalRay()
    local.start()
    try:
        yield
    finally:
        local.stop()
        os.environ.clear()
        os.environ.update(before)


def run(workload: Workload, percentage: int, templates: int, workers: int, profiles: ProfilesText | None = None) -> Result:
    """One run, within `a_ray`; `profiles` in place of the default one with that percentage. Raises NotBound."""
    import ray

    profiles = profiles or ProfilesText(_CONFIGURATION.format(percentage=percentage), "bench")
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/dev/shm") as directory:
        belief_path = str(Path(directory) / "belief")
        cell = BeliefCell.create(belief_path)
        handles: list[Any] = []
        pids: dict[str, int] = {}
        try:
            queue_actor = create_queue_actor(profiles)
            helpers = create_workers(worker_names(workers), profiles)
            config = SchedulerActorConfig((), ROOT, belief_path, profiles, seed=1)
            remote: Any = ray.remote(MeasuredSchedulerActor)
            options = remote.options(num_cpus=0, max_restarts=0, max_concurrency=8, scheduling_strategy=on_this_host())
            scheduler = options.remote(config, queue_actor, helpers, workload)
            handles = [queue_actor, *helpers.values(), scheduler]
            pids = {"queue": ray.get(queue_actor.pid.remote())}
            pids |= {name: ray.get(worker.pid.remote()) for name, worker in helpers.items()}
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
