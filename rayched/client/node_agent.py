"""The client of an agent that runs pods: what it writes carries its incarnation, and is refused once another has its node."""

from __future__ import annotations

from collections.abc import Iterable

from rayched.client.batches import batches
from rayched.client.calls import UPDATES_A_CALL, UnaryCall
from rayched.client.client import Client
from rayched.client.errors import ApiError, outcome_error
from rayched.v1.core_pb2 import NodeStatus
from rayched.v1.services_pb2 import (
    HeartbeatRequest,
    HeartbeatResponse,
    PodStatusUpdate,
    RegisterNodeRequest,
    RegisterNodeResponse,
    UpdateNodeStatusRequest,
    UpdatePodStatusRequest,
    UpdatePodStatusResponse,
)


class NodeAgentClient(Client):
    """A Client with the calls of one node's agent."""

    def begin(self, request: RegisterNodeRequest) -> RegisterNodeResponse:
        """Registers the node; FAILED_PRECONDITION while another agent of it lives. Its answer has the incarnation."""
        call: UnaryCall[RegisterNodeResponse] = UnaryCall("Nodes.Register", request)
        return self._do(call, None)

    def live(self, node: str, incarnation: int, *, timeout_seconds: float | None = None) -> HeartbeatResponse:
        """A sign of life."""
        request = HeartbeatRequest(nodes=[node], incarnations={node: incarnation})
        call: UnaryCall[HeartbeatResponse] = UnaryCall("Nodes.Heartbeat", request)
        return self._do(call, timeout_seconds)

    def report_node(self, node: str, incarnation: int, status: NodeStatus) -> None:
        request = UpdateNodeStatusRequest(name=node, status=status, incarnation=incarnation)
        self._do(UnaryCall("Nodes.UpdateNodeStatus", request), None)

    def report_pods(self, node: str, incarnation: int, updates: Iterable[PodStatusUpdate]) -> tuple[ApiError | None, ...]:
        """One outcome each, in order."""
        found: list[ApiError | None] = []
        for batch in batches(updates, UPDATES_A_CALL):
            request = UpdatePodStatusRequest(updates=batch, node=node, incarnation=incarnation)
            call: UnaryCall[UpdatePodStatusResponse] = UnaryCall("Nodes.UpdatePodStatus", request)
            found += map(outcome_error, self._do(call, None).outcomes)
        return tuple(found)
