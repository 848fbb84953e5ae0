"""Nodes and pods for snapshot tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rayched.v1.core_pb2 import Node, Pod


def a_node(
    name: str,
    allocatable: Mapping[str, str] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[tuple[str, str, str]] = (),
    unschedulable: bool = False,
    images: Mapping[str, int] | None = None,
) -> Node:
    node = Node()
    node.metadata.name = name
    node.metadata.labels.update(labels or {})
    node.spec.unschedulable = unschedulable
    for key, value, effect in taints:
        node.spec.taints.add(key=key, value=value, effect=effect)
    for resource, text in (allocatable or {"cpu": "4", "memory": "8Gi", "pods": "110"}).items():
        node.status.allocatable[resource].string = text
    for image, size in (images or {}).items():
        node.status.images.add(names=[image], size_bytes=size)
    return node


def a_pod(
    requests: Mapping[str, str] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    ports: Iterable[tuple[str, int, str]] = (),
    name: str = "",
) -> Pod:
    pod = Pod()
    pod.metadata.namespace = "default"
    pod.metadata.name = name
    pod.metadata.labels.update(labels or {})
    container = pod.spec.containers.add(name="main", image="app")
    for resource, text in (requests or {}).items():
        container.resources.requests[resource].string = text
    for protocol, port, ip in ports:
        container.ports.add(protocol=protocol, host_port=port, host_ip=ip)
    return pod
