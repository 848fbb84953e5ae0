"""What nodes and pods use now, as `kubectl top` asks for it: the group metrics.k8s.io, read only.

The figures are those of the nodes' agents (`rayched top`). A node that runs no pods, as a hollow one, has none, and is left out.

Source: NodeMetrics and PodMetrics of k8s.io/metrics 1.34.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rayched.api.kinds import NODE, POD, AnyObject
from rayched.api.moments import moment_text
from rayched.client.errors import ApiError
from rayched.gateway.calls import Document, GatewayAnswer, GatewayCall
from rayched.gateway.objects import listed
from rayched.gateway.queries import list_query
from rayched.gateway.served import METRICS_VERSION
from rayched.gateway.statuses import not_allowed, not_found, of_api_error
from rayched.v1.streams_pb2 import NodeUsage


async def serve(call: GatewayCall, method: str) -> GatewayAnswer:
    """Raises StatusFailure."""
    query = list_query(call.query)
    if method != "GET" or query.watch:
        raise not_allowed(method)
    kind, path = call.path.resource.kind, call.path
    objects = {_key(item): item for item in await listed(call, POD if kind.namespaced else NODE, path.namespace, query)}
    try:
        usage = await call.client.usage()
    except ApiError as error:
        raise of_api_error(error, call.subject) from None
    found = _pods(usage.nodes, objects, call.now) if kind.namespaced else _nodes(usage.nodes, objects, call.now)
    if not path.name:
        document = {"kind": f"{kind.name}List", "apiVersion": METRICS_VERSION, "metadata": {}, "items": found}
        return GatewayAnswer(200, document)
    for one in found:
        if one["metadata"]["name"] == path.name:
            return GatewayAnswer(200, {"kind": kind.name, "apiVersion": METRICS_VERSION, **one})
    raise not_found(call.subject)


def _key(item: AnyObject) -> tuple[str, str]:
    return item.metadata.namespace, item.metadata.name


def _nodes(nodes: Sequence[NodeUsage], objects: Mapping[tuple[str, str], AnyObject], now: float) -> list[Document]:
    return [
        _metrics(objects["", one.node], one, now) | {"usage": _usage(one.cpu_millis, one.memory_bytes)}
        for one in sorted(nodes, key=lambda one: one.node)
        if ("", one.node) in objects
    ]


def _pods(nodes: Sequence[NodeUsage], objects: Mapping[tuple[str, str], AnyObject], now: float) -> list[Document]:
    found = []
    for node in nodes:
        for pod in node.pods:
            item = objects.get((pod.namespace, pod.name))
            if item is not None and item.metadata.uid == pod.uid:
                containers = [{"name": one.name, "usage": _usage(one.cpu_millis, one.memory_bytes)} for one in pod.containers]
                found.append(_metrics(item, node, now) | {"containers": containers})
    return sorted(found, key=lambda one: (one["metadata"].get("namespace", ""), one["metadata"]["name"]))


def _metrics(item: AnyObject, node: NodeUsage, now: float) -> dict[str, Any]:
    at = moment_text(now)
    metadata: Document = {"name": item.metadata.name, "creationTimestamp": at, "labels": dict(item.metadata.labels)}
    if item.metadata.namespace:
        metadata["namespace"] = item.metadata.namespace
    return {"metadata": metadata, "timestamp": at, "window": f"{max(node.window_seconds, 0.001):.3f}s"}


def _usage(cpu_millis: int, memory_bytes: int) -> dict[str, str]:
    return {"cpu": f"{cpu_millis}m", "memory": f"{memory_bytes // 1024}Ki"}
