"""Pods and nodes in one line, as manifests would describe them. Whatever is not named is as small as it can be.

What is returned is an ordinary message: set on it what has no argument here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rayched.nodes.shapes import HOSTNAME_LABEL, ZONE_LABEL
from rayched.v1.core_pb2 import Node, Pod


def a_pod(
    name: str = "pod",
    *,
    namespace: str = "default",
    cpu: str = "100m",
    memory: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    node_selector: Mapping[str, str] | None = None,
    priority_class: str = "",
    scheduler_name: str = "",
    node_name: str = "",
    tolerates: Sequence[str] = (),
    **requests: str,
) -> Pod:
    """A pod with one container. `tolerates`: keys of taints. `requests`: further resources, as in `**{"intel.com/foo": "1"}`.

    With `node_name` it is bound already.
    """
    pod = Pod(api_version="v1", kind="Pod")
    pod.metadata.name, pod.metadata.namespace = name, namespace
    pod.metadata.labels.update(labels or {})
    pod.metadata.annotations.update(annotations or {})
    pod.spec.node_selector.update(node_selector or {})
    pod.spec.priority_class_name = priority_class
    pod.spec.scheduler_name = scheduler_name
    pod.spec.node_name = node_name
    for key in tolerates:
        pod.spec.tolerations.add(key=key, operator="Exists")
    container = pod.spec.containers.add(name="main", image="registry.example/main:1")
    for resource, amount in {"cpu": cpu, "memory": memory, **requests}.items():
        if amount:
            container.resources.requests[resource].string = amount
    return pod


def a_node(
    name: str = "node",
    *,
    cpu: str = "8",
    memory: str = "32Gi",
    pods: str = "110",
    zone: str = "",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    unschedulable: bool = False,
    **resources: str,
) -> Node:
    """A node that is ready. `taints`: as on the command line, `key=value:NoSchedule` or `key:NoSchedule`."""
    node = Node(api_version="v1", kind="Node")
    node.metadata.name = name
    node.metadata.labels[HOSTNAME_LABEL] = name
    if zone:
        node.metadata.labels[ZONE_LABEL] = zone
    node.metadata.labels.update(labels or {})
    node.spec.unschedulable = unschedulable
    for text in taints:
        assignment, colon, effect = text.rpartition(":")
        if not colon:
            raise ValueError(f"taint {text!r} of node {name}: want key=value:effect or key:effect")
        key, _, value = assignment.partition("=")
        node.spec.taints.add(key=key, value=value, effect=effect)
    for resource, amount in {"cpu": cpu, "memory": memory, "pods": pods, **resources}.items():
        node.status.capacity[resource].string = amount
        node.status.allocatable[resource].string = amount
    node.status.conditions.add(type="Ready", status="True", reason="KubeletReady")
    return node
