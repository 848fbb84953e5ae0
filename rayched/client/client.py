"""Client: rayched's API for Python programs. Synchronous, typed, thread-safe; survives the death of any replica.

Every call takes whichever replica answers and is repeated, with jitter, until it has an answer or its time is over; then it
raises ApiError. Repeating is harmless: a submission gets a uid here, before the first attempt, and the same uid gives the same
answer; all other calls describe an end state.

    with Client() as client:
        client.submit(pod)
        for event in client.watch("pods"):
            ...
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import grpc

from rayched.api.kinds import AnyObject, Kind, by_word, unwrap, wrap
from rayched.client.batches import batches
from rayched.client.bulk_submission import BulkSubmission, Submitted
from rayched.client.errors import ApiError, outcome_error
from rayched.client.transport import Patience, Transport, endpoints_of
from rayched.client.watch import LeaderStream, WatchStream
from rayched.v1.core_pb2 import Node, NodeStatus, Taint
from rayched.v1.services_pb2 import (
    ApplyRequest,
    ApplyResponse,
    CordonRequest,
    CordonResponse,
    DeleteRequest,
    DeleteResponse,
    EvictRequest,
    EvictResponse,
    ExplainRequest,
    ExplainResponse,
    GetLeaderRequest,
    GetLeaderResponse,
    GetPlanBasisRequest,
    GetPlanBasisResponse,
    GetRequest,
    GetSchedulerStatusRequest,
    GetSchedulerStatusResponse,
    HeartbeatRequest,
    LabelRequest,
    LabelResponse,
    ListQueueRequest,
    ListQueueResponse,
    ListRequest,
    ListResponse,
    ObjectKey,
    PodStatusUpdate,
    RegisterNodeRequest,
    RegisterNodeResponse,
    SubmitRequest,
    SubmitResponse,
    TaintRequest,
    TaintResponse,
    UpdateNodeStatusRequest,
    UpdateNodeStatusResponse,
    UpdatePodStatusRequest,
    WatchRequest,
)
from rayched.v1.workloads_pb2 import Object

NODES_A_HEARTBEAT: Final = 1_000
UPDATES_A_CALL: Final = 500
STREAM_PATIENCE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects as of one revision; a watch from `revision` + 1 misses nothing."""

    objects: tuple[AnyObject, ...]
    revision: int


