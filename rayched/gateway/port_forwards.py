"""Ports of pods, as `kubectl port-forward` opens them: SPDY/3.1 in the messages of one WebSocket, for many connections.

Clients that speak channels in the place of SPDY name the ports in the request (port_channels.py).

Each connection is two streams that the client opens, with these headers:

    streamtype   `data` for what is sent, `error` for why it failed: the client reads it to its end
    port         of the pod
    requestid    the same of both

Who wants one knows the token of the pod's node, as of an exec: the gateway proves it for each connection, and nobody is told it.
A connection is over when the pod has said all, as with Kubernetes. What a client sends faster than the pod reads is kept up to
four messages; then its socket is not read, and its other connections wait too, as SPDY has no windows with these clients.

Source: portforward of client-go and of the kubelet, Kubernetes 1.34.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from aiohttp import WSMsgType, web

from rayched.client.async_two_way import AsyncPortStream
from rayched.client.errors import ApiError
from rayched.gateway import remote_channels
from rayched.gateway.calls import GatewayCall
from rayched.gateway.identity import node_token_of
from rayched.gateway.objects import stored
from rayched.gateway.port_channels import CHANNEL_BYTES_MAX, CHANNELS, ChannelForwarding, ports_of
from rayched.gateway.port_input import MESSAGE_BYTES_MAX, PortInput, exchange, port_of, why_failed
from rayched.gateway.spdy_frames import (
    ResetReason,
    SpdyData,
    SpdyFault,
    SpdyFrame,
    SpdyGoAway,
    SpdyOpening,
    SpdyPing,
    SpdyReader,
    SpdyReset,
    SpdyWriter,
)

SPDY: Final = "SPDY/3.1+portforward.k8s.io"
_CONNECTIONS_MAX: Final = 64
"""Of one kubectl at a time: as many as a node has."""
_REQUEST_CHARACTERS_MAX: Final = 64
_DATA, _ERROR = "data", "error"

_log = logging.getLogger(__name__)


async def serve_port_forward(request: web.Request, call: GatewayCall) -> web.StreamResponse:
    """Raises StatusFailure where the request is none for a socket, or a client of channels asks for a pod that is not there.
    What a node refuses is told of each connection."""
    pod, namespace, token = call.path.name, call.path.namespace, node_token_of(request)

    def connection(port: int) -> AsyncPortStream:
        return call.client.port_stream(pod, port, namespace, token=token)

    ports = ports_of(request.query.getall("ports", []))
    if ports:
        socket = remote_channels.agreed(request, "port-forward", (SPDY, CHANNELS), CHANNEL_BYTES_MAX)
        if SPDY not in remote_channels.offered(request):
            await stored(call)
    else:
        socket = remote_channels.agreed(request, "port-forward", (SPDY,), MESSAGE_BYTES_MAX)
    await socket.prepare(request)
    if socket.ws_protocol == CHANNELS:
        await ChannelForwarding(socket, connection, pod, ports).run()
    else:
        await _PortForwarding(socket, connection, pod).run()
    await socket.close()
    return socket


@dataclass(slots=True)
class _ForwardedConnection:
    """Complete with both streams."""

    request: str
    port: int
    streams: dict[str, int] = field(default_factory=dict)
    """By type."""
    input: PortInput = field(default_factory=PortInput)
    task: asyncio.Task[None] | None = None


class _PortForwarding:
    """Of one kubectl. Owner: the event loop."""

    def __init__(self, socket: web.WebSocketResponse, connection: Callable[[int], AsyncPortStream], pod: str) -> None:
        self._socket = socket
        self._connection = connection
        self._pod = pod
        self._reader = SpdyReader()
        self._writer = SpdyWriter()
        self._by_request: dict[str, _ForwardedConnection] = {}
        self._by_stream: dict[int, _ForwardedConnection] = {}
        self._last_stream = 0

    async def run(self) -> None:
        """Until the client leaves, or sends what nobody understands."""
        async with asyncio.TaskGroup() as tasks:
            try:
                async for message in self._socket:
                    if message.type is not WSMsgType.BINARY:
                        raise SpdyFault("found a message that is not binary")
                    for frame in self._reader.take(message.data):
                        await self._take(frame, tasks)
            except SpdyFault as fault:
                _log.warning("port-forward to pod %s: %s", self._pod, fault)
            except ConnectionError:
                # The client has left while it was answered.
                pass
            for one in list(self._by_request.values()):
                self._abandon(one)

    async def _take(self, frame: SpdyFrame, tasks: asyncio.TaskGroup) -> None:
        """Raises SpdyFault and ConnectionError."""
        match frame:
            case SpdyOpening():
                await self._open(frame, tasks)
            case SpdyData():
                await self._put(frame)
            case SpdyReset():
                await self._reset(frame.stream)
            case SpdyPing():
                await self._socket.send_bytes(self._writer.pong(frame.number))
            case SpdyGoAway():
                # What is open goes on; the socket's end is the end.
                return

    async def _open(self, opening: SpdyOpening, tasks: asyncio.TaskGroup) -> None:
        stream = opening.stream
        if stream <= self._last_stream or not stream % 2:
            raise SpdyFault(f"found stream {stream} after {self._last_stream}; clients number them oddly, and upwards")
        self._last_stream = stream
        kind, one = opening.headers.get("streamtype", ""), self._asked_for(opening.headers)
        if one is None or kind not in (_DATA, _ERROR) or kind in one.streams:
            await self._socket.send_bytes(self._writer.reset(stream, ResetReason.PROTOCOL_ERROR))
            return
        if one.request not in self._by_request and len(self._by_request) >= _CONNECTIONS_MAX:
            await self._socket.send_bytes(self._writer.reset(stream, ResetReason.REFUSED))
            return
        one.streams[kind] = stream
        self._by_request[one.request] = self._by_stream[stream] = one
        await self._socket.send_bytes(self._writer.reply(stream))
        if opening.is_last and kind == _DATA:
            await one.input.put(b"")
        if len(one.streams) == 2:
            one.task = tasks.create_task(self._carry(one))

    def _asked_for(self, headers: Mapping[str, str]) -> _ForwardedConnection | None:
        """The connection that a stream is of, a new one where it is the first. None: the headers name none."""
        request, port = headers.get("requestid", ""), port_of(headers.get("port", ""))
        if port is None or not 0 < len(request) <= _REQUEST_CHARACTERS_MAX:
            return None
        found = self._by_request.get(request) or _ForwardedConnection(request, port)
        return found if found.port == port else None

    async def _put(self, frame: SpdyData) -> None:
        one = self._by_stream.get(frame.stream)
        # A stream that is over may have frames on their way, and nobody writes where errors are told.
        if one is None or one.streams.get(_DATA) != frame.stream:
            return
        if frame.data:
            await one.input.put(frame.data)
        if frame.is_last:
            await one.input.put(b"")

    async def _reset(self, stream: int) -> None:
        one = self._by_stream.get(stream)
        if one is None:
            return
        self._abandon(one)
        if one.streams.get(_ERROR) not in (None, stream):
            # The client reads it to its end.
            await self._socket.send_bytes(self._writer.data(one.streams[_ERROR], b"", is_last=True))

    def _abandon(self, one: _ForwardedConnection) -> None:
        self._forget(one)
        if one.task is not None:
            one.task.cancel()

    def _forget(self, one: _ForwardedConnection) -> None:
        one.input.end()
        self._by_request.pop(one.request, None)
        for stream in one.streams.values():
            self._by_stream.pop(stream, None)

    async def _carry(self, one: _ForwardedConnection) -> None:
        """To its end."""
        # The client has left: its socket's end is noticed where it is read.
        with contextlib.suppress(ConnectionError):
            why = b""
            try:
                await self._carry_open(one)
            except ApiError as error:
                why = why_failed(one.port, self._pod, error.message)
            finally:
                self._forget(one)
            await self._socket.send_bytes(self._writer.data(one.streams[_ERROR], why, is_last=True))
            await self._socket.send_bytes(self._writer.data(one.streams[_DATA], b"", is_last=True))

    async def _carry_open(self, one: _ForwardedConnection) -> None:
        """Raises ApiError and ConnectionError."""

        async def say(data: bytes) -> None:
            await self._socket.send_bytes(self._writer.data(one.streams[_DATA], data))

        await exchange(self._connection(one.port), one.input, say)
