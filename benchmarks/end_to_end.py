"""Depth `cluster`: from submission to the client's own watch: gRPC, admission, etcd, decision, guarded binding, watch.

Nodes are registered. Nobody answers for them, so that what is measured is scheduling alone, unless pods have to go: then agents
end them. One client submits pods in batches of 100; the clock runs from the first submission to the moment at which its watch has
shown the last one bound. Latency is measured apart, with single submissions at a steady rate on the idle cluster. The auditor
reads the history when all is over, so that it takes no time from what is measured.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

from benchmarks import shapes
from benchmarks.load import SteadyLoad
from benchmarks.measured import Measured, percentile
from benchmarks.processes import cpu_seconds, peak_memory_bytes
from benchmarks.workloads import Workload
from rayched.api.kinds import AnyObject
from rayched.cli.cluster.rehearsal import Rehearsal, RehearsalFailed, apply_all, scratch_directory
from rayched.client.client import Client
from rayched.client.watch import StreamClosed, WatchStream
from rayched.replica.cluster.local_pki import LocalPki
from rayched.v1.core_pb2 import Namespace, Pod
from rayched.v1.workloads_pb2 import PriorityClass

_SECONDS_MAX = 300.0
_AUDIT_SECONDS_MAX = 120.0
_LATENCY_PODS = 400
_LATENCY_RATE = 200.0
_IMPORTANT = "bench-important"
"""The class of pods that others go for."""
_CONFIGURATION = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: {percentage}
"""


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """One run."""

    measured: Measured
    violations: tuple[str, ...]
    """What the auditor found."""


class BoundWatch:
    """When each pod was first seen bound, by namespace/name, on a thread of its own."""

    def __init__(self, client: Client) -> None:
        self._stream: WatchStream = client.watch("pods", start_revision=client.list_all("pods").revision + 1)
        self._changed = threading.Condition()
        self._awaited = math.inf
        """Who waits need not look before so many were seen."""
        self.seen: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="bound-watch", daemon=True)
        self._thread.start()

    def wait_for(self, names: Iterable[str], seconds: float) -> int:
        """How many of these pods were not bound within the time."""
        missing = set(names)

        def all_there() -> bool:
            missing.difference_update([name for name in missing if name in self.seen])
            return not missing

        with self._changed:
            self._awaited = len(missing)
            self._changed.wait_for(lambda: len(self.seen) >= self._awaited and all_there(), seconds)
        return len(missing)

    def stop(self) -> None:
        self._stream.close()
        self._thread.join(5.0)

    def _run(self) -> None:
        try:
            for event in self._stream:
                if isinstance(event.object, Pod) and event.object.spec.node_name:
                    self.seen.setdefault(_name(event.object), time.monotonic())
                    if len(self.seen) >= self._awaited:
                        with self._changed:
                            self._changed.notify_all()
        except StreamClosed:
            return


def run(
    workload: Workload,
    templates: int,
    percentage: int,
    replicas: int = 1,
    *,
    certificates: bool = False,
    options: Sequence[str] = (),
) -> EndToEnd:
    """`certificates`: as `rayched up` makes them. `options`: of each replica. Raises RehearsalFailed where pods stay unbound."""
    with scratch_directory("bench") as directory:
        configuration = directory / "configuration.yaml"
        configuration.write_text(_CONFIGURATION.format(percentage=percentage))
        nodes = list(workload.make_nodes(workload.nodes))
        words = ["--config", str(configuration), "--no-compact", *options]
        pki = LocalPki(directory / "pki", replicas) if certificates else None
        with Rehearsal(
            directory, nodes, replicas, options=words, agents=workload.preempts, audit_later=True, pki=pki
        ) as rehearsal:
            _prepare(rehearsal, workload)
            measured = _measure(rehearsal, workload, templates)
            rehearsal.audit()
            newest = max((int(pod.metadata.resource_version) for pod in rehearsal.client.list("pods")), default=0)
            if not rehearsal.follower.wait_for(lambda auditor: auditor.revision >= newest, _AUDIT_SECONDS_MAX):
                raise RehearsalFailed(f"the auditor has not read all within {_AUDIT_SECONDS_MAX:.0f} s")
            verdict = rehearsal.verdict()
    return EndToEnd(measured, tuple(verdict.words))


