"""The services rayched.v1.Leadership and rayched.v1.Scheduling: who leads, and questions to the scheduler.

What pods take up on each node is told by the replica's own scheduler. All other questions are answered by the leader's. A standby
passes such a question on to the address in the leader's record, at most `HOPS_MAX` times in all: leadership may move
while the question travels. Where that does not end at the leader, FAILED_PRECONDITION names its address; while nobody leads,
UNAVAILABLE. The leader's replica is told for whom it is asked, and judges that anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from rayched.api.names import qualified_fault
from rayched.pki.client_credentials import ClientCertificate
from rayched.server.errors import ApiFailure, Code, ask_the_leader, invalid, over_limit, unavailable
from rayched.server.ports import (
    BindingRefused,
    Leader,
    LeadershipPort,
    NothingToExplain,
    NotLeading,
    NotRead,
    QuestionFailed,
    SchedulerPort,
)
from rayched.server.rpc import Call
from rayched.server.watching.open_streams import OpenStreams, shutting_down
from rayched.store.keys import key_part
from rayched.v1.services_pb2 import (
    BindRequest,
    BindResponse,
    ExplainRequest,
    ExplainResponse,
    GetAllocatedResourcesRequest,
    GetAllocatedResourcesResponse,
    GetLeaderRequest,
    GetLeaderResponse,
    GetPlanBasisRequest,
    GetPlanBasisResponse,
    GetSchedulerStatusRequest,
    GetSchedulerStatusResponse,
    ListQueueRequest,
    ListQueueResponse,
    ReplicaState,
)

HOPS_MAX: Final = 3
QUEUE_LIMIT_MAX: Final = 2_000
RESOURCES_MAX: Final = 8
"""Asked for besides cpu, memory and pods."""
_FORWARD_SECONDS: Final = 2.5
_FORWARD_BINDING_SECONDS: Final = 10.0
"""It is written before it is answered."""
_FORWARD_RETRY_SECONDS: Final = 1.0
"""After which a question may be asked again that was too much for the leader."""
_SERVICE: Final = "/rayched.v1.Scheduling"
_CHANNEL_OPTIONS: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
"""A connection of each call's own: the leader's address changes just when it matters."""

_PASSED_BACK: Final = (Code.NOT_FOUND, Code.INTERNAL, Code.PERMISSION_DENIED)
"""Codes of the leader's replica that are about what was asked."""

ResponseT = TypeVar("ResponseT", bound=Message)


