"""What the page asks for one by one: the queue, a pod and its decision, a node, nodes by a selector, the replicas.

Answers have a size of their own, whatever the cluster's: of a decision the nodes with the highest totals are told one by one, all
feasible ones by how many have a total, and the rejected ones by plugin and reason.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from rayched.api.columns import node_status, pod_status
from rayched.api.resources import CPU, MEMORY, accounted_requests
from rayched.api.termination import FINAL_PHASES
from rayched.client.async_client import AsyncClient
from rayched.client.errors import ApiError
from rayched.page.recent_events import plain_event
from rayched.v1.core_pb2 import Event, Node, Pod
from rayched.v1.services_pb2 import ExplainResponse, NodeVerdict, PastDecision, PendingPod, ReplicaState

QUEUE_ROWS_MAX: Final = 500
_QUEUE_ASKED: Final = 2_000
VERDICTS_MAX: Final = 200
NAMES_MAX: Final = 5_000
"""Of nodes, in one answer."""
EVENTS_MAX: Final = 50
PODS_MAX: Final = 500
_REPLICA_SECONDS: Final = 2.0


async def queue(client: AsyncClient, namespace: str) -> dict[str, Any]:
    """The pods that wait, and by which plugins they are held."""
    found = await client.queue(namespace=namespace, limit=_QUEUE_ASKED)
    held = Counter(plugin for pod in found.pods for plugin in pod.held_by)
    return {
        "total": found.total,
        "counted": len(found.pods),
        "counts": {name: int(count) for name, count in found.counts.items()},
        "held": held.most_common(),
        "pods": [_pending(pod) for pod in found.pods[:QUEUE_ROWS_MAX]],
    }


async def pod(client: AsyncClient, namespace: str, name: str) -> dict[str, Any]:
    """The pod, its Events, and its place in the queue where it has one."""
    found = await client.get(Pod, name, namespace)
    about = f"involvedObject.kind=Pod,involvedObject.name={name}"
    events = [item async for item in client.list(Event, namespace=namespace, field_selector=about)]
    events = [item for item in events if item.involved_object.uid in ("", found.metadata.uid)]
    waits = not found.spec.node_name and found.status.phase not in FINAL_PHASES
    waiting = await _waiting(client, namespace, name) if waits else None
    metadata, status = found.metadata, found.status
    terminated = [one.state.terminated for one in status.container_statuses if one.state.HasField("terminated")]
    ends = [_seconds(state.finished_at) for state in terminated if state.HasField("finished_at")]
    return {
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": metadata.uid,
        "status": pod_status(found),
        "phase": status.phase or "Pending",
        "node": found.spec.node_name,
        "priority": found.spec.priority,
        "scheduler": found.spec.scheduler_name,
        "labels": dict(sorted(metadata.labels.items())),
        "created": _seconds(metadata.creation_timestamp),
        "started": _seconds(status.start_time) if status.HasField("start_time") else None,
        "ended": max(ends) if ends and status.phase in FINAL_PHASES else None,
        "deleted": _seconds(metadata.deletion_timestamp) if metadata.HasField("deletion_timestamp") else None,
        "conditions": [
            {
                "type": one.type,
                "status": one.status,
                "reason": one.reason,
                "message": one.message,
                "at": _seconds(one.last_transition_time) if one.HasField("last_transition_time") else None,
            }
            for one in status.conditions
        ],
        "events": [plain_event(item) for item in sorted(events, key=lambda item: item.last_timestamp.seconds)[-EVENTS_MAX:]],
        "waiting": None if waiting is None else _pending(waiting),
    }


async def explanation(client: AsyncClient, namespace: str, name: str) -> dict[str, Any]:
    """What would be decided now, and the pod's last attempt as it was."""
    return plain_explanation(await client.explain(name, namespace))


def plain_explanation(found: ExplainResponse) -> dict[str, Any]:
    feasible = [verdict for verdict in found.verdicts if not verdict.rejections]
    rejected = [verdict for verdict in found.verdicts if verdict.rejections]
    return {
        "revision": found.revision,
        "node": found.node,
        "nominated": found.nominated_node,
        "rejected": found.rejected,
        "nodes": found.nodes,
        "feasible": found.feasible,
        "best": list(found.best[:NAMES_MAX]),
        "ties": len(found.best),
        "decisions": found.decisions,
        "seconds": found.seconds,
        "totals": sorted(Counter(verdict.total for verdict in feasible).items(), reverse=True),
        "verdicts": _with_chosen(feasible, found.node),
        "rejections": _by_reason(rejected),
        "decision": _past(found.decision) if found.HasField("decision") else None,
    }


