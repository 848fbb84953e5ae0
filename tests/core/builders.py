"""Objects for the tests of this room, as the API stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rayched.api import kinds
from rayched.store.codec import encode
from rayched.v1.core_pb2 import Node, Pod


def a_node(
    name: str, *, cpu: str = "4", pods: str = "110", unschedulable: bool = False, labels: Mapping[str, str] | None = None
) -> Node:
    node = Node()
    node.metadata.name = name
    node.metadata.uid = f"uid-{name}"
    node.metadata.labels["kubernetes.io/hostname"] = name
    node.metadata.labels.update(labels or {})
    node.spec.unschedulable = unschedulable
    for resource, amount in (("cpu", cpu), ("memory", "64Gi"), ("pods", pods)):
        node.status.allocatable[resource].string = amount
        node.status.capacity[resource].string = amount
    return node


def a_pod(
    name: str,
    *,
    cpu: str = "1",
    priority: int = 0,
    uid: str = "",
    scheduler: str = "default-scheduler",
    gates: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    selector: Mapping[str, str] | None = None,
) -> Pod:
    pod = Pod()
    pod.metadata.namespace = "default"
    pod.metadata.name = name
    pod.metadata.uid = uid or f"uid-{name}"
    pod.metadata.labels.update(labels or {})
    pod.spec.scheduler_name = scheduler
    pod.spec.priority = priority
    pod.spec.node_selector.update(selector or {})
    for gate in gates:
        pod.spec.scheduling_gates.add(name=gate)
    container = pod.spec.containers.add(name="main", image="registry.example/app:1")
    container.resources.requests["cpu"].string = cpu
    container.resources.requests["memory"].string = "64Mi"
    pod.status.phase = "Pending"
    return pod


def stored(message: Pod | Node) -> bytes:
    return encode(kinds.wrap(message))
