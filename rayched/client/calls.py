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

from rayched.api.kinds import AnyObject, Kind, by_message, by_word, unwrap, wrap
from rayched.client.batches import batches
from rayched.client.errors import ApiError, outcome_error
from rayched.v1 import access_pb2 as access
from rayched.v1 import services_pb2 as messages
from rayched.v1.core_pb2 import Node, NodeStatus, Taint
from rayched.v1.workloads_pb2 import Object

NODES_A_HEARTBEAT: Final = 1_000
UPDATES_A_CALL: Final = 500

R = TypeVar("R")
AnyKind = str | Kind | type[AnyObject]
"""A kind by a word for it, as the table has it, or by the class of its messages."""


@dataclass(frozen=True, slots=True)
class UnaryCall(Generic[R]):
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


def submit(item: AnyObject | Object, dry_run: bool) -> UnaryCall[messages.SubmitResponse]:
    return UnaryCall("Submission.Submit", messages.SubmitRequest(object=with_uid(item), dry_run=dry_run))


def apply(item: AnyObject | Object, dry_run: bool) -> UnaryCall[messages.ApplyResponse]:
    return UnaryCall("Submission.Apply", messages.ApplyRequest(object=as_object(item), dry_run=dry_run))


def update(item: AnyObject | Object, dry_run: bool) -> UnaryCall[messages.ApplyResponse]:
    request = messages.ApplyRequest(object=as_object(item), dry_run=dry_run, replace=True)
    return UnaryCall("Submission.Apply", request)


def get(kind: AnyKind, name: str, namespace: str) -> UnaryCall[AnyObject]:
    request = messages.GetRequest(key=key_of(kind, name, namespace))
    return UnaryCall("Submission.Get", request, lambda response: unwrap(response.object))


def delete(
    kind: AnyKind, name: str, namespace: str, uid: str, grace_period_seconds: int | None
) -> UnaryCall[messages.DeleteResponse]:
    """Bound to a uid by pinned.py."""
    key = key_of(kind, name, namespace)
    request = messages.DeleteRequest(key=key, uid=uid, grace_period_seconds=grace_period_seconds)
    return UnaryCall("Submission.Delete", request)


