"""What a node and its pods use, as kubelet's /metrics/resource has it, and the overhead of pods as kube-state-metrics has it.

Read from /proc at each scrape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from rayched.api.quantity import QuantityError, milli_value, value
from rayched.nodes.agent.resource_use import ResourceUse, machine_use, process_use
from rayched.nodes.agent.shim import proc_table
from rayched.v1.core_pb2 import Pod

_OF_POD: Final = ("namespace", "pod")
_OF_CONTAINER: Final = ("namespace", "pod", "container")


@dataclass(frozen=True, slots=True)
class MeasuredPod:
    """A pod and its shim. `shim` None: nothing of it runs."""

    pod: Pod
    shim: int | None


def resource_families(pods: Iterable[MeasuredPod]) -> list[Metric]:
    """Blocks while /proc is read."""
    machine = machine_use()
    node_cpu = CounterMetricFamily("node_cpu_usage_seconds", "CPU time of the host.", value=machine.cpu_seconds)
    node_memory = GaugeMetricFamily("node_memory_working_set_bytes", "Memory in use on the host.", value=machine.memory_bytes)
    pod_cpu = CounterMetricFamily("pod_cpu_usage_seconds", "CPU time of a pod's processes.", labels=_OF_POD)
    pod_memory = GaugeMetricFamily("pod_memory_working_set_bytes", "Memory of a pod's processes.", labels=_OF_POD)
    cpu = CounterMetricFamily("container_cpu_usage_seconds", "CPU time of a container's processes.", labels=_OF_CONTAINER)
    memory = GaugeMetricFamily("container_memory_working_set_bytes", "Memory of a container's processes.", labels=_OF_CONTAINER)
    overhead_cpu = GaugeMetricFamily("kube_pod_overhead_cpu_cores", "CPU beside that of its containers.", labels=_OF_POD)
    overhead_memory = GaugeMetricFamily("kube_pod_overhead_memory_bytes", "Memory beside its containers'.", labels=_OF_POD)
    for one in pods:
        names = [one.pod.metadata.namespace, one.pod.metadata.name]
        for family, resource in ((overhead_cpu, "cpu"), (overhead_memory, "memory")):
            amount = _overhead(one.pod, resource)
            if amount is not None:
                family.add_metric(names, amount)
        if one.shim is None:
            continue
        used = _containers_below(one.shim)
        pod_cpu.add_metric(names, sum(use.cpu_seconds for use in used.values()))
        pod_memory.add_metric(names, sum(use.memory_bytes for use in used.values()))
        for container, use in sorted(used.items()):
            cpu.add_metric([*names, container], use.cpu_seconds)
            memory.add_metric([*names, container], use.memory_bytes)
    return [node_cpu, node_memory, pod_cpu, pod_memory, cpu, memory, overhead_cpu, overhead_memory]


def _overhead(pod: Pod, resource: str) -> float | None:
    if resource not in pod.spec.overhead:
        return None
    text = pod.spec.overhead[resource].string
    try:
        return milli_value(text) / 1000 if resource == "cpu" else float(value(text))
    except QuantityError:
        return None


def _containers_below(shim: int) -> dict[str, ResourceUse]:
    """By container; processes without its cookie are left out."""
    found: dict[str, ResourceUse] = {}
    for pid in proc_table.tree_of(shim)[1:]:
        name = proc_table.environment_of(pid).get(proc_table.CONTAINER_VARIABLE)
        if name is not None:
            found.setdefault(name, ResourceUse()).add(process_use(pid))
    return found
