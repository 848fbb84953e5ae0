"""From submission to the client's own watch: gRPC, admission, etcd, decision, guarded binding, watch. One replica, one client.

Nodes are registered and nobody answers for them, so that what is measured is scheduling alone. Pods of one template are submitted
in batches of 100; the clock runs from the first submission to the moment at which the client's watch has shown the last one
bound. Latency is measured apart, with single submissions at a steady rate on the idle cluster.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from dataclasses import dataclass

from benchmarks.load import small_pods
from rayched.cli.rehearsal import Rehearsal, RehearsalFailed, scratch_directory
from rayched.client.client import Client
from rayched.client.watch import StreamClosed, WatchStream
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.v1.core_pb2 import Pod

_ZONES = 3
_SECONDS_MAX = 300.0
_LATENCY_PODS = 400
_LATENCY_RATE = 200.0


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """Figures of one run. Seconds and milliseconds are wall time."""

    nodes: int
    measured_pods: int
    replicas: int
    pods_per_second: float
    latency_ms_p50: float
    latency_ms_p99: float
    violations: int


class BoundWatch:
    """When each pod was first seen bound, by name, on a thread of its own."""

    def __init__(self, client: Client) -> None:
        self._stream: WatchStream = client.watch("pods", start_revision=client.list_all("pods").revision + 1)
        self._changed = threading.Condition()
        self.seen: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="bound-watch", daemon=True)
        self._thread.start()

    def wait_for(self, pods: int, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: len(self.seen) >= pods, seconds)

    def stop(self) -> None:
        self._stream.close()
        self._thread.join(5.0)

    def _run(self) -> None:
        try:
            for event in self._stream:
                if isinstance(event.object, Pod) and event.object.spec.node_name:
                    with self._changed:
                        self.seen.setdefault(event.object.metadata.name, time.monotonic())
                        self._changed.notify_all()
        except StreamClosed:
            return


def run(nodes: int, pods: int, replicas: int = 1) -> EndToEnd:
    """Raises RehearsalFailed where pods stay unbound."""
    shape = NodeShape({"cpu": "32", "memory": "128Gi", "pods": "110"})
    with (
        scratch_directory("bench") as directory,
        Rehearsal(directory, hollow_nodes(nodes, _ZONES, shape), replicas, agents=False) as rehearsal,
    ):
        rate = _throughput(rehearsal, pods)
        latencies = _latencies(rehearsal)
        verdict = rehearsal.verdict()
    return EndToEnd(
        nodes=nodes,
        measured_pods=pods,
        replicas=replicas,
        pods_per_second=round(rate, 1),
        latency_ms_p50=round(1000 * statistics.median(latencies), 2),
        latency_ms_p99=round(1000 * statistics.quantiles(latencies, n=100)[98], 2),
        violations=len(verdict.words),
    )


def _throughput(rehearsal: Rehearsal, pods: int) -> float:
    load = list(itertools.islice(small_pods("burst"), pods))
    watch = BoundWatch(rehearsal.client)
    began = time.monotonic()
    rehearsal.submit(load)
    complete = watch.wait_for(pods, _SECONDS_MAX)
    watch.stop()
    if not complete:
        raise RehearsalFailed(f"{len(watch.seen)} of {pods} pods were bound within {_SECONDS_MAX:.0f} s")
    return pods / (max(watch.seen.values()) - began)


def _latencies(rehearsal: Rehearsal) -> list[float]:
    """Seconds from the call of submit to the watch's event, of single submissions."""
    watch = BoundWatch(rehearsal.client)
    submitted: dict[str, float] = {}
    due = time.monotonic()
    for pod in itertools.islice(small_pods("single"), _LATENCY_PODS):
        submitted[pod.metadata.name] = time.monotonic()
        rehearsal.client.submit(pod)
        due += 1 / _LATENCY_RATE
        time.sleep(max(0.0, due - time.monotonic()))
    complete = watch.wait_for(_LATENCY_PODS, 30.0)
    watch.stop()
    if not complete:
        raise RehearsalFailed(f"{len(watch.seen)} of {_LATENCY_PODS} single pods were bound")
    return [watch.seen[name] - since for name, since in submitted.items()]