async def node(client: AsyncClient, name: str) -> dict[str, Any]:
    """The node, and the pods on it."""
    found = await client.get(Node, name)
    pods = [item async for item in client.list(Pod, field_selector=f"spec.nodeName={name}")]
    pods = sorted((item for item in pods if item.status.phase not in FINAL_PHASES), key=lambda item: -item.spec.priority)
    return {
        "name": name,
        "status": node_status(found),
        "labels": dict(sorted(found.metadata.labels.items())),
        "taints": [{"key": one.key, "value": one.value, "effect": one.effect} for one in found.spec.taints],
        "allocatable": {resource: amount.string for resource, amount in sorted(found.status.allocatable.items())},
        "conditions": [
            {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
            for one in found.status.conditions
        ],
        "count": len(pods),
        "pods": [_on_node(item) for item in pods[:PODS_MAX]],
    }


async def selected(client: AsyncClient, selector: str) -> dict[str, Any]:
    """Names of the nodes that a label selector selects."""
    names = [item.metadata.name async for item in client.list(Node, label_selector=selector)]
    return {"selector": selector, "count": len(names), "names": names[:NAMES_MAX]}


async def replicas(endpoints: Iterable[str], client_of: Callable[[str], AsyncClient]) -> dict[str, Any]:
    """Each replica that the gateway knows, as it says of itself; `lag`: revisions behind the one that has seen the most."""
    found = await asyncio.gather(*(_replica(endpoint, client_of(endpoint)) for endpoint in endpoints))
    newest = max((one.get("revision", 0) for one in found), default=0)
    return {"replicas": [one | {"lag": newest - one["revision"]} if "revision" in one else one for one in found]}


async def _replica(endpoint: str, client: AsyncClient) -> dict[str, Any]:
    began = time.monotonic()
    try:
        found = await client.leader(timeout_seconds=_REPLICA_SECONDS)
    except ApiError as error:
        return {"endpoint": endpoint, "error": str(error)}
    return {
        "endpoint": endpoint,
        "name": found.answered_by,
        "version": found.version,
        "role": "leads" if found.holder == found.answered_by else "stands by" if found.stands_for_election else "does not stand",
        "leader": found.holder,
        "epoch": found.epoch,
        "milliseconds": round((time.monotonic() - began) * 1000, 1),
        "problems": list(found.problems),
        **(_state(found.replica) if found.HasField("replica") else {}),
    }


def _state(found: ReplicaState) -> dict[str, Any]:
    return {
        "revision": found.revision,
        "memory": found.memory_bytes,
        "certificate_seconds_left": found.certificate_seconds_left if found.HasField("certificate_seconds_left") else None,
        "fenced": sum(found.fenced_writes.values()),
    }


async def _waiting(client: AsyncClient, namespace: str, name: str) -> PendingPod | None:
    """The pod's place in the queue; None: it is in none, for it is just being decided about."""
    try:
        pods = (await client.queue(namespace=namespace, name=name, limit=1)).pods
    except ApiError as error:
        if error.code is grpc.StatusCode.NOT_FOUND:
            return None
        raise
    return pods[0] if pods else None


def _pending(found: PendingPod) -> dict[str, Any]:
    return {
        "position": found.position,
        "namespace": found.namespace,
        "name": found.name,
        "queue": found.queue,
        "priority": found.priority,
        "attempts": found.attempts,
        "held_by": list(found.held_by),
        "would_wake": list(found.would_wake),
        "since": found.since_seconds,
        "tried_in": found.tried_in_seconds if found.HasField("tried_in_seconds") else None,
        "gating": list(found.gating_reasons),
        "nominated": found.nominated_node_name,
        "scheduler": found.scheduler_name,
    }


def _with_chosen(feasible: list[NodeVerdict], chosen: str) -> list[dict[str, Any]]:
    """The best ones, and in any case that of the pod's own node."""
    shown = feasible[:VERDICTS_MAX]
    shown += [verdict for verdict in feasible[VERDICTS_MAX:] if verdict.node == chosen]
    return [
        {
            "node": verdict.node,
            "total": verdict.total,
            "scores": [[one.plugin, one.weight, one.normalized, one.weighted] for one in verdict.scores],
        }
        for verdict in shown
    ]


def _by_reason(rejected: list[NodeVerdict]) -> list[dict[str, Any]]:
    """Nodes by the first plugin that rejects them and its reasons; sums to the rejected nodes."""
    groups: dict[tuple[str, str, bool], list[str]] = {}
    for verdict in rejected:
        first = verdict.rejections[0]
        groups.setdefault((first.plugin, "; ".join(first.reasons), first.resolvable), []).append(verdict.node)
    room = NAMES_MAX
    found = []
    for (plugin, reason, resolvable), names in sorted(groups.items(), key=lambda group: -len(group[1])):
        told, room = names[:room], max(0, room - len(names))
        found.append({"plugin": plugin, "reason": reason, "resolvable": resolvable, "count": len(names), "nodes": told})
    return found


def _past(found: PastDecision) -> dict[str, Any]:
    return {
        "revision": found.revision,
        "number": found.number,
        "node": found.node,
        "ties": found.ties,
        "best": [[one.node, one.total if one.HasField("total") else None] for one in found.best],
        "rejections": dict(found.rejections),
        "nodes": found.nodes,
        "message": found.message,
        "nominated": found.nominated_node,
        "victims": found.victims,
        "seconds": found.seconds,
    }


def _on_node(found: Pod) -> dict[str, Any]:
    requests = accounted_requests(found)
    return {
        "namespace": found.metadata.namespace,
        "name": found.metadata.name,
        "priority": found.spec.priority,
        "status": pod_status(found),
        "cpu": requests.get(CPU, 0),
        "memory": requests.get(MEMORY, 0),
    }


def _seconds(moment: Timestamp) -> float:
    """Unix seconds."""
    return moment.seconds + moment.nanos / 1e9
