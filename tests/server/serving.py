"""A real ApiServer on a free port, in a thread of its own, over a real etcd; and small replicas for its ports."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rayched.server.app import ApiServer
from rayched.server.ports import BindingRefused, Leader, NothingToExplain, NotLeading, NotRead, QuestionFailed
from rayched.server.server_options import ServerOptions
from rayched.server.watching.watch_hub import WatchHub
from rayched.store.entries import Entry
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
    PendingPod,
)

T = TypeVar("T")


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    ends_at = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends_at, f"it did not happen within {seconds:g} s"
        time.sleep(0.01)


class SmallLeadership:
    """Leadership as a test sets it, from any thread."""

    def __init__(self, identity: str, loop: asyncio.AbstractEventLoop) -> None:
        self._identity = identity
        self._loop = loop
        self._leader: Leader | None = None
        self._changed = asyncio.Event()

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def leads(self) -> bool:
        return self._leader is not None and self._leader.holder == self._identity

    @property
    def stands(self) -> bool:
        return True

    def leader(self) -> Leader | None:
        return self._leader

    async def changes(self) -> AsyncIterator[Leader | None]:
        while True:
            changed = self._changed
            yield self._leader
            await changed.wait()

    def set(self, leader: Leader | None) -> None:
        self._loop.call_soon_threadsafe(self._set, leader)

    def _set(self, leader: Leader | None) -> None:
        self._leader = leader
        self._changed.set()
        self._changed = asyncio.Event()


class SmallScheduler:
    """A scheduler that knows its name and nothing else."""

    def __init__(self, leadership: SmallLeadership) -> None:
        self._leadership = leadership

    async def status(self) -> GetSchedulerStatusResponse:
        if not self._leadership.leads:
            raise NotLeading
        return GetSchedulerStatusResponse(holder=self._leadership.identity, epoch=7, nodes=3)

    async def explain(self, request: ExplainRequest) -> ExplainResponse:
        if not self._leadership.leads:
            raise NotLeading
        if request.name == "broken":
            raise QuestionFailed("the scheduler failed to answer")
        if request.name != "known":
            raise NothingToExplain(f"Pod {request.namespace}/{request.name} not found")
        return ExplainResponse(uid="7", nodes=3, feasible=1)

    async def plan_basis(self) -> GetPlanBasisResponse:
        if not self._leadership.leads:
            raise NotLeading
        return GetPlanBasisResponse(revision=11, seed=5, decisions=12, rows=["node-0", "", "node-2"])

    async def allocated_resources(self, request: GetAllocatedResourcesRequest) -> GetAllocatedResourcesResponse:
        if request.position == "too early":
            raise NotRead
        if request.position == "broken":
            raise QuestionFailed("the scheduler failed to answer")
        return GetAllocatedResourcesResponse(
            position=f"after {request.position}",
            begins_anew=not request.position,
            nodes=["node-0"],
            milli_cpu=[500],
            memory_bytes=[1 << 30],
            pods=[2],
        )

    async def bind(self, request: BindRequest) -> BindResponse:
        if not self._leadership.leads:
            raise NotLeading
        if request.name == "bound":
            raise BindingRefused(grpc.StatusCode.ABORTED, "Pod default/bound is already assigned to a node")
        if request.node == "full":
            raise BindingRefused(grpc.StatusCode.FAILED_PRECONDITION, "there is no room")
        return BindResponse(uid="7", revision=9)

    async def queue(self, request: ListQueueRequest) -> ListQueueResponse:
        if not self._leadership.leads:
            raise NotLeading
        return ListQueueResponse(total=1, pods=[PendingPod(namespace=request.namespace, name=request.name, queue="active")])


class Serving:
    """A running server, seen from the test's thread."""

    def __init__(self, options: ServerOptions, identity: str = "replica-0", useful: bool = True) -> None:
        """`useful`: wait until it serves."""
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="server", daemon=True)
        self._thread.start()
        self.leadership: SmallLeadership = self.run(self._made(SmallLeadership, identity, self.loop))
        self.server = ApiServer(options, self.leadership, SmallScheduler(self.leadership))
        try:
            self.run(self.server.start())
        except BaseException:
            self._end()
            raise
        self.channel = grpc.insecure_channel(self.address, options=[("grpc.use_local_subchannel_pool", 1)])
        if useful:
            until(lambda: self.health("rayched.v1.Submission") == "SERVING")

    def health(self, service: str) -> str:
        response = health_pb2_grpc.HealthStub(self.channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=2)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))

    @property
    def hub(self) -> WatchHub:
        """Read it only, or change it on the server's loop."""
        assert self.server._running is not None
        return self.server._running.sources.cluster().feed.hub

    def hub_lists(self, told: Callable[[], object]) -> None:
        """Calls `told` on the server's loop after each further list."""
        hub, listed = self.hub, self.hub.listed

        def listing(entries: Iterable[Entry], revision: int) -> None:
            listed(entries, revision)
            told()

        self.loop.call_soon_threadsafe(lambda: setattr(hub, "listed", listing))

    @property
    def streams(self) -> int:
        """Watches that the server has open."""
        assert self.server._running is not None
        return self.server._running.watch.streams

    @property
    def address(self) -> str:
        return self.server.address

    def run(self, work: Coroutine[Any, Any, T], seconds: float = 60.0) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds)

    def stop(self) -> None:
        if self._thread.is_alive():
            self.channel.close()
            self.run(self.server.stop())
            self._end()

    def _end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)
        self.loop.close()

    @staticmethod
    async def _made(make: Any, *arguments: Any) -> Any:
        return make(*arguments)


@contextlib.contextmanager
def serving(options: ServerOptions, identity: str = "replica-0", useful: bool = True) -> Iterator[Serving]:
    server = Serving(options, identity, useful)
    try:
        yield server
    finally:
        server.stop()
