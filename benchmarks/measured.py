"""What one run of a workload gave, and the line that is printed of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import kube_scheduler
from benchmarks.workloads import Workload

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Measured:
    """Times of the measured pods alone."""

    seconds: float
    """Wall time."""
    cpu_seconds: Mapping[str, float]
    """CPU of each process."""
    latency_ms_p50: float
    latency_ms_p99: float
    peak_bytes: Mapping[str, int]
    """The largest resident size of each process."""
    unplaced: int = 0
    """Measured pods that found no node."""
    longest_piece_ms: float | None = None
    """What the deciding thread computed at most between two signs of life, where that is known."""
    workers_asked: int = 0
    """Shards that workers answered for."""
    single_ms: Sequence[float] = field(default=())
    """Single pods on the idle cluster, from their arrival to the moment at which they are seen bound; ascending."""


def percentile(ascending: Sequence[float], percent: int) -> float:
    """The value below which so many percent lie."""
    return ascending[min(len(ascending) - 1, len(ascending) * percent // 100)] if ascending else 0.0


def line(
    workload: Workload, depth: str, templates: int, percentage: int, measured: Measured, calibration: float
) -> dict[str, Any]:
    """The figures of one run, ready for JSON."""
    pods = workload.measured_pods
    rate = pods / measured.seconds
    busiest = max(measured.cpu_seconds.values())
    best = kube_scheduler.best(workload.name, workload.nodes, workload.init_pods, pods)
    best_scoring_all = kube_scheduler.best(workload.name, workload.nodes, workload.init_pods, pods, 100)
    found: dict[str, Any] = {
        "workload": workload.name,
        "nodes": workload.nodes,
        "init_pods": workload.init_pods,
        "measured_pods": pods,
        "depth": depth,
        "templates": templates,
        "percentage_of_nodes_to_score": percentage,
        "pods_per_second": round(rate, 1),
        "pods_per_cpu_second": round(pods / busiest, 1) if busiest else None,
        "cpu_ms_per_pod": {name: round(1000 * seconds / pods, 4) for name, seconds in measured.cpu_seconds.items()},
        "latency_ms_p50": round(measured.latency_ms_p50, 4),
        "latency_ms_p99": round(measured.latency_ms_p99, 4),
        "peak_memory_mib": {name: round(size / MIB, 1) for name, size in measured.peak_bytes.items()},
        "unplaced": measured.unplaced,
        "calibration_ms": round(1000 * calibration, 2),
    }
    if measured.longest_piece_ms is not None:
        found["longest_piece_ms"] = round(measured.longest_piece_ms, 1)
    if measured.single_ms:
        found["single_pod_ms_p50"] = round(percentile(measured.single_ms, 50), 3)
        found["single_pod_ms_p99"] = round(percentile(measured.single_ms, 99), 3)
    if best is not None:
        found["kube_scheduler_pods_per_second_best"] = best
        found["ratio_to_kube_scheduler"] = round(rate / best, 2)
        found["ratio_by_cpu"] = round(pods / busiest / best, 2) if busiest else None
    if best_scoring_all is not None:
        found["ratio_to_kube_scheduler_scoring_all"] = round(rate / best_scoring_all, 2)
    return found
