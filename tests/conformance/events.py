"""Changes of a cluster, as recorded cases write them down, as events with the object before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rayched.api.node_difference import node_difference
from rayched.framework.cluster_event import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    Action,
    ClusterEvent,
    Resource,
)
from rayched.queue.changes import node_change_events, pod_change_events
from rayched.v1.core_pb2 import Node, Pod
from tests.conformance.cases import node_of, pod_of


@dataclass(frozen=True, slots=True)
class Occurrence:
    """What happened: the events of one change, and the objects."""

    events: tuple[ClusterEvent, ...]
    old: Pod | Node | None = None
    new: Pod | Node | None = None


def occurrence(op: dict[str, Any], admission: bool) -> Occurrence:
    """Raises KeyError for an operation that is no change of the cluster."""
    match op["op"]:
        case "nodeAdd":
            return Occurrence((NODE_ADD,), new=node_of(op["node"]))
        case "nodeDelete":
            return Occurrence((NODE_DELETE,), old=node_of(op["node"]))
        case "nodeUpdate":
            before, after = node_of(op["oldNode"]), node_of(op["node"])
            return Occurrence(node_change_events(node_difference(before, after)), before, after)
        case "assignedPodAdd":
            return Occurrence((ASSIGNED_POD_ADD,), new=pod_of(op["pod"], admission))
        case "assignedPodDelete":
            return Occurrence((ASSIGNED_POD_DELETE,), old=pod_of(op["pod"], admission))
        case "assignedPodUpdate" | "update":
            old, new = pod_of(op["oldPod"], admission), pod_of(op["pod"], admission)
            return Occurrence(pod_change_events(old, new), old, new)
        case "event":
            event = ClusterEvent(Resource(op["resource"]), action_of(op["actionType"]), op.get("customLabel", ""))
            node, old_node = op.get("node"), op.get("oldNode")
            return Occurrence((event,), old_node and node_of(old_node), node and node_of(node))
        case other:
            raise KeyError(f"unknown operation {other!r}")


def action_of(text: str) -> Action:
    """The actions of a recorded text: one, or several with bars between them."""
    by_name = {str(one.name).replace("_", "").lower(): one for one in (*Action, Action.UPDATE, Action.ALL)}
    found = Action(0)
    for part in text.split("|"):
        found |= by_name[part.strip().lower()]
    return found
