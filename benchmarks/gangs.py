"""Workloads of pod groups that need all of their members, and the same pods without groups to compare them with.

Members are alike and have no rules between each other. They come group after group.
"""

from __future__ import annotations

from typing import Final

from benchmarks import shapes
from benchmarks.workloads import INIT_NAMESPACE, MEASURED_NAMESPACE, Group, Workload
from rayched.v1.workloads_pb2 import PodGroup

SHAPE: Final = "default"
FIRST_PODS: Final = 100
"""Single pods that come before: what is worked out once for a template is not counted."""


def a_workload(nodes: int, pods: int, size: int) -> Workload:
    """So many pods on so many nodes, in gangs of `size`; 0: in none."""
    names = [f"measured-gang-{number}" for number in range(pods // size)] if size else []
    return Workload(
        name=f"Gangs{size}" if size else "GangsOfNone",
        nodes=nodes,
        init_pods=FIRST_PODS,
        measured_pods=pods,
        make_nodes=shapes.plain_nodes,
        init=(Group(SHAPE, (INIT_NAMESPACE,)),),
        measured=Group(SHAPE, (MEASURED_NAMESPACE,), gang=size),
        objects=tuple(_group(name, size) for name in names),
    )


def _group(name: str, size: int) -> PodGroup:
    group = PodGroup(api_version="scheduling.k8s.io/v1beta1", kind="PodGroup")
    group.metadata.namespace, group.metadata.name = MEASURED_NAMESPACE, name
    group.metadata.uid = f"{MEASURED_NAMESPACE}-{name}"
    group.spec.scheduling_policy.gang.min_count = size
    return group
