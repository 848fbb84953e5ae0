"""What stands on a node of Ray: the name of the rayched node there, what it offers to pods, its labels. Pure.

| Ray has | the node has |
|---|---|
| node id | name `ray-` and the first 12 characters of it: it stays while the node of Ray lives, whoever else shares the host |
| CPU | cpu: whole ones |
| memory | memory: whole KiB |
| GPU | nvidia.com/gpu: all of them, or none where Ray has given away some, as rayched counts devices and does not choose them |
| a resource NAME of the user's own | ray.io/NAME: whole ones |
| node:..., object_store_memory, accelerator_type:..., resources of placement groups | nothing: they are Ray's own |
| labels | the same, and topology.kubernetes.io/zone and region from ray.io/availability-zone and -region |

What Ray has given away already is not offered. What has no valid name, and labels that a node may not give itself, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rayched.api.names import label_value_fault, qualified_fault
from rayched.nodes.shapes import REGION_LABEL, ZONE_LABEL
from rayched.server.admission.node_rules import label_fault

CPU: Final = "cpu"
MEMORY: Final = "memory"
GPU: Final = "nvidia.com/gpu"
PREFIX: Final = "ray.io/"
_OF_RAY: Final = {CPU: "CPU", MEMORY: "memory", GPU: "GPU"}
_INTERNAL: Final = re.compile(r"node:.*|object_store_memory|accelerator_type:.*|.*_group_(?:\d+_)?[0-9a-f]{16,}", re.DOTALL)
_TOPOLOGY: Final = {"ray.io/availability-zone": ZONE_LABEL, "ray.io/availability-region": REGION_LABEL}
_MEMORY_MIN: Final = 256 << 20
"""Below it there is nothing for pods beside the agent and the threshold at which it evicts."""
_HAIR: Final = 1e-5
"""Ray counts in ten-thousandths, and tells them as floating point."""


def node_name(ray_id: str) -> str:
    return f"ray-{ray_id[:12]}"


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node that Ray says is alive. Amounts by Ray's names; memory in bytes."""

    id: str
    address: str
    total: Mapping[str, float]
    available: Mapping[str, float]
    labels: Mapping[str, str]

    @property
    def name(self) -> str:
        return node_name(self.id)


def living_nodes(records: list[dict[str, Any]], available: Mapping[str, Mapping[str, float]]) -> list[RayNode]:
    """`records` as ray.nodes() gives them, `available` by node id. One whose load Ray does not know yet is left out."""
    return [
        RayNode(
            record["NodeID"],
            record["NodeManagerAddress"],
            record["Resources"],
            available[record["NodeID"]],
            record.get("Labels") or {},
        )
        for record in records
        if record["Alive"] and record["NodeID"] in available
    ]


@dataclass(frozen=True, slots=True)
class RayNodeOffer:
    """`amounts` by rayched's names: CPUs, bytes, counts; none is 0. `left_out`: a line for each thing that is not offered."""

    name: str
    address: str
    amounts: Mapping[str, int]
    labels: Mapping[str, str]
    left_out: tuple[str, ...]
    lacks: str
    """Why no pod could run there now; empty: one can."""

    def reservation(self) -> dict[str, Any]:
        """Options of the actor that takes from Ray just what is offered."""
        own = {name.removeprefix(PREFIX): float(amount) for name, amount in self.amounts.items() if name.startswith(PREFIX)}
        found: dict[str, Any] = {"num_cpus": self.amounts.get(CPU, 0), "num_gpus": self.amounts.get(GPU, 0), "resources": own}
        if MEMORY in self.amounts:
            found["memory"] = self.amounts[MEMORY]
        return found

    def arguments(self) -> list[str]:
        """The same for `rayched node NAME`."""
        found = ["--address", self.address, "--cpu", str(self.amounts.get(CPU, 0))]
        for name, amount in self.amounts.items():
            if name == MEMORY:
                found += ["--memory", f"{amount >> 10}Ki"]
            elif name != CPU:
                found += ["--resource", f"{name}={amount}"]
        for key, label in self.labels.items():
            found += ["--label", f"{key}={label}"]
        return found

    def text(self) -> str:
        """For people."""
        return ", ".join(f"{name} {_text(name, amount)}" for name, amount in self.amounts.items())


def offer_of(node: RayNode, most: Mapping[str, int], before: Mapping[str, int] | None) -> RayNodeOffer:
    """`most`: what the user wants to give at most. `before`: the capacity that the node of this name had, if it is there: a node
    may come back with less of a thing and not with more. Both by rayched's names, as `amounts`."""
    amounts, left_out = _amounts(node)
    for name in amounts:
        amounts[name] = min(amounts[name], most.get(name, amounts[name]))
        if before is not None:
            amounts[name] = min(amounts[name], before.get(name, 0))
    labels, bad_labels = _labels(node)
    lacks = ""
    if amounts[CPU] < 1:
        lacks = "no whole CPU is free"
    elif MEMORY in amounts and amounts[MEMORY] < _MEMORY_MIN:
        lacks = f"{amounts[MEMORY] >> 20}Mi of memory are free, and a node takes {_MEMORY_MIN >> 20}Mi at least"
    kept = {name: amount for name, amount in amounts.items() if amount > 0}
    return RayNodeOffer(node.name, node.address, kept, labels, (*left_out, *bad_labels), lacks)


def _amounts(node: RayNode) -> tuple[dict[str, int], list[str]]:
    free, left_out = node.available, []
    found = {CPU: _whole(free.get("CPU", 0.0))}
    if node.total.get("memory", 0.0) > 0:
        found[MEMORY] = _whole(free.get("memory", 0.0)) >> 10 << 10
    gpus, free_gpus = _whole(node.total.get("GPU", 0.0)), _whole(free.get("GPU", 0.0))
    if gpus:
        found[GPU] = gpus if free_gpus == gpus else 0
        if free_gpus != gpus:
            left_out.append(f"{GPU}: Ray has given away {gpus - free_gpus} of {gpus}, and a pod could not tell which")
    for name in sorted(node.total):
        if name in _OF_RAY.values() or _INTERNAL.fullmatch(name):
            continue
        fault = qualified_fault(PREFIX + name)
        if fault is None:
            found[PREFIX + name] = _whole(free.get(name, 0.0))
        else:
            left_out.append(f"resource: {fault}")
    return found, left_out


def _labels(node: RayNode) -> tuple[dict[str, str], list[str]]:
    found, left_out = {}, []
    for key, label in sorted(node.labels.items()):
        fault = qualified_fault(key) or label_value_fault(label)
        # The rule for nodes has the whole sentence.
        fault = f"label {key}: {fault}" if fault else label_fault(key)
        if fault:
            left_out.append(fault)
        else:
            found[key] = label
    for key, topology in _TOPOLOGY.items():
        if key in found:
            found.setdefault(topology, found[key])
    return found, left_out


def _whole(amount: float) -> int:
    return int(amount + _HAIR)


def _text(name: str, amount: int) -> str:
    return f"{amount >> 20}Mi" if name == MEMORY else str(amount)
