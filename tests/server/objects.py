"""Builders of small objects."""

from __future__ import annotations

from rayched.v1.core_pb2 import Namespace, Node, Pod
from rayched.v1.workloads_pb2 import PriorityClass, RuntimeClass


def a_pod(
    name: str = "web",
    *,
    namespace: str = "",
    labels: dict[str, str] | None = None,
    node: str = "",
    cpu: str = "100m",
    uid: str = "",
) -> Pod:
    pod = Pod()
    pod.metadata.name = name
    pod.metadata.namespace = namespace
    pod.metadata.uid = uid
    pod.metadata.labels.update(labels or {})
    container = pod.spec.containers.add(name="main", image="nginx:1")
    container.resources.requests["cpu"].string = cpu
    pod.spec.node_name = node
    return pod


def a_node(name: str, *, cpu: str = "4", labels: dict[str, str] | None = None) -> Node:
    node = Node()
    node.metadata.name = name
    node.metadata.labels.update(labels or {})
    for resource, amount in (("cpu", cpu), ("memory", "8Gi"), ("pods", "110")):
        node.status.capacity[resource].string = amount
        node.status.allocatable[resource].string = amount
    node.status.conditions.add(type="Ready", status="True", reason="AgentReady")
    return node


def a_namespace(name: str) -> Namespace:
    namespace = Namespace()
    namespace.metadata.name = name
    return namespace


def a_priority_class(name: str, value: int, *, is_default: bool = False) -> PriorityClass:
    found = PriorityClass(value=value, global_default=is_default)
    found.metadata.name = name
    return found


def a_runtime_class(name: str, **overhead: str) -> RuntimeClass:
    found = RuntimeClass(handler="runc")
    found.metadata.name = name
    for resource, amount in overhead.items():
        found.overhead.pod_fixed[resource].string = amount
    return found
