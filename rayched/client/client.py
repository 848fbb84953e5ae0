"""Client: rayched's API for Python programs. Synchronous, typed, thread-safe; survives the death of any replica.

Every call takes whichever replica answers and is repeated, with jitter, until it has an answer or its time is over; then it
raises ApiError. Repeating is harmless: a submission gets a uid here, before the first attempt, and the same uid gives the same
answer; all other calls describe an end state.

    with Client() as client:
        submitted = client.submit(Path("app.yaml"))
        for pod in client.wait_bound(submitted):
            print(pod.metadata.name, pod.spec.node_name)

AsyncClient has the same calls for asyncio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from google.protobuf.message import Message

from rayched.api.kinds import AnyObject, Kind
from rayched.client import calls, pinned
from rayched.client.access import AccessCalls
from rayched.client.bindings import BoundWait, PodReference
from rayched.client.bulk_submission import BulkSubmission
from rayched.client.contexts import choose
from rayched.client.editing import EditingCalls, followed
from rayched.client.endpoints import Patience
from rayched.client.errors import ApiError
from rayched.client.reading import ReadingCalls
from rayched.client.sources import Source, objects_of
from rayched.client.streaming import STREAM_PATIENCE_SECONDS, StreamingCalls
from rayched.client.submissions import SubmitOutcomes, Submitted, all_submitted, read_objects, refused, tried
from rayched.client.transport import Transport
from rayched.client.watch import LeaderStream, WatchStream
from rayched.client.workloads import WorkloadCalls
from rayched.pki.client_token import CallerFiles
from rayched.v1.core_pb2 import Node, NodeStatus, Pod, Taint
from rayched.v1.services_pb2 import (
    ApplyResponse,
    BindResponse,
    CordonResponse,
    DeleteResponse,
    EvictResponse,
    ExplainResponse,
    GetAllocatedResourcesResponse,
    GetLeaderResponse,
    GetPlanBasisResponse,
    GetSchedulerStatusResponse,
    LabelResponse,
    ListQueueResponse,
    PodStatusUpdate,
    RegisterNodeResponse,
    TaintResponse,
    UpdateNodeStatusResponse,
)
from rayched.v1.workloads_pb2 import Object

BOUND_SECONDS: Final = 60.0


class Client(StreamingCalls, WorkloadCalls, EditingCalls, ReadingCalls, AccessCalls):
    """Connections to all replicas. Close it, or use it in a `with`."""

    def __init__(
        self,
        endpoints: str | Sequence[str] | None = None,
        *,
        timeout_seconds: float = 10.0,
        context: str | None = None,
        tls: CallerFiles | None = None,
        insecure: bool = False,
    ) -> None:
        """Endpoints are host:port, in one text or several; none: those of $RAYCHED_SERVER, of a context, or the default ones.

        `context`: by name, see contexts.py; `tls`: the files of a certificate, or of a token, in its place; `insecure`: no
        TLS at all. `timeout_seconds`: for a call, attempts and pauses together; each can have its own. Raises ValueError.
        """
        chosen = choose(endpoints, context, tls, insecure=insecure)
        self._transport = Transport(chosen.endpoints, Patience(total_seconds=timeout_seconds), chosen.certificate())

    @property
    def endpoints(self) -> tuple[str, ...]:
        return self._transport.endpoints.all

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ---------------------------------------------------------------------------------------------------------- objects

    def submit(
        self, source: Source | Iterable[Source], *, dry_run: bool = False, timeout_seconds: float | None = None
    ) -> SubmitOutcomes:
        """Creates an object; or all objects of manifests: text, plain data, a Path, or a sequence of these and of objects.

        One outcome for each comes back, in order; that of a single object has the object as it is stored. Raises ApiError,
        which is NotAllSubmitted where some of several were refused, and ManifestErrors or TextError before anything is sent.
        """
        if isinstance(source, Message):
            item = calls.with_uid(source)
            return SubmitOutcomes([tried(item, self._transport.do(calls.submit(item, dry_run), timeout_seconds))])
        read = objects_of(source)
        items = read_objects(read)
        if dry_run:
            return all_submitted(read, [self._try(item, timeout_seconds) for item in items])
        return all_submitted(read, self.submit_many(items, timeout_seconds=timeout_seconds))

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
        return submission.run(items, progress)

    def apply(self, item: AnyObject | Object, *, dry_run: bool = False, timeout_seconds: float | None = None) -> ApplyResponse:
        """Creates the object, or changes the one that is there."""
        return self._transport.do(calls.apply(item, dry_run), timeout_seconds)

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
        timeout_seconds: float | None = None,
    ) -> WatchStream:
        """Changes from a revision on, each exactly once; 0: first the objects as they are. Kind None: all but events.

        Goes on through the death of replicas; raises ApiError when no replica answers for `patience_seconds`, and with
        OUT_OF_RANGE when changes not seen yet were compacted. After `timeout_seconds` it ends by itself.
        """
        request = calls.watch_request(kind, namespace, label_selector, field_selector, start_revision)
        return WatchStream(
            self._transport,
            request,
            patience_seconds=patience_seconds,
            timeout_seconds=timeout_seconds,
            bookmarks=bookmarks,
        )

    def wait_bound(
        self,
        pods: PodReference | Iterable[PodReference],
        namespace: str = "default",
        *,
        timeout_seconds: float = BOUND_SECONDS,
    ) -> tuple[Pod, ...]:
        """Waits until all these pods have a node: names, namespace/name, pods, or what `submit` answered. Gives them in order.

        Raises NotBound when the time is over, with what the scheduler says, and at once for a pod that is deleted or ends
        before; ApiError with NOT_FOUND for one that is not there.
        """
        wait = BoundWait(pods, namespace)
        if wait.is_done():
            return ()
        with WatchStream(
            self._transport,
            wait.request(),
            patience_seconds=timeout_seconds,
            timeout_seconds=timeout_seconds,
            bookmarks=True,
        ) as events:
            for event in events:
                wait.see(event)
                if wait.is_done():
                    return wait.result()
        raise wait.too_late(timeout_seconds)

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
        """Deletes the object that has the name now, or that of the uid, and no later one of its name.

        When an attempt without an answer had deleted it already, the response is empty.
        """
        steps = pinned.delete(kind, name, namespace, uid, grace_period_seconds)
        return followed(self._transport, steps, timeout_seconds)

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
        steps = pinned.evict(name, namespace, uid, resource_version, grace_period_seconds, dry_run)
        return followed(self._transport, steps, timeout_seconds)

    # ------------------------------------------------------------------------------------------------------------ nodes

    def register_node(self, node: Node, *, timeout_seconds: float | None = None) -> RegisterNodeResponse:
        return self._transport.do(calls.register_node(node), timeout_seconds)

    def heartbeat(self, nodes: Sequence[str], *, timeout_seconds: float | None = None) -> tuple[str, ...]:
        """Signs of life of these nodes; those that do not exist are returned and want to be registered."""
        return tuple(node for call in calls.heartbeats(nodes) for node in self._transport.do(call, timeout_seconds))

    def update_node_status(
        self, name: str, status: NodeStatus, *, timeout_seconds: float | None = None
    ) -> UpdateNodeStatusResponse:
        return self._transport.do(calls.update_node_status(name, status), timeout_seconds)

    def update_pod_statuses(
        self, updates: Iterable[PodStatusUpdate], *, timeout_seconds: float | None = None
    ) -> tuple[ApiError | None, ...]:
        """What became of pods on nodes; one outcome each, in order."""
        return tuple(error for call in calls.update_pod_statuses(updates) for error in self._transport.do(call, timeout_seconds))

    # ------------------------------------------------------------------------------------------------------------ admin

    def cordon(self, node: str, unschedulable: bool = True, *, timeout_seconds: float | None = None) -> CordonResponse:
        """Keeps new pods off a node, or (False) lets them on again."""
        return self._transport.do(calls.cordon(node, unschedulable), timeout_seconds)

    def taint(
        self,
        node: str,
        *,
        add: Iterable[Taint] = (),
        remove: Iterable[Taint] = (),
        overwrite: bool = False,
        timeout_seconds: float | None = None,
    ) -> TaintResponse:
        return self._transport.do(calls.taint(node, add, remove, overwrite), timeout_seconds)

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
        return self._transport.do(calls.label(kind, name, namespace, add, remove, overwrite), timeout_seconds)

    # ------------------------------------------------------------------------------------------- leadership, scheduling

    def leader(self, *, timeout_seconds: float | None = None) -> GetLeaderResponse:
        """Who leads, as the replica that answers sees it; `holder` is empty while nobody does."""
        return self._transport.do(calls.leader(), timeout_seconds)

    def watch_leader(self, *, patience_seconds: float = STREAM_PATIENCE_SECONDS) -> LeaderStream:
        """The leader now, and after each change."""
        return LeaderStream(self._transport, patience_seconds)

    def scheduler_status(self, *, timeout_seconds: float | None = None) -> GetSchedulerStatusResponse:
        """What the leader's scheduler is doing; any replica passes the question on."""
        return self._transport.do(calls.scheduler_status(), timeout_seconds)

    def queue(
        self, *, namespace: str = "", name: str = "", limit: int = 0, timeout_seconds: float | None = None
    ) -> ListQueueResponse:
        """The pods that wait for a node, as the leader's queue has them; any replica passes the question on."""
        return self._transport.do(calls.queue(namespace, name, limit), timeout_seconds)

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
        return self._transport.do(calls.explain(name, namespace, nodes, limit), timeout_seconds)

    def bind(
        self, name: str, namespace: str = "default", *, node: str, uid: str = "", timeout_seconds: float | None = None
    ) -> BindResponse:
        """Puts a pod of another scheduler on a node: its `schedulerName` is no profile's. Any replica passes it on to the leader.

        With a uid it may be asked again, and means that pod alone. ABORTED: the pod or the node was changed meanwhile, or the pod
        has a node; FAILED_PRECONDITION: there is no room, or the pod is not for others to bind.
        """
        return self._transport.do(calls.bind(name, namespace, node, uid), timeout_seconds)

    def allocated_resources(
        self, position: str = "", *, resources: Iterable[str] = (), timeout_seconds: float | None = None
    ) -> GetAllocatedResourcesResponse:
        """What pods take up on each node, as the scheduler of the replica that answers has it, whether it leads or not.

        `position`: that of the last response, after which only nodes come where that changed; empty: nothing is known.
        `resources`: others than cpu, memory and pods, at most 8; who asks for other ones than before begins without a position.
        """
        return self._transport.do(calls.allocated_resources(position, resources), timeout_seconds)

    def plan_basis(self, *, timeout_seconds: float | None = None) -> GetPlanBasisResponse:
        """What of the leader's scheduler decides where all else is equal; any replica passes the question on."""
        return self._transport.do(calls.plan_basis(), timeout_seconds)

    # ---------------------------------------------------------------------------------------------------------- private

    def _try(self, item: Object, timeout_seconds: float | None) -> Submitted:
        """What would become of one object."""
        try:
            return tried(item, self._transport.do(calls.submit(item, dry_run=True), timeout_seconds))
        except ApiError as error:
            return refused(item, error)
