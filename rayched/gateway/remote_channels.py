"""WebSockets into pods, as kubectl opens them for `exec` and `attach`: messages begin with the number of a channel.

    0 standard input   1 standard output   2 standard error   3 how it ended, a Status   4 terminal size   255 a channel ends

Messages are bytes. What comes as text, as the official Python client sends a text, is its bytes in UTF-8.

What replica or node refuse is the answer to the handshake, as with an API server. kubectl, which offers v5 and nothing
else, is told on the socket: any other answer means to it that there are no WebSockets, and it asks again over SPDY.

Source: remotecommand of client-go and v5.channel.k8s.io, Kubernetes 1.34.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar

from aiohttp import WSMessage, WSMsgType, web

from rayched.client.errors import ApiError
from rayched.gateway.statuses import StatusSubject, bad_request, of_stream_error

PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
ENDED_WELL: Final[dict[str, Any]] = {"metadata": {}, "status": "Success"}
_MESSAGE_BYTES_MAX: Final = 1 << 20

S = TypeVar("S", bound=AbstractAsyncContextManager[Any])
Carrying = Callable[[web.WebSocketResponse, S], Coroutine[Any, Any, None]]


def agreed(
    request: web.Request, verb: str, protocols: Sequence[str] = PROTOCOLS, message_bytes_max: int = _MESSAGE_BYTES_MAX
) -> web.WebSocketResponse:
    """The socket that the request asks for; it is open once it is prepared. Raises StatusFailure where it asks for none that is
    served."""
    if request.headers.get("Upgrade", "").lower() != "websocket" or not any(one in protocols for one in offered(request)):
        spoken = ", ".join(protocols)
        text = f"{verb} is served over WebSockets ({spoken}), which kubectl speaks since 1.31; SPDY alone is not served"
        raise bad_request(text)
    socket = web.WebSocketResponse(protocols=protocols, max_msg_size=message_bytes_max)
    if not socket.can_prepare(request).ok:
        raise bad_request(f"{verb}: the handshake of a WebSocket has no key, or is of a version or a connection that is none")
    return socket


def is_told_on_the_socket(request: web.Request) -> bool:
    """Where the client learns what is refused."""
    return offered(request) == [PROTOCOLS[0]]


def offered(request: web.Request) -> list[str]:
    """Protocols that the client speaks."""
    return [one.strip() for one in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]


def bytes_of(message: WSMessage) -> bytes:
    """With the channel as the first one; empty: the message has none."""
    match message.type:
        case WSMsgType.BINARY:
            return bytes(message.data)
        case WSMsgType.TEXT:
            return str(message.data).encode()
        case _:
            return b""


async def carry(
    request: web.Request,
    socket: web.WebSocketResponse,
    stream: S,
    subject: StatusSubject,
    read: Carrying[S],
    write: Carrying[S],
    ended: Callable[[], dict[str, Any]],
) -> web.WebSocketResponse:
    """Between the socket and a stream into a pod, until what `write` waits for is over; then tells how it `ended`. Raises
    StatusFailure where the stream does not begin, and the client is told before the socket is open."""
    if is_told_on_the_socket(request):
        await socket.prepare(request)
        try:
            async with stream:
                status = await _carried(socket, stream, subject, read, write, ended)
        except ApiError as error:
            status = of_stream_error(error, subject).document()
        await end(socket, status)
        return socket
    async with contextlib.AsyncExitStack() as owned:
        try:
            await owned.enter_async_context(stream)
        except ApiError as error:
            raise of_stream_error(error, subject) from None
        await socket.prepare(request)
        status = await _carried(socket, stream, subject, read, write, ended)
    await end(socket, status)
    return socket


async def _carried(
    socket: web.WebSocketResponse,
    stream: S,
    subject: StatusSubject,
    read: Carrying[S],
    write: Carrying[S],
    ended: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    """How it ended."""
    reader = asyncio.create_task(read(socket, stream))
    try:
        await write(socket, stream)
        return ended()
    except ApiError as error:
        return of_stream_error(error, subject).document()
    finally:
        reader.cancel()


async def end(socket: web.WebSocketResponse, status: dict[str, Any]) -> None:
    """The last message says how it ended."""
    await socket.send_bytes(bytes([ERROR]) + json.dumps(status).encode())
    await socket.close()
