"""What calls are about: two namespaces, some pods and nodes, and the roles of the callers; put back again and again."""

from __future__ import annotations

from typing import Final

import grpc

from rayched.api.kinds import KINDS
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.shapes import NodeShape, hollow_nodes, ready_condition
from rayched.v1.core_pb2 import Namespace, Pod
from tests.fuzz.callers import Callers
from tests.fuzz.values import NAMESPACES, NODES, PODS

_KEPT: Final = frozenset({"default", "kube-system", "system-node-critical", "system-cluster-critical"})
_GONE: Final = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ABORTED)
_LAST: Final = ("Node", "Namespace")
"""Pods on a node that is gone would be somebody's to end."""


def restore(admin: Client, callers: Callers) -> None:
    """All that calls left is deleted, and what they are about is there again."""
    clear(admin)
    callers.revoke_others(admin)
    callers.bind(admin)
    place(admin)


def place(admin: Client) -> None:
    """What calls are about."""
    for name in NAMESPACES:
        admin.apply(Namespace(metadata={"name": name}))
    nodes = hollow_nodes(len(NODES), 2, NodeShape({"cpu": "16", "memory": "64Gi", "pods": "110"}, {}))
    for node in nodes:
        ready_condition(node.status)
        admin.register_node(node)
    for number, name in enumerate(PODS):
        pod = Pod(metadata={"name": name, "namespace": NAMESPACES[number % len(NAMESPACES)]})
        pod.spec.containers.add(name="main", image="image").resources.requests["cpu"].string = "10m"
        if number >= len(NAMESPACES):
            pod.spec.scheduling_gates.add(name="example.com/gate")
        try:
            admin.submit(pod)
        except ApiError as error:
            # One that has not ended yet serves as well.
            if error.code is not grpc.StatusCode.ALREADY_EXISTS:
                raise


def clear(admin: Client) -> None:
    """Deletes every object but those that a cluster begins with."""
    kinds = sorted(KINDS, key=lambda kind: kind.name in _LAST)
    for kind in kinds:
        for one in list(admin.list(kind.plural)):
            if one.metadata.name in _KEPT and not kind.namespaced:
                continue
            try:
                admin.delete(kind, one.metadata.name, one.metadata.namespace, grace_period_seconds=0)
            except ApiError as error:
                if error.code not in _GONE:
                    raise
