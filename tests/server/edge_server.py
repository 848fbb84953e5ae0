"""A real gRPC server with an edge and one small service behind it, in a loop of its own; no store."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from rayched.access.authorizing import Authorizer
from rayched.access.binding_limits import BindingLimits
from rayched.access.binding_table import BindingTable
from rayched.access.bindings import RoleBinding
from rayched.access.identity import Identity, IdentityKind
from rayched.access.policy import AccessRole
from rayched.server.admission.write_gate import WriteGate
from rayched.server.call_guard import INSECURE_BINDINGS, CallGuard, insecure_guard, loopback_identity
from rayched.server.edge.connection_sweeper import sweeping
from rayched.server.edge.edge import Edge, EdgePorts
from rayched.server.edge.fairness import SEATS, WEIGHTS
from rayched.server.edge.grpc_options import server_options
from rayched.server.edge.limits import CallerLimits, EdgeLimits
from rayched.server.http.health import Health
from rayched.server.rpc import Call, handler_of, takes_bytes
from rayched.server.services.reflection_service import REFLECTION, ReflectionService
from rayched.v1 import services_pb2 as messages
from rayched.v1.services_pb2_grpc import SubmissionStub

T = TypeVar("T")
OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1))
SUBMISSION = messages.DESCRIPTOR.services_by_name["Submission"]
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
WATCH = messages.DESCRIPTOR.services_by_name["Watch"]


def identity_shown(name: str) -> Identity:
    """Of a caller with the metadata `shown`."""
    return Identity("edge-test", IdentityKind.USER, name)


def _identity_of(context: Any) -> Identity:
    name = next((str(text) for key, text in context.invocation_metadata() if key == "shown"), "")
    return identity_shown(name) if name else loopback_identity(context)


def guard_of_shown() -> CallGuard:
    """Callers are whom they show, administrators all, of whom "few" may have less; who shows nothing is nobody in particular."""
    few = BindingLimits(reads=0.25, watches=1)
    shown = [RoleBinding(identity_shown(name), AccessRole.ADMIN) for name in "ab"]
    shown.append(RoleBinding(identity_shown("few"), AccessRole.ADMIN, limits=few))
    table = BindingTable((*INSECURE_BINDINGS, *shown))
    table.listed({})
    return CallGuard(Authorizer(table), _identity_of)


class SmallService:
    """Answers of Submission and Watch without anything behind them. Get waits while `gate` is closed; Delete never answers."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun: list[str] = []
        self.answer = messages.ListResponse(revision=7)

    async def submit(self, request: messages.SubmitRequest, _: Call) -> messages.SubmitResponse:
        self.begun.append("submit")
        return messages.SubmitResponse(uid="7", warnings=[str(request.ByteSize())])

    @takes_bytes
    async def submit_many(self, request: bytes, call: Call) -> messages.SubmitManyResponse:
        count = len(messages.SubmitManyRequest.FromString(request).objects)
        call.counted(calls=count / 10)
        return messages.SubmitManyResponse(results=[messages.SubmitManyResponse.Result(uid=str(i)) for i in range(count)])

    async def apply(self, request: messages.ApplyRequest, _: Call) -> messages.ApplyResponse:
        raise RuntimeError("secret words")

    async def get(self, request: messages.GetRequest, _: Call) -> messages.GetResponse:
        self.begun.append(request.key.name)
        await self.gate.wait()
        return messages.GetResponse()

    async def list(self, request: messages.ListRequest, _: Call) -> messages.ListResponse:
        return self.answer

    async def delete(self, request: messages.DeleteRequest, _: Call) -> messages.DeleteResponse:
        self.begun.append("delete")
        try:
            await asyncio.Event().wait()
        finally:
            self.begun.append("delete ended")
        raise AssertionError

    async def watch(self, request: messages.WatchRequest, call: Call) -> None:
        call.counts_as_watch(wide=not request.label_selector)
        for number in range(3):
            await call.write(messages.WatchResponse(revision=number + 1))
        call.settled()
        await self.gate.wait()


class EdgeServing:
    """A running server, seen from the test's thread."""

    def __init__(
        self, limits: EdgeLimits, guard: CallGuard, watching: Callable[[], object] | None, clock: Callable[[], float]
    ) -> None:
        """`watching` makes the service Watch, on the loop."""
        self._watching = watching
        self._guard = guard
        self._clock = clock
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="edge", daemon=True)
        self._thread.start()
        self.run(self._start(limits))
        self.channel = grpc.insecure_channel(self.address, options=OPTIONS)

    async def _start(self, limits: EdgeLimits) -> None:
        guard = self._guard
        self.edge = Edge(limits, EdgePorts(guard.identify, guard.authorize, clock=self._clock))
        self.service = SmallService()
        self._server = grpc.aio.server(options=server_options(limits))
        self.watch: Any = self.service if self._watching is None else self._watching()
        self.health = Health()
        self.health.starting()
        services = [
            (SUBMISSION, self.service),
            (WATCH, self.watch),
            (HEALTH, self.health),
            (REFLECTION, ReflectionService([SUBMISSION.full_name])),
        ]
        for descriptor, service in services:
            self._server.add_generic_rpc_handlers((handler_of(descriptor, service, WriteGate(), self.edge, guard),))
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        await self._server.start()
        self._sweeping = asyncio.create_task(sweeping(self.edge, "127.0.0.1", port))

    def run(self, work: Coroutine[Any, Any, T], seconds: float = 60.0) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds)

    def on_loop(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return self.run(call())

    def hold(self) -> None:
        """Get answers only after `let_go`."""
        self.on_loop(self.service.gate.clear)

    def let_go(self) -> None:
        self.on_loop(self.service.gate.set)

    @property
    def submission(self) -> Any:
        return SubmissionStub(self.channel)  # type: ignore[no-untyped-call]

    def is_idle(self) -> bool:
        """Nothing is held for anybody."""
        edge = self.edge
        queues = edge.gate.queues
        seats = any(queues.used(level) or queues.waiting(level) for level in WEIGHTS)
        return not (
            edge.calls or edge.bytes.held or edge.calls_of or edge.watches_of or edge.connections_of or edge.streams_of or seats
        )

    def rejected(self) -> dict[tuple[str, str], int]:
        return dict(self.edge.rejected)

    def stop(self) -> None:
        self.channel.close()
        self.on_loop(self._sweeping.cancel)
        self.run(self._server.stop(0))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)
        self.loop.close()


@contextlib.contextmanager
def edge_serving(
    limits: EdgeLimits | None = None,
    guard: CallGuard | None = None,
    watching: Callable[[], object] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[EdgeServing]:
    server = EdgeServing(limits or EdgeLimits(), guard or insecure_guard(), watching, clock)
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def refusing_process(mode: str) -> Iterator[tuple[str, Callable[[], float]]]:
    """The address of edge_process.py, and how many MiB it has had in memory at most."""
    command = [sys.executable, "-m", "tests.server.edge_process", mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None

        def peak() -> float:
            with open(f"/proc/{process.pid}/status") as status:
                return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}", peak
        finally:
            process.terminate()


def of_each(seats: int = SEATS, **limits: Any) -> EdgeLimits:
    """Limits under which whoever is on this host counts as somebody."""
    return EdgeLimits(loopback=CallerLimits(**limits), identity=CallerLimits(**limits), seats=seats)
