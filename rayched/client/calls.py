"""The calls of the API as values: which RPC, with what request, and what its answer means. Pure.

The synchronous and the asynchronous client build the same calls here and differ in how they send them. Submissions get their uid
here, before the first attempt, so that repeating one is harmless.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import Message

from rayched.api.kinds import AnyObject, Kind, by_word, unwrap, wrap
from rayched.client.batches import batches
from rayched.client.errors import ApiError, outcome_error
from rayched.v1 import services_pb2 as messages
from rayched.v1.core_pb2 import Node, NodeStatus, Taint
from rayched.v1.workloads_pb2 import Object

NODES_A_HEARTBEAT: Final = 1_000
UPDATES_A_CALL: Final = 500

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """One unary call. `R` is what the caller gets."""

    name: str
    """As in "Submission.Submit"."""
    request: Message
    meaning: Callable[[Any], R] | None = None
    """What the response means; None: itself."""

    def result(self, response: Any) -> R:
        found: R = response if self.meaning is None else self.meaning(response)
        return found


# -------------------------------------------------------------------------------------------------------------- objects


def submit(item: AnyObject | Object, dry_run: bool) -> Call[messages.SubmitResponse]:
    return Call("Submission.Submit", messages.SubmitRequest(object=with_uid(item), dry_run=dry_run))


def apply(item: AnyObject | Object, dry_run: bool) -> Call[messages.ApplyResponse]:
    return Call("Submission.Apply", messages.ApplyRequest(object=as_object(item), dry_run=dry_run))


def get(kind: str | Kind, name: str, namespace: str) -> Call[AnyObject]:
    request = messages.GetRequest(key=key_of(kind, name, namespace))
    return Call("Submission.Get", request, lambda response: unwrap(response.object))


def delete(
    kind: str | Kind, name: str, namespace: str, uid: str, grace_period_seconds: int | None
) -> Call[messages.DeleteResponse]:
    """Bound to a uid by pinned.py."""
    key = key_of(kind, name, namespace)
    request = messages.DeleteRequest(key=key, uid=uid, grace_period_seconds=grace_period_seconds)
    return Call("Submission.Delete", request)


def evict(
    name: str, namespace: str, uid: str, resource_version: str, grace_period_seconds: int | None, dry_run: bool
) -> Call[messages.EvictResponse]:
    """Bound to a uid by pinned.py."""
    request = messages.EvictRequest(
        namespace=namespace,
        name=name,
        uid=uid,
        resource_version=resource_version,
        grace_period_seconds=grace_period_seconds,
        dry_run=dry_run,
    )
    return Call("Eviction.Evict", request)


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects as of one revision; a watch from `revision` + 1 misses nothing."""

    objects: tuple[AnyObject, ...]
    revision: int


def listing_of(pages: Sequence[messages.ListResponse]) -> Listing:
    """All pages of one list, put together."""
    return Listing(tuple(unwrap(item) for page in pages for item in page.objects), pages[0].revision)


def list_request(
    kind: str | Kind, namespace: str, label_selector: str, field_selector: str, limit: int = 0, revision: int = 0
) -> messages.ListRequest:
    found = _kind(kind)
    return messages.ListRequest(
        kind=found.name,
        namespace=namespace if found.namespaced else "",
        label_selector=label_selector,
        field_selector=field_selector,
        limit=limit,
        revision=revision,
    )


def has_next_page(request: messages.ListRequest, page: messages.ListResponse) -> bool:
    """Whether the list goes on; then the request is that for its next page."""
    token = getattr(page, "continue")
    setattr(request, "continue", token)
    return bool(token)


def watch_request(
    kind: str | Kind | None, namespace: str, label_selector: str, field_selector: str, start_revision: int
) -> messages.WatchRequest:
    found = _kind(kind) if kind is not None else None
    if found is None and not start_revision:
        raise ValueError("a watch of all kinds needs a start_revision, for example that of a list")
    return messages.WatchRequest(
        kind=found.name if found else "",
        namespace=namespace if found is None or found.namespaced else "",
        label_selector=label_selector,
        field_selector=field_selector,
        start_revision=start_revision,
    )


# ---------------------------------------------------------------------------------------------------------------- nodes


