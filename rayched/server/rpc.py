"""Puts services on a gRPC server: from the generated descriptors to handlers, with one edge around every call.

A service is a plain object whose methods have the names of the RPCs in snake case: `async def submit_many(request, call)`. Each
RPC of the descriptor must have its method, which is checked at the start. A streaming RPC writes to its call; one whose caller
streams gets the call alone, and reads from it. On gRPC every RPC takes a stream of requests, so that nothing of a request is
read before the edge (edge/edge.py) has settled who makes the call, whether it may, and that there is room for it. What a request
is about is judged once it is read (call_guard.py): that of a call with one request before the method is called, the first message
of a caller's stream when it comes. The edge also

* refuses whoever's certificate does not count (peers.py), at the begin of a call and with each message of a stream,
* lets calls that write pass the gate (write_gate.py), before their requests are parsed,
* refuses bytes that are no message of the request's type as INVALID_ARGUMENT,
* turns every exception into a status (errors.py); none reaches gRPC, which would answer UNKNOWN with the exception's text,
* ends the method of a caller that left while it was written to just as that of one that hung up: nobody is left to be answered,
  and the log has nothing to say,
* tells the audit log (audit_recorder.py) of each call, before it is answered,
* leaves the caller's deadline to gRPC, which cancels the method when it passes or the caller hangs up, and gives a deadline to
  calls with one answer that name none, or a very long one.

Responses may be given as bytes already encoded. A method that is marked with `takes_bytes` gets its request as it came.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message

from rayched.access.requests import RequestFacts
from rayched.api.identity import FOR_METADATA
from rayched.pki.callers import Peer
from rayched.server.admission.large_objects import large_part
from rayched.server.admission.write_gate import CALLS, WriteGate
from rayched.server.audit_recorder import AuditRecorder, CallRecord
from rayched.server.call_guard import CallGuard
from rayched.server.edge.caller import Caller, caller_may_leave
from rayched.server.edge.edge import Edge
from rayched.server.edge.method_traits import MethodTraits, traits_of
from rayched.server.edge.passage import Passage, too_slow
from rayched.server.errors import ApiFailure, failure_of, invalid, one_line, trailers
from rayched.server.peers import peer_of

_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")


_F = TypeVar("_F", bound=Callable[..., Any])


def takes_bytes(function: _F) -> _F:
    """Marks a method that reads its request's bytes itself; `malformed` is what it raises for bytes that are no request."""
    function.takes_bytes = True  # type: ignore[attr-defined]
    return function


def malformed(name: str, error: DecodeError) -> ApiFailure:
    """The failure for bytes that are no message of this name."""
    return invalid(f"the request is no {name} message: {error}")


class Call:
    """One call in progress, as a method of a service sees it."""

    __slots__ = ("_context", "_parse", "_passage", "name", "record")

    def __init__(
        self, context: Any, name: str, parse: Callable[[bytes], Message], passage: Passage, record: CallRecord | None = None
    ) -> None:
        """`parse`: a message of the caller's stream from its bytes; raises where it may not be sent. `record`: what the audit log
        has of it."""
        self._context = context
        self._parse = parse
        self._passage = passage
        self.record: Final = record
        self.name = name

    @property
    def caller(self) -> Caller:
        return self._passage.caller

    @property
    def shown(self) -> Peer | None:
        """Whose certificate the connection has; None: it has none."""
        return peer_of(self._context)

    @property
    def identity(self) -> str:
        """The identity of the node whose agent calls; empty: it is no agent."""
        return self.caller.node_text

    @property
    def passed_on(self) -> tuple[tuple[str, str], ...]:
        """The metadata with which the call is passed on to another replica."""
        return ((FOR_METADATA, self.caller.identity.uri),)

    def concerns(self, facts: RequestFacts, *, code: str = "OK", revision: int = 0, uid: str = "") -> None:
        """For the audit log: it was about this, which its request does not tell by itself, and this is what came of it."""
        if self.record is not None:
            self.record.concerns(facts, code=code, revision=revision, uid=uid)

    async def accept(self) -> None:
        """Tells a streaming caller that its request is in order, before there is anything to say."""
        with caller_may_leave():
            await self._context.send_initial_metadata(())

    async def read(self) -> Any:
        """The next message of the caller's stream; None: there will be no more, or the caller has left."""
        with caller_may_leave():
            data = await self._context.read()
        return None if data is grpc.aio.EOF else self._parse(data)

    async def write(self, response: Message | bytes) -> None:
        """Sends on the stream; waits while the caller does not read. CancelledError: the caller has left."""
        self._passage.check_certificate()
        await self._passage.send(_write(response))

    def counted(self, objects: int = 0, calls: float = 1.0) -> None:
        """Its answer has so many objects, or it counts as so many calls."""
        self._passage.counted(objects, calls)

    def counts_as_watch(self, *, wide: bool) -> None:
        """It is a watch, of all that there is of something or not. Raises ApiFailure where its caller has too many."""
        self._passage.counts_as_watch(wide=wide)

    def stores(self, namespace: str, size: int) -> None:
        """It is about to write an object of so many bytes. Raises ApiFailure where too many are written."""
        self._passage.stores(namespace, size)

    def refused(self, reason: str, text: str) -> ApiFailure:
        """The failure to raise where there is too much of its kind now; counted by reason."""
        return self._passage.refused(reason, text)

    def settled(self) -> None:
        """A stream has sent what it begins with, and takes nobody's place any more."""
        self._passage.settled()


