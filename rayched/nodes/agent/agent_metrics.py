"""What the agent counts: kubelet's metrics of 1.34 under their names, and its own. Any thread may count.

Values that are as they are now (pods that run, what is available) are asked of the agent's loop at each scrape.

Cost: about a microsecond a count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.metrics_core import GaugeMetricFamily

from rayched.nodes.agent.container_life import ContainerLife
from rayched.nodes.agent.phases import ContainerRole
from rayched.nodes.agent.pod_life import PodLife
from rayched.nodes.agent.probing import ProbeKind

_SECONDS: Final = (0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600)
_EXTENDED_RESOURCES: Final = "OutOfExtendedResources"
_OTHER: Final = "Other"
_REJECTIONS: Final = frozenset(
    {
        "Evicted",
        "NodeAffinity",
        "NodePorts",
        "NodeReplaced",
        "NodeShutdown",
        "OutOfcpu",
        "OutOfephemeral-storage",
        "OutOfmemory",
        "OutOfpods",
        "TaintToleration",
        "UnexpectedAdmissionError",
    }
)
"""Reasons that have a series of their own. Of others there may be as many as people have resources."""
_WORK_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


@dataclass(slots=True)
class AgentState:
    """The agent as it is at a scrape. Seconds are ages; thresholds by signal and kind (hard, soft)."""

    pods: int = 0
    shims: int = 0
    containers: dict[str, int] = field(default_factory=dict)
    """By state: running, exited, created."""
    incarnation: int = 0
    reports: int = 0
    heartbeat_age: float | None = None
    available: Mapping[str, int] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    thresholds: Mapping[tuple[str, str], int] = field(default_factory=dict)


class AgentMetrics:
    """Of one agent."""

    def __init__(self, node: str, tier: str) -> None:
        """`tier`: of containment.py."""
        self.registry = registry = CollectorRegistry()
        gauge = Gauge("kubelet_node_name", "The node's name; always 1.", ["node"], registry=registry)
        gauge.labels(node).set(1)
        containment = Gauge("rayched_node_containment", "How processes are contained; 1.", ["tier"], registry=registry)
        containment.labels(tier).set(1)
        self.drivers = Gauge(
            "rayched_node_driver_healthy", "Whether a driver that pods wanted is in order.", ["driver"], registry=registry
        )

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def seconds(name: str, text: str, buckets: Iterable[float], *labels: str) -> Histogram:
            return Histogram(name, text, labels, buckets=tuple(buckets), registry=registry)

        self.evictions = counter("kubelet_evictions", "Pods evicted.", "eviction_signal")
        self.eviction_age = seconds(
            "kubelet_eviction_stats_age_seconds", "Age of what an eviction was decided on.", _WORK_SECONDS, "eviction_signal"
        )
        self.decisions = seconds("rayched_node_evict_decision_seconds", "From a look to the decision to evict.", _WORK_SECONDS)
        self.started_pods = counter("kubelet_started_pods", "Pods whose shim was started.")
        self.failed_pods = counter("kubelet_started_pods_errors", "Pods whose shim did not start.")
        self.started_containers = counter("kubelet_started_containers", "Containers started.", "container_type")
        self.failed_containers = counter(
            "kubelet_started_containers_errors", "Containers that did not start.", "container_type", "code"
        )
        self.pod_start = seconds("kubelet_pod_start_duration_seconds", "From seeing a pod to its running.", _SECONDS)
        self.pod_start_sli = seconds(
            "kubelet_pod_start_sli_duration_seconds", "The same from its creation, without images.", _SECONDS
        )
        self.pod_work = seconds(
            "kubelet_pod_worker_duration_seconds", "What one step for a pod takes.", _WORK_SECONDS, "operation_type"
        )
        self._rejections = counter("kubelet_admission_rejections", "Pods that the node refused.", "reason")
        self.probes = counter("prober_probe", "Probes made.", "probe_type", "result")
        self.stalls = counter("rayched_node_memory_stalls", "Looks made early, as processes stalled for memory.")
        self.superseded_writes = counter("rayched_node_superseded_writes", "Writes refused as another agent has the node.")
        self.adopted_pods = counter("rayched_node_adopted_pods", "Pods that ran on while the agent was away.")
        self.lost_containers = counter("rayched_node_lost_containers", "Containers of which nobody knows how they ended.")
        self.leftovers = counter("rayched_node_leftovers_killed", "Processes that a pod had left behind.")
        self.shutdown_began = Gauge(
            "kubelet_graceful_shutdown_start_time_seconds", "When a shutdown began; 0: never.", registry=registry
        )
        self.shutdown_ended = Gauge(
            "kubelet_graceful_shutdown_end_time_seconds", "When its pods had ended; 0: never.", registry=registry
        )

    def container_started(self, life: PodLife, one: ContainerLife, now: float) -> None:
        self.started_containers.labels(_type_of(one)).inc()
        others = [other for other in life.containers if other.role is ContainerRole.REGULAR and other is not one]
        if one.role is ContainerRole.REGULAR and not one.attempt and not any(other.attempts for other in others):
            self.pod_start.observe(max(now - life.accepted_at, 0.0))
            self.pod_start_sli.observe(max(now - life.pod.metadata.creation_timestamp.seconds, 0.0))

    def container_failed(self, one: ContainerLife, code: str) -> None:
        self.failed_containers.labels(_type_of(one), code).inc()

    def pod_refused(self, reason: str) -> None:
        """`reason`: as the pod's status has it."""
        other = _EXTENDED_RESOURCES if reason.startswith("OutOf") else _OTHER
        self._rejections.labels(reason if reason in _REJECTIONS else other).inc()

    def probe_made(self, kind: ProbeKind, success: bool | None) -> None:
        """None: it could not be made."""
        result = "unknown" if success is None else "successful" if success else "failed"
        self.probes.labels(kind.value.capitalize(), result).inc()


def _type_of(one: ContainerLife) -> str:
    return "container" if one.role is ContainerRole.REGULAR else "init_container"


def state_families(state: AgentState) -> Iterable[Metric]:
    """What a scrape shows beside the counts."""
    yield _gauge("kubelet_running_pods", "Pods of which something runs.", state.pods)
    containers = GaugeMetricFamily("kubelet_running_containers", "Containers by state.", labels=["container_state"])
    for name in ("created", "exited", "running"):
        containers.add_metric([name], state.containers.get(name, 0))
    yield containers
    yield _gauge("rayched_node_shims", "Shims that the agent is connected to.", state.shims)
    yield _gauge("rayched_node_incarnation", "The agent's incarnation; 0: not registered.", state.incarnation)
    yield _gauge("rayched_node_report_queue", "Statuses that wait to be told.", state.reports)
    if state.heartbeat_age is not None:
        yield _gauge("rayched_node_heartbeat_age_seconds", "Since the last acknowledged sign of life.", state.heartbeat_age)
    for name, text, values in (
        ("available", "What is available of a signal.", state.available),
        ("capacity", "The capacity of a signal.", state.capacity),
    ):
        family = GaugeMetricFamily(f"rayched_node_signal_{name}", text, labels=["signal"])
        for signal, amount in values.items():
            family.add_metric([signal], amount)
        yield family
    thresholds = GaugeMetricFamily("rayched_node_signal_threshold", "Below it pods are evicted.", labels=["signal", "kind"])
    for (signal, kind), amount in state.thresholds.items():
        thresholds.add_metric([signal, kind], amount)
    yield thresholds


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
