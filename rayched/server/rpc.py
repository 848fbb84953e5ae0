"""Puts services on a gRPC server: from the generated descriptors to handlers, with one edge around every call.

A service is a plain object whose methods have the names of the RPCs in snake case: `async def submit_many(request, call)`. Each
RPC of the descriptor must have its method, which is checked at the start. A streaming RPC writes to its call; one whose caller
streams gets the call alone, and reads from it. The edge

* refuses what the identity that the call carries may not do (node_rules.py),
* lets calls that write pass the gate (write_gate.py), before anything is read of their requests,
* refuses bytes that are no message of the request's type as INVALID_ARGUMENT,
* turns every exception into a status (errors.py); none reaches gRPC, which would answer UNKNOWN with the exception's text,
* ends the method of a caller that left while it was written to just as that of one that hung up: nobody is left to be answered,
  and the log has nothing to say,
* leaves the deadline to gRPC, which cancels the method when the caller's deadline passes or the caller hangs up.

Responses may be given as bytes already encoded. A method that is marked with `takes_bytes` gets its request as it came.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from grpc._cython.cygrpc import ExecuteBatchError

from rayched.api.identity import IDENTITY_METADATA
from rayched.server.admission import node_rules
from rayched.server.admission.large_objects import large_part
from rayched.server.admission.write_gate import CALLS, WriteGate
from rayched.server.errors import ApiFailure, failure_of, invalid, one_line, trailers

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

    __slots__ = ("_context", "_parse", "name")

    def __init__(self, context: Any, name: str, parse: Callable[[bytes], Message]) -> None:
        """`parse`: a message of the caller's stream from its bytes."""
        self._context = context
        self._parse = parse
        self.name = name

    @property
    def identity(self) -> str:
        """Who the caller says it is; empty: nobody in particular."""
        return next((str(text) for key, text in self._context.invocation_metadata() or () if key == IDENTITY_METADATA), "")

    async def accept(self) -> None:
        """Tells a streaming caller that its request is in order, before there is anything to say."""
        with _caller_may_leave():
            await self._context.send_initial_metadata(())

    async def read(self) -> Any:
        """The next message of the caller's stream; None: there will be no more, or the caller has left."""
        with _caller_may_leave():
            data = await self._context.read()
        return None if data is grpc.aio.EOF else self._parse(data)

    async def write(self, response: Message | bytes) -> None:
        """Sends on the stream; waits while the caller does not read. CancelledError: the caller has left."""
        with _caller_may_leave():
            await self._context.write(response)


@contextmanager
def _caller_may_leave() -> Iterator[None]:
    """What gRPC raises where the caller left in the middle becomes what it raises where the caller left between two messages."""
    try:
        yield
    except ExecuteBatchError:
        raise asyncio.CancelledError("the caller has left") from None


def handler_of(service: ServiceDescriptor, implementation: object, gate: WriteGate) -> Any:
    """The handler of all calls of one service."""
    table = {method.name: _method_handler(service, method, implementation, gate) for method in service.methods}
    return grpc.method_handlers_generic_handler(service.full_name, table)


def _method_handler(service: ServiceDescriptor, method: MethodDescriptor, implementation: object, gate: WriteGate) -> Any:
    name = f"{service.name}.{method.name}"
    function = getattr(implementation, _WORD_START.sub("_", method.name).lower(), None)
    if function is None:
        raise TypeError(f"{type(implementation).__name__} has no method for the call {name}")
    request_class = message_factory.GetMessageClass(method.input_type)

    def read(data: bytes) -> Message:
        try:
            return request_class.FromString(data)
        except DecodeError as error:
            raise malformed(method.input_type.name, error) from None

    if method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(_edge(name, _streamed(function), read), response_serializer=_write)
    make = grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
    called = function if getattr(function, "takes_bytes", False) else _reading(read, function)
    if name in CALLS:
        called = _gated(gate, name, called)
    return make(_edge(name, called, read), response_serializer=_write)


_Function = Callable[[Any, Call], Awaitable[Any]]


def _reading(read: Callable[[bytes], Message], function: _Function) -> _Function:
    async def call(data: bytes, call: Call) -> Any:
        request, identity = read(data), call.identity
        if not identity:
            return await function(request, call)
        node_rules.refuse_request(identity, call.name, request)
        response = await function(request, call)
        node_rules.refuse_response(identity, call.name, response)
        return response

    return call


def _streamed(function: Callable[[Call], Awaitable[Any]]) -> _Function:
    async def call(_: Any, call: Call) -> Any:
        return await function(call)

    return call


def _gated(gate: WriteGate, name: str, function: _Function) -> _Function:
    async def call(data: bytes, call: Call) -> Any:
        async with gate.passed(name, len(data), large_part(name, data)):
            return await function(data, call)

    return call


def _edge(name: str, function: _Function, parse: Callable[[bytes], Message]) -> Callable[[bytes, Any], Awaitable[Any]]:
    async def handle(request: bytes, context: Any) -> Any:
        try:
            call = Call(context, name, parse)
            node_rules.refuse_call(call.identity, name)
            return await function(request, call)
        except Exception as error:
            # The border to the client, who gets a code and a line; what nobody expected is logged by failure_of.
            failure: ApiFailure = failure_of(error, name)
        with _caller_may_leave():
            return await context.abort(failure.code, one_line(failure.message), trailers(failure))

    return handle


def _write(response: Message | bytes) -> bytes:
    return response if isinstance(response, bytes) else response.SerializeToString()
