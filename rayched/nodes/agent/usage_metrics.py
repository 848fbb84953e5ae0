"""What a node and its pods use, as kubelet's /metrics/resource has it, and the overhead of pods as kube-state-metrics has it.

Read from /proc at each scrape. CPU is that of the processes that live now and of those that they have waited for; what nobody
waited for is lost when it ends, as there are no cgroups.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from rayched.api.quantity import QuantityError, milli_value, value
from rayched.nodes.agent.eviction.machine_figures import meminfo
from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.stats import resident_memory
from rayched.v1.core_pb2 import Pod

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_OF_POD: Final = ("namespace", "pod")
_OF_CONTAINER: Final = ("namespace", "pod", "container")


@dataclass(frozen=True, slots=True)
class MeasuredPod:
    """A pod and its shim. `shim` None: nothing of it runs."""

    pod: Pod
    shim: int | None


def resource_families(pods: Iterable[MeasuredPod]) -> list[Metric]:
    """Blocks while /proc is read."""
    node_cpu = CounterMetricFamily("node_cpu_usage_seconds", "CPU time of the host.", value=_host_cpu())
    _, working_set = meminfo(Path("/proc/meminfo").read_text(encoding="ascii"))
    node_memory = GaugeMetricFamily("node_memory_working_set_bytes", "Memory in use on the host.", value=working_set)
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
        pod_cpu.add_metric(names, sum(seconds for seconds, _ in used.values()))
        pod_memory.add_metric(names, sum(found for _, found in used.values()))
        for container, (seconds, found) in sorted(used.items()):
            cpu.add_metric([*names, container], seconds)
            memory.add_metric([*names, container], found)
    return [node_cpu, node_memory, pod_cpu, pod_memory, cpu, memory, overhead_cpu, overhead_memory]


def _overhead(pod: Pod, resource: str) -> float | None:
    if resource not in pod.spec.overhead:
        return None
    text = pod.spec.overhead[resource].string
    try:
        return milli_value(text) / 1000 if resource == "cpu" else float(value(text))
    except QuantityError:
        return None


def _containers_below(shim: int) -> dict[str, tuple[float, int]]:
    """CPU seconds and bytes by container; processes without its cookie are left out."""
    found: dict[str, tuple[float, int]] = {}
    for pid in proc_table.tree_of(shim)[1:]:
        name = proc_table.environment_of(pid).get(proc_table.CONTAINER_VARIABLE)
        if name is not None:
            seconds, memory = found.get(name, (0.0, 0))
            found[name] = (seconds + _process_cpu(pid), memory + resident_memory(pid))
    return found


def _process_cpu(pid: int) -> float:
    """Its own and that of the children that it waited for; 0 where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS


def _host_cpu() -> float:
    """All but idle and waiting for disks."""
    first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first[:8])
    return (user + nice + system + irq + softirq + steal) / _TICKS
