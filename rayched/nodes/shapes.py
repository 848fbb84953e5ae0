"""Hollow nodes as manifests: how many, how large, in which zones, with which labels.

Node i is `<prefix>-<i>`, of zone i modulo the number of zones. Every third node of a zone has a solid-state disk (label
`disktype`), so that the examples have something to choose from in each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rayched.api import names
from rayched.api.agents import AGENT_ANNOTATION, HOLLOW
from rayched.v1.core_pb2 import Node, NodeStatus

ZONE_LABEL = names.ZONE_LABEL
REGION_LABEL = names.REGION_LABEL
HOSTNAME_LABEL = "kubernetes.io/hostname"
_SOLID_STATE_EVERY = 3


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What each node offers; quantities as in a manifest."""

    resources: Mapping[str, str] = field(default_factory=lambda: {"cpu": "16", "memory": "64Gi", "pods": "110"})
    labels: Mapping[str, str] = field(default_factory=dict)


def hollow_nodes(count: int, zones: int, shape: NodeShape, prefix: str = "node") -> list[Node]:
    """`count` nodes spread over zone-a, zone-b, ...; zones 0: nodes without a zone."""
    width = max(3, len(str(count - 1)))
    return [_node(f"{prefix}-{number:0{width}}", number, zones, shape) for number in range(count)]


def wants_hollow_agent(node: Node) -> bool:
    return node.metadata.annotations.get(AGENT_ANNOTATION) == HOLLOW


def ready_condition(status: NodeStatus) -> None:
    """Adds what an agent says of a node that is well: all conditions that become Unknown when it is not heard of."""
    status.conditions.add(type="Ready", status="True", reason="KubeletReady", message="hollow node is posting ready status")
    for kind, what in (
        ("MemoryPressure", "SufficientMemory"),
        ("DiskPressure", "NoDiskPressure"),
        ("PIDPressure", "SufficientPID"),
    ):
        status.conditions.add(type=kind, status="False", reason=f"KubeletHas{what}", message="hollow node runs nothing")
    status.node_info.operating_system = "linux"
    status.node_info.kubelet_version = HOLLOW


def zone_name(number: int) -> str:
    """zone-a to zone-z, then zone-27 and so on."""
    return f"zone-{chr(ord('a') + number)}" if number < 26 else f"zone-{number + 1}"


def _node(name: str, number: int, zones: int, shape: NodeShape) -> Node:
    node = Node(api_version="v1", kind="Node")
    node.metadata.name = name
    labels = node.metadata.labels
    labels[HOSTNAME_LABEL] = name
    labels["disktype"] = "ssd" if number // max(zones, 1) % _SOLID_STATE_EVERY == 0 else "hdd"
    if zones:
        labels[ZONE_LABEL] = zone_name(number % zones)
        labels[REGION_LABEL] = "region-1"
    for key, label in shape.labels.items():
        labels[key] = label
    for resource, quantity in shape.resources.items():
        node.status.capacity[resource].string = quantity
        node.status.allocatable[resource].string = quantity
    ready_condition(node.status)
    return node
