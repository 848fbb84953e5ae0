"""What the server asks of the replica around it: who leads, and what the leader's scheduler is doing.

The replica fills these ports; the server knows neither the elector nor the actors. All methods are called on the server's
event loop and return without waiting, `changes` and `status` aside.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

import grpc

from rayched.v1.services_pb2 import (
    BindRequest,
    BindResponse,
    ExplainRequest,
    ExplainResponse,
    GetAllocatedResourcesRequest,
    GetAllocatedResourcesResponse,
    GetPlanBasisResponse,
    GetSchedulerStatusResponse,
    ListQueueRequest,
    ListQueueResponse,
)


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader's record as this replica last saw it."""

    holder: str
    address: str
    """Where the leader's own API listens, host:port."""
    epoch: int
    transitions: int = 0
    acquired_at_ms: int = 0
    renewed_at_ms: int = 0
    lease_duration_ms: int = 0


class NotLeading(Exception):
    """This replica's scheduler does not decide at the moment."""


class QuestionFailed(Exception):
    """The scheduler could not answer, for a fault of its own or because too much was asked at once; the text says which."""


class NothingToExplain(Exception):
    """There is no such pod, or nothing is decided about it; the text says so."""


class BindingRefused(Exception):
    """A binding of another scheduler that was not made."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class LeadershipPort(Protocol):
    """Who leads, as this replica sees it."""

    @property
    def identity(self) -> str:
        """The name under which this replica stands for election."""

    @property
    def leads(self) -> bool:
        """Whether this replica holds the epoch now."""

    @property
    def stands(self) -> bool:
        """Whether this replica would take over: its scheduler has read the cluster, and it takes part in the election."""

    def leader(self) -> Leader | None:
        """The leader, or None while nobody leads. A renewal may change only renewed_at_ms."""

    def changes(self) -> AsyncIterator[Leader | None]:
        """What `leader` gives, at once and after each change of holder, epoch or address, until the caller closes it.

        Intermediate changes may be left out, the last one never. Also tells when `leads` changed.
        """


class NotRead(Exception):
    """There is no scheduler here, or it has not read the cluster."""


class SchedulerPort(Protocol):
    """The scheduler actors of this replica. Each method may raise QuestionFailed."""

    async def status(self) -> GetSchedulerStatusResponse:
        """What they are doing; raises NotLeading on a standby."""

    async def plan_basis(self) -> GetPlanBasisResponse:
        """What decides between equals; raises NotLeading on a standby."""

    async def allocated_resources(self, request: GetAllocatedResourcesRequest) -> GetAllocatedResourcesResponse:
        """What pods take up on each node, on a standby, too; raises NotRead."""

    async def explain(self, request: ExplainRequest) -> ExplainResponse:
        """Every plugin's word about a pod; raises NotLeading on a standby, and NothingToExplain."""

    async def bind(self, request: BindRequest) -> BindResponse:
        """Binds a pod of another scheduler; raises NotLeading on a standby and where nobody knows, and BindingRefused."""

    async def queue(self, request: ListQueueRequest) -> ListQueueResponse:
        """The pods that wait for a node; raises NotLeading on a standby."""