def handler_of(
    service: ServiceDescriptor,
    implementation: object,
    gate: WriteGate,
    edge: Edge,
    guard: CallGuard,
    audit: AuditRecorder | None = None,
) -> Any:
    """The handler of all calls of one service. `guard` is that which the edge asks, too; `audit` None: there is no audit log."""
    table = {method.name: _method_handler(method, implementation, gate, edge, guard, audit) for method in service.methods}
    return grpc.method_handlers_generic_handler(service.full_name, table)


def _method_handler(
    method: MethodDescriptor,
    implementation: object,
    gate: WriteGate,
    edge: Edge,
    guard: CallGuard,
    audit: AuditRecorder | None,
) -> Any:
    name = f"{method.containing_service.name}.{method.name}"
    function = getattr(implementation, _WORD_START.sub("_", method.name).lower(), None)
    if function is None:
        raise TypeError(f"{type(implementation).__name__} has no method for the call {name}")
    request_class = message_factory.GetMessageClass(method.input_type)

    def parse(data: bytes) -> Message:
        try:
            return request_class.FromString(data)
        except DecodeError as error:
            raise malformed(method.input_type.name, error) from None

    traits = traits_of(name)
    lasts = bool(method.client_streaming or method.server_streaming)
    if method.client_streaming:
        serve = _taking_requests(function, guard)
    else:
        called = function if getattr(function, "takes_bytes", False) else _reading(parse, function, guard, lasts)
        if name in CALLS:
            called = _gated(gate, name, called)
        serve = _answering_many(called, traits, guard) if method.server_streaming else _answering_once(called, audit)
    make = grpc.stream_stream_rpc_method_handler if lasts else grpc.stream_unary_rpc_method_handler
    make_call = _calls_of(name, parse, guard)
    return make(_at_edge(edge, name, traits, make_call, serve, audit, unary=not lasts), response_serializer=_write)


_Function: TypeAlias = Callable[[Any, Call], Awaitable[Any]]
_Serve: TypeAlias = Callable[[Passage, Call], Awaitable[Any]]
_MakeCall: TypeAlias = Callable[[Any, Passage, CallRecord | None], Call]


def _calls_of(name: str, parse: Callable[[bytes], Message], guard: CallGuard) -> _MakeCall:
    """Calls whose callers' streams begin with a request, which is judged as one."""

    def make(context: Any, passage: Passage, record: CallRecord | None) -> Call:
        def read(data: bytes) -> Message:
            message = parse(data)
            if passage.caller.allowed is None:
                guard.judge(passage.caller, name, message)
                if record is not None:
                    record.judged(message, lasts=True)
            return message

        return Call(context, name, read, passage, record)

    return make