class Client:
    """Connections to all replicas. Close it, or use it in a `with`."""

    def __init__(self, endpoints: str | Sequence[str] | None = None, *, timeout_seconds: float = 10.0) -> None:
        """Endpoints are host:port, comma separated or a sequence; without any those of $RAYCHED_SERVER, else the default ones.

        `timeout_seconds` is how long a call may take, attempts and pauses together; each call can have its own.
        """
        self._transport = Transport(endpoints_of(endpoints), Patience(total_seconds=timeout_seconds))

    @property
    def endpoints(self) -> tuple[str, ...]:
        return self._transport.endpoints

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ---------------------------------------------------------------------------------------------------------- objects

    def submit(self, item: AnyObject | Object, *, dry_run: bool = False, timeout_seconds: float | None = None) -> SubmitResponse:
        """Creates an object."""
        request = SubmitRequest(object=_with_uid(item), dry_run=dry_run)
        return cast(SubmitResponse, self._call("Submission.Submit", request, timeout_seconds))

    def submit_many(
        self,
        items: Iterable[AnyObject | Object],
        *,
        timeout_seconds: float | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> tuple[Submitted, ...]:
        """Creates objects, several batches at a time; each has its own outcome, in order, and none raises.

        `timeout_seconds` is for each batch. `progress` is told how many objects more are done.
        """
        submission = BulkSubmission(self._transport, timeout_seconds)
        return submission.run((_with_uid(item) for item in items), progress)

    def apply(self, item: AnyObject | Object, *, dry_run: bool = False, timeout_seconds: float | None = None) -> ApplyResponse:
        """Creates the object, or changes the one that is there."""
        request = ApplyRequest(object=_as_object(item), dry_run=dry_run)
        return cast(ApplyResponse, self._call("Submission.Apply", request, timeout_seconds))

    def get(self, kind: str | Kind, name: str, namespace: str = "default", *, timeout_seconds: float | None = None) -> AnyObject:
        """The object as it is now."""
        request = GetRequest(key=_key(kind, name, namespace))
        return unwrap(self._call("Submission.Get", request, timeout_seconds).object)

    def list(
        self,
        kind: str | Kind,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float | None = None,
    ) -> Iterator[AnyObject]:
        """The objects, page by page; all pages show the same revision. No namespace: all of them."""
        for page in self.pages(
            kind,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            timeout_seconds=timeout_seconds,
        ):
            yield from map(unwrap, page.objects)

    def list_all(
        self, kind: str | Kind, *, namespace: str = "", label_selector: str = "", field_selector: str = "", revision: int = 0
    ) -> Listing:
        """The objects and their revision, to go on with a watch; `revision`: as they were at that one."""
        pages = self.pages(
            kind, namespace=namespace, label_selector=label_selector, field_selector=field_selector, revision=revision
        )
        found = tuple(pages)
        return Listing(tuple(unwrap(item) for page in found for item in page.objects), found[0].revision)

    def pages(
        self,
        kind: str | Kind,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        revision: int = 0,
        timeout_seconds: float | None = None,
    ) -> Iterator[ListResponse]:
        """The pages of a list; each call of the network has its own time."""
        found = _kind(kind)
        request = ListRequest(
            kind=found.name,
            namespace=namespace if found.namespaced else "",
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            revision=revision,
        )
        while True:
            page = self._list_page(request, timeout_seconds)
            yield page
            token = getattr(page, "continue")
            if not token:
                return
            setattr(request, "continue", token)

    def watch(
        self,
        kind: str | Kind | None,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        start_revision: int = 0,
        bookmarks: bool = False,
        patience_seconds: float = STREAM_PATIENCE_SECONDS,
    ) -> WatchStream:
        """Changes from a revision on, each exactly once; 0: first the objects as they are. Kind None: all but events.

        Goes on through the death of replicas; raises ApiError when no replica answers for `patience_seconds`, and with
        OUT_OF_RANGE when changes not seen yet were compacted.
        """
        found = _kind(kind) if kind is not None else None
        if found is None and not start_revision:
            raise ValueError("a watch of all kinds needs a start_revision, for example that of a list")
        request = WatchRequest(
            kind=found.name if found else "",
            namespace=namespace if found is None or found.namespaced else "",
            label_selector=label_selector,
            field_selector=field_selector,
            start_revision=start_revision,
        )
        return WatchStream(self._transport, request, self._list_page, patience_seconds, bookmarks)

    def delete(
        self,
        kind: str | Kind,
        name: str,
        namespace: str = "default",
        *,
        uid: str = "",
        grace_period_seconds: int | None = None,
        timeout_seconds: float | None = None,
    ) -> DeleteResponse:
        """Deletes an object. When an attempt without an answer had deleted it already, the response is empty."""
        request = DeleteRequest(key=_key(kind, name, namespace), uid=uid, grace_period_seconds=grace_period_seconds)

        def gone(failure: ApiError) -> DeleteResponse | None:
            return DeleteResponse() if failure.code is grpc.StatusCode.NOT_FOUND else None

        response = self._transport.call("Submission.Delete", request, total_seconds=timeout_seconds, again=gone)
        return cast(DeleteResponse, response)

    def evict(
        self,
        name: str,
        namespace: str = "default",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
        timeout_seconds: float | None = None,
    ) -> EvictResponse:
        """Deletes a pod as far as its disruption budget allows it.

        RESOURCE_EXHAUSTED: not now, `retry_after_seconds` of the error says when to try again. When an attempt without an answer
        had evicted it already and it is gone, the response is empty.
        """
        request = EvictRequest(
            namespace=namespace,
            name=name,
            uid=uid,
            resource_version=resource_version,
            grace_period_seconds=grace_period_seconds,
            dry_run=dry_run,
        )

        def gone(failure: ApiError) -> EvictResponse | None:
            return EvictResponse() if failure.code is grpc.StatusCode.NOT_FOUND else None

        response = self._transport.call("Eviction.Evict", request, total_seconds=timeout_seconds, again=gone)
        return cast(EvictResponse, response)

    # ------------------------------------------------------------------------------------------------------------ nodes

    def register_node(self, node: Node, *, timeout_seconds: float | None = None) -> RegisterNodeResponse:
        return cast(RegisterNodeResponse, self._call("Nodes.Register", RegisterNodeRequest(node=node), timeout_seconds))

    def heartbeat(self, nodes: Sequence[str], *, timeout_seconds: float | None = None) -> tuple[str, ...]:
        """Signs of life of these nodes; those that do not exist are returned and want to be registered."""
        unknown: tuple[str, ...] = ()
        for start in range(0, len(nodes), NODES_A_HEARTBEAT):
            request = HeartbeatRequest(nodes=nodes[start : start + NODES_A_HEARTBEAT])
            unknown += tuple(self._call("Nodes.Heartbeat", request, timeout_seconds).unknown)
        return unknown

    def update_node_status(
        self, name: str, status: NodeStatus, *, timeout_seconds: float | None = None
    ) -> UpdateNodeStatusResponse:
        request = UpdateNodeStatusRequest(name=name, status=status)
        return cast(UpdateNodeStatusResponse, self._call("Nodes.UpdateNodeStatus", request, timeout_seconds))

    def update_pod_statuses(
        self, updates: Iterable[PodStatusUpdate], *, timeout_seconds: float | None = None
    ) -> tuple[ApiError | None, ...]:
        """What became of pods on nodes; one outcome each, in order."""
        errors: tuple[ApiError | None, ...] = ()
        for batch in batches(updates, UPDATES_A_CALL):
            answer = self._call("Nodes.UpdatePodStatus", UpdatePodStatusRequest(updates=batch), timeout_seconds)
            errors += tuple(map(outcome_error, answer.outcomes))
        return errors

    # ------------------------------------------------------------------------------------------------------------ admin

    def cordon(self, node: str, unschedulable: bool = True, *, timeout_seconds: float | None = None) -> CordonResponse:
        """Keeps new pods off a node, or (False) lets them on again."""
        request = CordonRequest(node=node, unschedulable=unschedulable)
        return cast(CordonResponse, self._call("Admin.Cordon", request, timeout_seconds))

    def taint(
        self,
        node: str,
        *,
        add: Iterable[Taint] = (),
        remove: Iterable[Taint] = (),
        overwrite: bool = False,
        timeout_seconds: float | None = None,
    ) -> TaintResponse:
        request = TaintRequest(node=node, add=add, remove=remove, overwrite=overwrite)
        return cast(TaintResponse, self._call("Admin.Taint", request, timeout_seconds))

    def label(
        self,
        kind: str | Kind,
        name: str,
        namespace: str = "default",
        *,
        add: Mapping[str, str] | None = None,
        remove: Iterable[str] = (),
        overwrite: bool = False,
        timeout_seconds: float | None = None,
    ) -> LabelResponse:
        request = LabelRequest(key=_key(kind, name, namespace), set=add or {}, remove=remove, overwrite=overwrite)
        return cast(LabelResponse, self._call("Admin.Label", request, timeout_seconds))

    # ------------------------------------------------------------------------------------------- leadership, scheduling

    def leader(self, *, timeout_seconds: float | None = None) -> GetLeaderResponse:
        """Who leads, as the replica that answers sees it; `holder` is empty while nobody does."""
        return cast(GetLeaderResponse, self._call("Leadership.GetLeader", GetLeaderRequest(), timeout_seconds))

    def watch_leader(self, *, patience_seconds: float = STREAM_PATIENCE_SECONDS) -> LeaderStream:
        """The leader now, and after each change."""
        return LeaderStream(self._transport, patience_seconds)

    def scheduler_status(self, *, timeout_seconds: float | None = None) -> GetSchedulerStatusResponse:
        """What the leader's scheduler is doing; any replica passes the question on."""
        answer = self._call("Scheduling.GetSchedulerStatus", GetSchedulerStatusRequest(), timeout_seconds)
        return cast(GetSchedulerStatusResponse, answer)

    def queue(
        self, *, namespace: str = "", name: str = "", limit: int = 0, timeout_seconds: float | None = None
    ) -> ListQueueResponse:
        """The pods that wait for a node, as the leader's queue has them; any replica passes the question on."""
        request = ListQueueRequest(namespace=namespace, name=name, limit=limit)
        return cast(ListQueueResponse, self._call("Scheduling.ListQueue", request, timeout_seconds))

    def explain(
        self,
        name: str,
        namespace: str = "default",
        *,
        nodes: Iterable[str] = (),
        limit: int = 0,
        timeout_seconds: float | None = None,
    ) -> ExplainResponse:
        """What every plugin says about a pod on every node, or on these; `limit`: on so many, the best ones."""
        request = ExplainRequest(namespace=namespace, name=name, nodes=nodes, limit=limit)
        return cast(ExplainResponse, self._call("Scheduling.Explain", request, timeout_seconds))

    def plan_basis(self, *, timeout_seconds: float | None = None) -> GetPlanBasisResponse:
        """What of the leader's scheduler decides where all else is equal; any replica passes the question on."""
        answer = self._call("Scheduling.GetPlanBasis", GetPlanBasisRequest(), timeout_seconds)
        return cast(GetPlanBasisResponse, answer)

    # ---------------------------------------------------------------------------------------------------------- private

    def _call(self, name: str, request: Any, timeout_seconds: float | None) -> Any:
        return self._transport.call(name, request, total_seconds=timeout_seconds)

    def _list_page(self, request: ListRequest, timeout_seconds: float | None = None) -> ListResponse:
        return cast(ListResponse, self._call("Submission.List", request, timeout_seconds))


def _kind(kind: str | Kind) -> Kind:
    return by_word(kind) if isinstance(kind, str) else kind


def _key(kind: str | Kind, name: str, namespace: str) -> ObjectKey:
    found = _kind(kind)
    return ObjectKey(kind=found.name, namespace=namespace if found.namespaced else "", name=name)


def _as_object(item: AnyObject | Object) -> Object:
    if not isinstance(item, Object):
        return wrap(item)
    copy = Object()
    copy.CopyFrom(item)
    return copy


def _with_uid(item: AnyObject | Object) -> Object:
    """A copy whose uid is there."""
    copy = _as_object(item)
    if copy.WhichOneof("kind") is not None:
        metadata = unwrap(copy).metadata
        metadata.uid = metadata.uid or str(uuid.uuid4())
    return copy