def _prepare(rehearsal: Rehearsal, workload: Workload) -> None:
    """Objects, and the pods that are there before."""
    before = list(workload.pods_before())
    used = {pod.metadata.namespace for _, pod in before} | set(workload.measured.namespaces) | {"churn"}
    namespaces = [Namespace() for _ in used - set(workload.namespaces)]
    for namespace, name in zip(namespaces, sorted(used - set(workload.namespaces)), strict=True):
        namespace.metadata.name = name
    important = PriorityClass(value=workload.highest_priority)
    important.metadata.name = _IMPORTANT
    apply_all(rehearsal.client, [*namespaces, important, *map(_without_uid, workload.objects)])
    _bind(rehearsal, [_submittable(pod) for group, pod in before if not group.gated])
    rehearsal.submit(_submittable(pod) for group, pod in before if group.gated)


def _measure(rehearsal: Rehearsal, workload: Workload, templates: int) -> Measured:
    pods = [_submittable(pod) for pod in workload.pods_measured(templates)]
    pids = _pids(rehearsal)
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    churn = workload.churn
    beside = None
    if churn is not None:
        beside = SteadyLoad(rehearsal.client, _churn(churn.pod), 1 / churn.period_seconds, batch=1).start()
    own = time.process_time()
    seconds = _bind(rehearsal, pods)
    cpu = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()} | {"client": time.process_time() - own}
    if beside is not None:
        beside.stop()
        rehearsal.acknowledged += beside.acknowledged
    # Where each pod takes its node for itself there is none for another one.
    latencies = [] if workload.victims_each else sorted(1000 * one for one in _latencies(rehearsal, workload))
    return Measured(
        seconds=seconds,
        cpu_seconds=cpu,
        latency_ms_p50=percentile(latencies, 50),
        latency_ms_p99=percentile(latencies, 99),
        peak_bytes={name: peak_memory_bytes(pid) for name, pid in pids.items()},
    )


def _bind(rehearsal: Rehearsal, pods: list[Pod]) -> float:
    """Seconds from the first submission until the last of them was seen bound."""
    if not pods:
        return 0.0
    names = [_name(pod) for pod in pods]
    watch = BoundWatch(rehearsal.client)
    try:
        began = time.monotonic()
        rehearsal.submit(pods)
        missing = watch.wait_for(names, _SECONDS_MAX)
    finally:
        watch.stop()
    if missing:
        raise RehearsalFailed(f"{len(pods) - missing} of {len(pods)} pods were bound within {_SECONDS_MAX:.0f} s")
    return max(watch.seen[name] for name in names) - began


def _latencies(rehearsal: Rehearsal, workload: Workload) -> list[float]:
    """Seconds from the call of submit to the watch's event, of single submissions."""
    watch = BoundWatch(rehearsal.client)
    submitted: dict[str, float] = {}
    due = time.monotonic()
    for pod in workload.singles(_LATENCY_PODS):
        submitted[_name(pod)] = time.monotonic()
        rehearsal.acknowledged.append(rehearsal.client.submit(_submittable(pod)).uid)
        due += 1 / _LATENCY_RATE
        time.sleep(max(0.0, due - time.monotonic()))
    missing = watch.wait_for(submitted, 30.0)
    watch.stop()
    if missing:
        raise RehearsalFailed(f"{missing} of {_LATENCY_PODS} single pods were not bound")
    return [watch.seen[name] - since for name, since in submitted.items()]


def _churn(shape: str) -> Iterator[Pod]:
    for number in itertools.count():
        yield _submittable(shapes.a_pod(shape, "churn", f"churn-{number}"))


def _submittable(pod: Pod) -> Pod:
    """The server gives uids, and priorities by their class."""
    pod.metadata.uid = ""
    if pod.spec.priority:
        pod.spec.priority_class_name = _IMPORTANT
    pod.spec.ClearField("priority")
    return pod


def _without_uid(item: AnyObject) -> AnyObject:
    """The server gives uids."""
    copy = deepcopy(item)
    copy.metadata.uid = ""
    return copy


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _pids(rehearsal: Rehearsal) -> Mapping[str, int]:
    """The leader's processes by their roles, and etcd."""
    found = {"replica": rehearsal.leader().pid} | dict(rehearsal.client.scheduler_status().pids)
    etcd = rehearsal.cluster.etcd
    if etcd is not None and etcd.pid is not None:
        found["etcd"] = etcd.pid
    return found