def _reading(parse: Callable[[bytes], Message], function: _Function, guard: CallGuard, lasts: bool) -> _Function:
    async def call(data: bytes, call: Call) -> Any:
        request = parse(data)
        guard.judge(call.caller, call.name, request)
        if call.record is not None:
            call.record.judged(request, lasts=lasts)
        response = await function(request, call)
        guard.judge_answer(call.caller, call.name, response)
        return response

    return call


def _gated(gate: WriteGate, name: str, function: _Function) -> _Function:
    async def call(data: bytes, call: Call) -> Any:
        large = large_part(name, data)
        if large:
            # It may have to wait for a turn that goes by its size, and small ones shall not wait for its place.
            call.settled()
        async with gate.passed(name, len(data), large):
            return await function(data, call)

    return call


def _answering_once(function: _Function, audit: AuditRecorder | None) -> _Serve:
    async def serve(passage: Passage, call: Call) -> bytes:
        own = passage.own_deadline()
        try:
            async with asyncio.timeout(own) as scope:
                data = await passage.request(passage.deadline())
                if call.record is not None:
                    call.record.bytes = len(data)
                response = await function(data, call)
                if audit is not None and call.record is not None:
                    told = call.record.answered(response if isinstance(response, Message) else None)
                    await audit.writer.written(told)
                return await passage.answered(_write(response))
        except TimeoutError:
            if own is None or not scope.expired():
                raise
            raise too_slow(call.name, own) from None

    return serve


def _answering_many(function: _Function, traits: MethodTraits, guard: CallGuard) -> _Serve:
    async def serve(passage: Passage, call: Call) -> Any:
        seconds = passage.request_seconds
        try:
            async with asyncio.timeout(seconds):
                data = await passage.request(seconds)
        except TimeoutError:
            raise too_slow(call.name, seconds) from None
        if call.record is not None:
            call.record.bytes = len(data)
        if not traits.keeps_seat:
            passage.settled()
        with guard.going_on(call.caller, call.name):
            return await function(data, call)

    return serve


def _taking_requests(function: Callable[[Call], Awaitable[Any]], guard: CallGuard) -> _Serve:
    async def serve(passage: Passage, call: Call) -> Any:
        await passage.pass_gate(passage.request_seconds)
        with guard.going_on(call.caller, call.name):
            return await function(call)

    return serve


def _at_edge(
    edge: Edge,
    name: str,
    traits: MethodTraits,
    make_call: _MakeCall,
    serve: _Serve,
    audit: AuditRecorder | None,
    *,
    unary: bool,
) -> Callable[[Any, Any], Awaitable[Any]]:
    async def handle(_: Any, context: Any) -> Any:
        passage: Passage | None = None
        record = None if audit is None else audit.begin(name, context)
        told = 0
        try:
            caller = edge.identified(context, traits)
            if record is not None:
                record.caller = caller
            passage = edge.admit(context, name, traits, caller, unary=unary)
            context.add_done_callback(passage.over)
            if audit is not None:
                audit.check(name)
            call = make_call(context, passage, record)
            judge = edge.ports.judge
            if unary or judge is None:
                answer = await serve(passage, call)
            else:
                with judge.holding(context):
                    answer = await serve(passage, call)
            if record is not None and not unary:
                record.answered()
            return answer
        except Exception as error:
            # The border to the client, who gets a code and a line; what nobody expected is logged by failure_of. The failure
            # itself is not kept: it refers to this frame, and both would hold what the call has read and sent.
            failure = failure_of(error, name)
            status = _status(failure)
            if record is not None:
                told = record.failed(failure)
            del failure
        finally:
            if passage is not None:
                passage.settled()
                passage.done()
            if record is not None:
                record.over()
        if audit is not None:
            await audit.writer.written(told)
        with caller_may_leave():
            return await context.abort(*status)

    return handle


def _status(failure: ApiFailure) -> tuple[Any, str, Any]:
    """As gRPC takes it."""
    return failure.code, one_line(failure.message), trailers(failure)


def _write(response: Message | bytes) -> bytes:
    return response if isinstance(response, bytes) else response.SerializeToString()
