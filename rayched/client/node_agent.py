"""The client of an agent that runs pods: what it does carries its incarnation, and is refused once another has its node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rayched.api.identity import node_identity
from rayched.api.kinds import unwrap
from rayched.client.batches import batches
from rayched.client.calls import UPDATES_A_CALL, UnaryCall
from rayched.client.client import Client
from rayched.client.errors import ApiError, outcome_error
from rayched.client.streaming import STREAM_PATIENCE_SECONDS
from rayched.client.watch import ResumingStream, StreamClosed
from rayched.client.watching import Event, EventType
from rayched.pki.client_token import CallerFiles, ShownByCaller
from rayched.v1.core_pb2 import Node, NodeStatus, Pod
from rayched.v1.services_pb2 import (
    HeartbeatRequest,
    HeartbeatResponse,
    NodeEvent,
    ObjectKey,
    PodStatusUpdate,
    RegisterNodeRequest,
    RegisterNodeResponse,
    ReportEventsRequest,
    ReportEventsResponse,
    UpdateNodeStatusRequest,
    UpdatePodStatusRequest,
    UpdatePodStatusResponse,
    WatchNodeRequest,
    WatchResponse,
)

EVENTS_A_CALL: Final = 100


class UnreadableObject(NamedTuple):
    """It is there, and no replica can read it. What is known of it stays as it is."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node and all pods on it as of one revision. `node` None: it is not there, or cannot be read."""

    node: Node | None
    pods: Sequence[Pod]
    revision: int
    unreadable: frozenset[UnreadableObject] = frozenset()
    """What may be the node's, or one of these pods."""

    def hides(self, pod: Pod) -> bool:
        """There is something of the pod's name that cannot be read, so it may be there."""
        return UnreadableObject("Pod", pod.metadata.namespace, pod.metadata.name) in self.unreadable


class NodeWatch:
    """Iterates over a node's state, once, and then over what changes, until closed. Read by one thread; `close` is for any."""

    def __init__(self, stream: ResumingStream, node: str, incarnation: int) -> None:
        self._stream = stream
        self._node = node
        self._incarnation = incarnation
        self._revision = 0
        """All up to it was given out; 0: the state was not."""
        self._there: list[Node | Pod] = []
        self._unreadable: set[UnreadableObject] = set()

    def close(self) -> None:
        self._stream.close()

    def __iter__(self) -> Iterator[NodeState | Event | UnreadableObject]:
        """Raises ApiError; with OUT_OF_RANGE changes were missed, or something can be read again, and only a new watch knows what
        is there; with a `superseded_incarnation` another registration has the node."""
        try:
            for response in self._stream.responses(self._request):
                yield from self._told(response) if self._revision else self._listed(response)
        except StreamClosed:
            return

    def _request(self) -> WatchNodeRequest:
        # A state of which only a part came is told from its beginning.
        self._there.clear()
        self._unreadable.clear()
        start = self._revision + 1 if self._revision else 0
        return WatchNodeRequest(name=self._node, start_revision=start, takes_unreadable=True, incarnation=self._incarnation)

    def _listed(self, response: WatchResponse) -> Iterator[NodeState]:
        self._unreadable.update(map(_named, response.unreadable))
        for event in response.events:
            if EventType(event.type) is not EventType.BOOKMARK:
                found = unwrap(event.object)
                assert isinstance(found, Node | Pod)
                self._there.append(found)
                continue
            self._revision = event.revision
            node = next((one for one in self._there if isinstance(one, Node)), None)
            pods = [one for one in self._there if isinstance(one, Pod)]
            self._there.clear()
            yield NodeState(node, pods, event.revision, frozenset(self._unreadable))

    def _told(self, response: WatchResponse) -> Iterator[Event | UnreadableObject]:
        yield from map(_named, response.unreadable)
        for event in response.events:
            kind = EventType(event.type)
            if kind is not EventType.BOOKMARK and event.revision > self._revision:
                # Events of one revision come together, so those of the revisions before are all out.
                self._revision = event.revision - 1
                yield Event(kind, unwrap(event.object), event.revision)
        self._revision = max(self._revision, response.revision)


def _named(key: ObjectKey) -> UnreadableObject:
    return UnreadableObject(key.kind, key.namespace, key.name)


class NodeAgentClient(Client):
    """A Client with the calls of one node's agent; with a `node` its calls carry the identity of that agent."""

    def __init__(
        self,
        endpoints: str | Sequence[str] | None = None,
        *,
        timeout_seconds: float = 10.0,
        node: str = "",
        context: str | None = None,
        tls: CallerFiles | None = None,
    ) -> None:
        super().__init__(endpoints, timeout_seconds=timeout_seconds, context=context, tls=tls)
        if node:
            self._transport.identity = node_identity(node)

    @property
    def certificate(self) -> ShownByCaller | None:
        """What it shows to replicas; None: it speaks no TLS."""
        return self._transport.certificate

    def watch_node(self, node: str, incarnation: int = 0) -> NodeWatch:
        """`incarnation` 0: of a node that has no agent that runs pods."""
        return NodeWatch(ResumingStream(self._transport, "Nodes.WatchNode", STREAM_PATIENCE_SECONDS), node, incarnation)

    def report_events(self, node: str, incarnation: int, events: Sequence[NodeEvent]) -> tuple[ApiError | None, ...]:
        """One outcome each, in order; at most EVENTS_A_CALL."""
        request = ReportEventsRequest(node=node, incarnation=incarnation, events=events)
        call: UnaryCall[ReportEventsResponse] = UnaryCall("Nodes.ReportEvents", request)
        return tuple(map(outcome_error, self._transport.do(call).outcomes))

    def begin(self, request: RegisterNodeRequest) -> RegisterNodeResponse:
        """Registers the node; FAILED_PRECONDITION while another agent of it lives. Its answer has the incarnation."""
        call: UnaryCall[RegisterNodeResponse] = UnaryCall("Nodes.Register", request)
        return self._transport.do(call)

    def live(self, node: str, incarnation: int, *, timeout_seconds: float | None = None) -> HeartbeatResponse:
        """A sign of life."""
        request = HeartbeatRequest(nodes=[node], incarnations={node: incarnation})
        call: UnaryCall[HeartbeatResponse] = UnaryCall("Nodes.Heartbeat", request)
        return self._transport.do(call, timeout_seconds)

    def report_node(self, node: str, incarnation: int, status: NodeStatus) -> None:
        request = UpdateNodeStatusRequest(name=node, status=status, incarnation=incarnation)
        self._transport.do(UnaryCall("Nodes.UpdateNodeStatus", request))

    def report_pods(self, node: str, incarnation: int, updates: Iterable[PodStatusUpdate]) -> tuple[ApiError | None, ...]:
        """One outcome each, in order."""
        found: list[ApiError | None] = []
        for batch in batches(updates, UPDATES_A_CALL):
            request = UpdatePodStatusRequest(updates=batch, node=node, incarnation=incarnation)
            call: UnaryCall[UpdatePodStatusResponse] = UnaryCall("Nodes.UpdatePodStatus", request)
            found += map(outcome_error, self._transport.do(call).outcomes)
        return tuple(found)