def register_node(node: Node) -> Call[messages.RegisterNodeResponse]:
    return Call("Nodes.Register", messages.RegisterNodeRequest(node=node))


def heartbeats(nodes: Sequence[str]) -> Iterator[Call[tuple[str, ...]]]:
    """The nodes that do not exist, call by call."""
    for start in range(0, len(nodes), NODES_A_HEARTBEAT):
        request = messages.HeartbeatRequest(nodes=nodes[start : start + NODES_A_HEARTBEAT])
        yield Call("Nodes.Heartbeat", request, lambda response: tuple(response.unknown))


def update_node_status(name: str, status: NodeStatus) -> Call[messages.UpdateNodeStatusResponse]:
    return Call("Nodes.UpdateNodeStatus", messages.UpdateNodeStatusRequest(name=name, status=status))


def update_pod_statuses(updates: Iterable[messages.PodStatusUpdate]) -> Iterator[Call[tuple[ApiError | None, ...]]]:
    """One outcome for each update, in order, call by call."""
    for batch in batches(updates, UPDATES_A_CALL):
        request = messages.UpdatePodStatusRequest(updates=batch)
        yield Call("Nodes.UpdatePodStatus", request, lambda response: tuple(map(outcome_error, response.outcomes)))


# ---------------------------------------------------------------------------------------------------------------- admin


def cordon(node: str, unschedulable: bool) -> Call[messages.CordonResponse]:
    return Call("Admin.Cordon", messages.CordonRequest(node=node, unschedulable=unschedulable))


def taint(node: str, add: Iterable[Taint], remove: Iterable[Taint], overwrite: bool) -> Call[messages.TaintResponse]:
    return Call("Admin.Taint", messages.TaintRequest(node=node, add=add, remove=remove, overwrite=overwrite))


def label(
    kind: str | Kind, name: str, namespace: str, add: Mapping[str, str] | None, remove: Iterable[str], overwrite: bool
) -> Call[messages.LabelResponse]:
    key = key_of(kind, name, namespace)
    return Call("Admin.Label", messages.LabelRequest(key=key, set=add or {}, remove=remove, overwrite=overwrite))


# ----------------------------------------------------------------------------------------------- leadership, scheduling


def leader() -> Call[messages.GetLeaderResponse]:
    return Call("Leadership.GetLeader", messages.GetLeaderRequest())


def scheduler_status() -> Call[messages.GetSchedulerStatusResponse]:
    return Call("Scheduling.GetSchedulerStatus", messages.GetSchedulerStatusRequest())


def queue(namespace: str, name: str, limit: int) -> Call[messages.ListQueueResponse]:
    return Call("Scheduling.ListQueue", messages.ListQueueRequest(namespace=namespace, name=name, limit=limit))


def explain(name: str, namespace: str, nodes: Iterable[str], limit: int) -> Call[messages.ExplainResponse]:
    request = messages.ExplainRequest(namespace=namespace, name=name, nodes=nodes, limit=limit)
    return Call("Scheduling.Explain", request)


def plan_basis() -> Call[messages.GetPlanBasisResponse]:
    return Call("Scheduling.GetPlanBasis", messages.GetPlanBasisRequest())


# -------------------------------------------------------------------------------------------------------------- objects


def key_of(kind: str | Kind, name: str, namespace: str) -> messages.ObjectKey:
    found = _kind(kind)
    return messages.ObjectKey(kind=found.name, namespace=namespace if found.namespaced else "", name=name)


def as_object(item: AnyObject | Object) -> Object:
    """A copy."""
    if not isinstance(item, Object):
        return wrap(item)
    copy = Object()
    copy.CopyFrom(item)
    return copy


def with_uid(item: AnyObject | Object) -> Object:
    """A copy whose uid is there."""
    copy = as_object(item)
    if copy.WhichOneof("kind") is not None:
        metadata = unwrap(copy).metadata
        metadata.uid = metadata.uid or new_uid()
    return copy


def new_uid() -> str:
    """A random UUID, version 4."""
    return str(uuid.uuid4())


def _kind(kind: str | Kind) -> Kind:
    return by_word(kind) if isinstance(kind, str) else kind
