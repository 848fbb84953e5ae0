"""The Node that an agent registers, and the status that it reports. Pure.

    allocatable = capacity - system reserved - agent reserved - hard eviction threshold

The threshold of memory.available counts for memory, that of nodefs.available for ephemeral-storage, none else. Less than nothing
is an error that names the terms.

Source: kubelet's node status setters and node allocatable, Kubernetes 1.34; its words are kept, as whoever watches looks for
them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from rayched.api.agents import AGENT_ANNOTATION, PROCESSES
from rayched.nodes.agent.machine import Machine
from rayched.nodes.shapes import HOSTNAME_LABEL
from rayched.v1.core_pb2 import Node, NodeStatus

MEMORY_PRESSURE: Final = "MemoryPressure"
DISK_PRESSURE: Final = "DiskPressure"
PID_PRESSURE: Final = "PIDPressure"
_PRESSURES: Final = {
    MEMORY_PRESSURE: (
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ),
    DISK_PRESSURE: (
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ),
    PID_PRESSURE: (
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ),
}


class NodeSizeError(ValueError):
    """More is reserved than there is; one line."""


@dataclass(frozen=True, slots=True)
class NodeSize:
    """By resource: milli-CPU, bytes, counts. `thresholds`: hard ones, of memory and ephemeral-storage."""

    capacity: Mapping[str, int]
    system_reserved: Mapping[str, int] = field(default_factory=dict)
    agent_reserved: Mapping[str, int] = field(default_factory=dict)
    thresholds: Mapping[str, int] = field(default_factory=dict)

    def for_pods(self, resource: str) -> int:
        """Of the capacity, what is not reserved, whatever the thresholds."""
        return self.capacity[resource] - self.system_reserved.get(resource, 0) - self.agent_reserved.get(resource, 0)

    def allocatable(self) -> dict[str, int]:
        """Raises NodeSizeError."""
        found = {}
        for name, amount in self.capacity.items():
            terms = [one.get(name, 0) for one in (self.system_reserved, self.agent_reserved, self.thresholds)]
            found[name] = amount - sum(terms)
            if found[name] < 0:
                words = f"system-reserved {terms[0]}, agent-reserved {terms[1]} and the hard eviction threshold {terms[2]}"
                raise NodeSizeError(f"{name}: capacity {amount} is less than {words} together")
        return found


def node_object(name: str, address: str, machine: Machine, size: NodeSize, labels: Mapping[str, str], version: str) -> Node:
    """Raises NodeSizeError."""
    node = Node(api_version="v1", kind="Node")
    node.metadata.name = name
    node.metadata.annotations[AGENT_ANNOTATION] = PROCESSES
    found = {HOSTNAME_LABEL: name, "kubernetes.io/os": "linux", "kubernetes.io/arch": machine.architecture, **labels}
    for key, label in found.items():
        node.metadata.labels[key] = label
    for amounts, target in ((size.capacity, node.status.capacity), (size.allocatable(), node.status.allocatable)):
        for resource, amount in amounts.items():
            target[resource].string = _quantity(resource, amount)
    node.status.addresses.add(type="InternalIP", address=address)
    node.status.addresses.add(type="Hostname", address=name)
    info = node.status.node_info
    info.machine_id, info.system_uuid, info.boot_id = machine.machine_id, machine.system_uuid, machine.boot_id
    info.kernel_version, info.os_image, info.architecture = machine.kernel, machine.os_image, machine.architecture
    info.operating_system = "linux"
    info.container_runtime_version = f"process://{version}"
    info.kubelet_version = f"rayched-{version}"
    set_conditions(node.status, (), ())
    return node


def set_conditions(status: NodeStatus, pressures: Collection[str], faults: Collection[str]) -> None:
    """Adds all four. `faults`: why the node is not ready; none: it is."""
    status.conditions.add(
        type="Ready",
        status="False" if faults else "True",
        reason="KubeletNotReady" if faults else "KubeletReady",
        message=", ".join(faults) or "kubelet is posting ready status",
    )
    for kind, (bad, good) in _PRESSURES.items():
        reason, message = bad if kind in pressures else good
        status.conditions.add(type=kind, status="True" if kind in pressures else "False", reason=reason, message=message)


def _quantity(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    return f"{amount >> 10}Ki" if resource in ("memory", "ephemeral-storage") and amount % 1024 == 0 else str(amount)