def evict(
    name: str, namespace: str, uid: str, resource_version: str, grace_period_seconds: int | None, dry_run: bool
) -> UnaryCall[messages.EvictResponse]:
    """Bound to a uid by pinned.py."""
    request = messages.EvictRequest(
        namespace=namespace,
        name=name,
        uid=uid,
        resource_version=resource_version,
        grace_period_seconds=grace_period_seconds,
        dry_run=dry_run,
    )
    return UnaryCall("Eviction.Evict", request)


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects as of one revision; a watch from `revision` + 1 misses nothing."""

    objects: tuple[AnyObject, ...]
    revision: int


def listing_of(pages: Sequence[messages.ListResponse]) -> Listing:
    """All pages of one list, put together."""
    return Listing(tuple(unwrap(item) for page in pages for item in page.objects), pages[0].revision)


def list_request(
    kind: AnyKind, namespace: str, label_selector: str, field_selector: str, limit: int = 0, revision: int = 0
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
    kind: AnyKind | None, namespace: str, label_selector: str, field_selector: str, start_revision: int
) -> messages.WatchRequest:
    if kind is None and not start_revision:
        raise ValueError("a watch of all kinds needs a start_revision, for example that of a list")
    return _watch_request(kind, namespace, label_selector, field_selector, start_revision)


def cached_request(kind: AnyKind | None, namespace: str, label_selector: str, field_selector: str) -> messages.WatchRequest:
    """A watch from the present on, of all kinds too."""
    return _watch_request(kind, namespace, label_selector, field_selector, 0)


def _watch_request(
    kind: AnyKind | None, namespace: str, label_selector: str, field_selector: str, start_revision: int
) -> messages.WatchRequest:
    found = _kind(kind) if kind is not None else None
    return messages.WatchRequest(
        kind=found.name if found else "",
        namespace=namespace if found is None or found.namespaced else "",
        label_selector=label_selector,
        field_selector=field_selector,
        start_revision=start_revision,
    )


# ---------------------------------------------------------------------------------------------------------------- nodes


def register_node(node: Node) -> UnaryCall[messages.RegisterNodeResponse]:
    return UnaryCall("Nodes.Register", messages.RegisterNodeRequest(node=node))


def heartbeats(nodes: Sequence[str]) -> Iterator[UnaryCall[tuple[str, ...]]]:
    """The nodes that do not exist, call by call."""
    for start in range(0, len(nodes), NODES_A_HEARTBEAT):
        request = messages.HeartbeatRequest(nodes=nodes[start : start + NODES_A_HEARTBEAT])
        yield UnaryCall("Nodes.Heartbeat", request, lambda response: tuple(response.unknown))


def update_node_status(name: str, status: NodeStatus) -> UnaryCall[messages.UpdateNodeStatusResponse]:
    return UnaryCall("Nodes.UpdateNodeStatus", messages.UpdateNodeStatusRequest(name=name, status=status))


def update_pod_statuses(updates: Iterable[messages.PodStatusUpdate]) -> Iterator[UnaryCall[tuple[ApiError | None, ...]]]:
    """One outcome for each update, in order, call by call."""
    for batch in batches(updates, UPDATES_A_CALL):
        request = messages.UpdatePodStatusRequest(updates=batch)
        yield UnaryCall("Nodes.UpdatePodStatus", request, lambda response: tuple(map(outcome_error, response.outcomes)))


# ---------------------------------------------------------------------------------------------------------------- admin


def cordon(node: str, unschedulable: bool) -> UnaryCall[messages.CordonResponse]:
    return UnaryCall("Admin.Cordon", messages.CordonRequest(node=node, unschedulable=unschedulable))


def taint(node: str, add: Iterable[Taint], remove: Iterable[Taint], overwrite: bool) -> UnaryCall[messages.TaintResponse]:
    return UnaryCall("Admin.Taint", messages.TaintRequest(node=node, add=add, remove=remove, overwrite=overwrite))


def label(
    kind: AnyKind, name: str, namespace: str, add: Mapping[str, str] | None, remove: Iterable[str], overwrite: bool
) -> UnaryCall[messages.LabelResponse]:
    key = key_of(kind, name, namespace)
    return UnaryCall("Admin.Label", messages.LabelRequest(key=key, set=add or {}, remove=remove, overwrite=overwrite))


def scale(
    kind: AnyKind, name: str, namespace: str, replicas: int, current_replicas: int | None
) -> UnaryCall[messages.ScaleResponse]:
    key = key_of(kind, name, namespace)
    return UnaryCall("Admin.Scale", messages.ScaleRequest(key=key, replicas=replicas, current_replicas=current_replicas))


# ----------------------------------------------------------------------------------------------- leadership, scheduling


def leader() -> UnaryCall[messages.GetLeaderResponse]:
    return UnaryCall("Leadership.GetLeader", messages.GetLeaderRequest())


def scheduler_status() -> UnaryCall[messages.GetSchedulerStatusResponse]:
    return UnaryCall("Scheduling.GetSchedulerStatus", messages.GetSchedulerStatusRequest())


def queue(namespace: str, name: str, limit: int) -> UnaryCall[messages.ListQueueResponse]:
    return UnaryCall("Scheduling.ListQueue", messages.ListQueueRequest(namespace=namespace, name=name, limit=limit))


def bind(name: str, namespace: str, node: str, uid: str) -> UnaryCall[messages.BindResponse]:
    request = messages.BindRequest(namespace=namespace, name=name, uid=uid, node=node)
    return UnaryCall("Scheduling.Bind", request)


def explain(name: str, namespace: str, nodes: Iterable[str], limit: int) -> UnaryCall[messages.ExplainResponse]:
    request = messages.ExplainRequest(namespace=namespace, name=name, nodes=nodes, limit=limit)
    return UnaryCall("Scheduling.Explain", request)


def allocated_resources(position: str, resources: Iterable[str]) -> UnaryCall[messages.GetAllocatedResourcesResponse]:
    request = messages.GetAllocatedResourcesRequest(position=position, resources=resources)
    return UnaryCall("Scheduling.GetAllocatedResources", request)


def plan_basis() -> UnaryCall[messages.GetPlanBasisResponse]:
    return UnaryCall("Scheduling.GetPlanBasis", messages.GetPlanBasisRequest())


# -------------------------------------------------------------------------------------------------------------- objects


def key_of(kind: AnyKind, name: str, namespace: str) -> messages.ObjectKey:
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


def _kind(kind: AnyKind) -> Kind:
    if isinstance(kind, Kind):
        return kind
    return by_word(kind) if isinstance(kind, str) else by_message(kind)


# --------------------------------------------------------------------------------------------------------------- access


def who_am_i() -> UnaryCall[access.WhoAmIResponse]:
    return UnaryCall("Access.WhoAmI", access.WhoAmIRequest())


def can_i(call: str, kind: str, namespace: str, name: str, subject: str) -> UnaryCall[access.CanIResponse]:
    request = access.CanIRequest(call=call, kind=kind, namespace=namespace, name=name, subject=subject)
    return UnaryCall("Access.CanI", request)


def grant(binding: access.RoleBinding) -> UnaryCall[access.GrantResponse]:
    return UnaryCall("Access.Grant", access.GrantRequest(binding=binding))


def revoke_grant(id: str) -> UnaryCall[access.RevokeGrantResponse]:
    return UnaryCall("Access.RevokeGrant", access.RevokeGrantRequest(id=id))


def issue_token(subject: str, seconds: int, note: str) -> UnaryCall[access.IssueTokenResponse]:
    return UnaryCall("Access.IssueToken", access.IssueTokenRequest(subject=subject, seconds=seconds, note=note))


def list_tokens(subject: str) -> UnaryCall[tuple[access.Token, ...]]:
    request = access.ListTokensRequest(subject=subject)
    return UnaryCall("Access.ListTokens", request, lambda response: tuple(response.tokens))


def revoke_token(id: str, subject: str) -> UnaryCall[access.RevokeTokenResponse]:
    return UnaryCall("Access.RevokeToken", access.RevokeTokenRequest(id=id, subject=subject))


def sign_certificate(signing_request: bytes, subject: str) -> UnaryCall[access.SignCertificateResponse]:
    request = access.SignCertificateRequest(subject=subject, signing_request=signing_request)
    return UnaryCall("Access.SignCertificate", request)


def revoke_certificate(serial: str, identity: str, note: str) -> UnaryCall[access.RevokeCertificateResponse]:
    request = access.RevokeCertificateRequest(serial=serial, identity=identity, note=note)
    return UnaryCall("Access.RevokeCertificate", request)


def readmit(serial: str, identity: str) -> UnaryCall[access.ReadmitResponse]:
    return UnaryCall("Access.Readmit", access.ReadmitRequest(serial=serial, identity=identity))


def list_revocations() -> UnaryCall[tuple[access.Revocation, ...]]:
    request = access.ListRevocationsRequest()
    return UnaryCall("Access.ListRevocations", request, lambda response: tuple(response.revocations))


def list_grants(subject: str) -> UnaryCall[tuple[access.RoleBinding, ...]]:
    request = access.ListGrantsRequest(subject=subject)
    return UnaryCall("Access.ListGrants", request, lambda response: tuple(response.bindings))