class LeadershipService:
    """Any replica serves it."""

    def __init__(
        self,
        leadership: LeadershipPort,
        version: str,
        state: Callable[[], ReplicaState],
        problems: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._leadership = leadership
        self._version = version
        self._state = state
        self._problems = problems
        self._streams = OpenStreams()

    async def get_leader(self, _request: GetLeaderRequest, _: Call) -> GetLeaderResponse:
        response = self._response(self._leadership.leader())
        response.replica.CopyFrom(self._state())
        return response

    async def watch_leader(self, _request: GetLeaderRequest, call: Call) -> None:
        async def follow() -> None:
            async for leader in self._leadership.changes():
                await call.write(self._response(leader))

        await self._streams.run(follow, shutting_down)
        raise shutting_down()

    async def close(self) -> None:
        """Ends the streams; new ones are refused."""
        await self._streams.close()

    def _response(self, leader: Leader | None) -> GetLeaderResponse:
        mine = self._leadership
        response = GetLeaderResponse(
            answered_by=mine.identity, version=self._version, stands_for_election=mine.stands, problems=self._problems()
        )
        if leader is not None:
            response.holder, response.address = leader.holder, leader.address
            response.epoch, response.transitions = leader.epoch, leader.transitions
            response.acquired_at_ms, response.renewed_at_ms = leader.acquired_at_ms, leader.renewed_at_ms
            response.lease_duration_ms = leader.lease_duration_ms
        return response


class SchedulingService:
    """Serves at the leader, forwards everywhere else."""

    def __init__(
        self, leadership: LeadershipPort, scheduler: SchedulerPort, certificate: ClientCertificate | None = None
    ) -> None:
        """`certificate`: shown to the leader's replica; None: there is no TLS."""
        self._leadership = leadership
        self._scheduler = scheduler
        self._certificate = certificate

    async def get_scheduler_status(self, request: GetSchedulerStatusRequest, call: Call) -> GetSchedulerStatusResponse:
        return await self._answer("GetSchedulerStatus", request, call, self._scheduler.status, GetSchedulerStatusResponse)

    async def get_plan_basis(self, request: GetPlanBasisRequest, call: Call) -> GetPlanBasisResponse:
        return await self._answer("GetPlanBasis", request, call, self._scheduler.plan_basis, GetPlanBasisResponse)

    async def get_allocated_resources(self, request: GetAllocatedResourcesRequest, _: Call) -> GetAllocatedResourcesResponse:
        if len(request.resources) > RESOURCES_MAX:
            raise invalid(f"resources: found {len(request.resources)} names, allowed are {RESOURCES_MAX}")
        for name in request.resources:
            if problem := qualified_fault(name):
                raise invalid(f"resources: {problem}")
        try:
            return await self._scheduler.allocated_resources(request)
        except NotRead:
            raise unavailable("this replica has no scheduler that has read the cluster; try again") from None
        except QuestionFailed as problem:
            raise ApiFailure(Code.INTERNAL, f"GetAllocatedResources: {problem}") from None

    async def explain(self, request: ExplainRequest, call: Call) -> ExplainResponse:
        if not request.name:
            raise invalid("name: is missing; want the name of a pod")
        if request.limit < 0:
            raise invalid(f"limit: {request.limit}: want how many nodes to show, or 0 for all")
        for part, text in (("namespace", request.namespace or "default"), ("name", request.name)):
            key_part(text, part)
        return await self._answer("Explain", request, call, lambda: self._explain(request), ExplainResponse)

    async def _explain(self, request: ExplainRequest) -> ExplainResponse:
        try:
            return await self._scheduler.explain(request)
        except NothingToExplain as problem:
            raise ApiFailure(Code.NOT_FOUND, str(problem)) from None

    async def bind(self, request: BindRequest, call: Call) -> BindResponse:
        for part, text in (("namespace", request.namespace or "default"), ("name", request.name), ("node", request.node)):
            if not text:
                raise invalid(f"{part}: is missing; a binding names a pod and a node")
            key_part(text, part)
        return await self._answer("Bind", request, call, lambda: self._bind(request), BindResponse)

    async def _bind(self, request: BindRequest) -> BindResponse:
        try:
            return await self._scheduler.bind(request)
        except BindingRefused as problem:
            if problem.code is Code.RESOURCE_EXHAUSTED:
                raise over_limit(str(problem), _FORWARD_RETRY_SECONDS) from None
            raise ApiFailure(problem.code, str(problem)) from None

    async def list_queue(self, request: ListQueueRequest, call: Call) -> ListQueueResponse:
        if not 0 <= request.limit <= QUEUE_LIMIT_MAX:
            raise invalid(f"limit: {request.limit}: allowed are 0 to {QUEUE_LIMIT_MAX}")
        return await self._answer("ListQueue", request, call, lambda: self._scheduler.queue(request), ListQueueResponse)

    async def _answer(
        self,
        method: str,
        request: Any,
        call: Call,
        ask: Callable[[], Awaitable[ResponseT]],
        response_type: type[ResponseT],
    ) -> ResponseT:
        """This replica's scheduler's answer where it leads, else that of the leader's; all requests have `hops`."""
        try:
            return await ask()
        except QuestionFailed as problem:
            raise ApiFailure(Code.INTERNAL, f"{method}: {problem}") from None
        except NotLeading:
            leader = self._leadership.leader()
        if leader is None:
            raise unavailable("nobody leads at the moment; try again")
        if leader.holder == self._leadership.identity:
            raise unavailable("this replica has just acquired or lost the lead; try again")
        if request.hops >= HOPS_MAX:
            raise ask_the_leader(leader, f"passed on {request.hops} times without reaching the leader")
        onward = type(request)()
        onward.CopyFrom(request)
        onward.hops += 1
        async with self._channel(leader.address) as channel:
            forward: Any = channel.unary_unary(
                f"{_SERVICE}/{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=response_type.FromString,
            )
            try:
                seconds = _FORWARD_BINDING_SECONDS if method == "Bind" else _FORWARD_SECONDS
                response: ResponseT = await forward(onward, timeout=seconds, metadata=call.passed_on)
            except grpc.RpcError as error:
                code = error.code()
                if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    raise unavailable(f"the leader {leader.holder} at {leader.address} does not answer; try again") from None
                if code is Code.RESOURCE_EXHAUSTED:
                    raise over_limit(error.details(), _FORWARD_RETRY_SECONDS) from None
                if code in _PASSED_BACK or (method == "Bind" and code in (Code.ABORTED, Code.FAILED_PRECONDITION)):
                    raise ApiFailure(code, error.details()) from None
                raise ask_the_leader(leader, f"the leader's replica refused the question ({code.name})") from None
        return response

    def _channel(self, address: str) -> Any:
        """Of one call: so it has the certificate that is in force."""
        if self._certificate is None:
            return grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
        self._certificate.version()
        return grpc.aio.secure_channel(address, self._certificate.credentials(), options=_CHANNEL_OPTIONS)
