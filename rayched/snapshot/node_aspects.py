"""What scheduling reads of a node object, ready to compare with what the node said before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rayched.api import quantity
from rayched.snapshot.images import ReportedImages, reported_images
from rayched.snapshot.table import TaintKey, clipped
from rayched.v1.core_pb2 import Node


@dataclass(slots=True)
class NodeAspects:
    """Changed in place where a node changes."""

    allocatable: Mapping[str, int]
    """Milli-CPU, bytes or counts."""
    labels: Mapping[str, str]
    taints: TaintKey
    unschedulable: bool
    images: ReportedImages

    @classmethod
    def of(cls, node: Node) -> NodeAspects:
        return cls(
            allocatable=allocatable_of(node),
            labels=dict(node.metadata.labels),
            taints=taints_of(node),
            unschedulable=node.spec.unschedulable,
            images=reported_images(node),
        )


def allocatable_of(node: Node) -> dict[str, int]:
    """Milli-CPU, bytes or counts."""
    return {
        name: clipped(quantity.milli_value(amount.string) if name == "cpu" else quantity.value(amount.string))
        for name, amount in node.status.allocatable.items()
    }


def taints_of(node: Node) -> TaintKey:
    return tuple((taint.key, taint.value, taint.effect) for taint in node.spec.taints)
