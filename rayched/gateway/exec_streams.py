"""Programs in containers, as `kubectl exec` runs them: over a WebSocket whose messages begin with the number of a channel.

    0 standard input   1 standard output   2 standard error   3 how it ended, a Status   4 terminal size   255 a channel ends

Who wants one knows the token of the pod's node. It comes as the request's bearer token, and the gateway proves with it what
`rayched exec` proves; neither the replica nor the node is told it.

Source: remotecommand of client-go and v5.channel.k8s.io, Kubernetes 1.34.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, Final

import grpc
from aiohttp import WSMsgType, web

from rayched.client.async_two_way import AsyncExecStream
from rayched.client.errors import ApiError
from rayched.gateway.calls import GatewayCall
from rayched.gateway.identity import node_token_of
from rayched.gateway.queries import flag
from rayched.gateway.statuses import StatusFailure, bad_request, of_api_error

PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_MESSAGE_BYTES_MAX: Final = 1 << 20
_TERMINAL_MAX: Final = 0xFFFF


async def serve_exec(request: web.Request, call: GatewayCall) -> web.StreamResponse:
    """Raises StatusFailure where the request is none for a program.

    What the replica or the node refuses is told on the socket: any other answer means to kubectl that there are no WebSockets.
    """
    command = request.query.getall("command", [])
    if not command:
        raise bad_request("command: at least one word is required")
    stream = call.client.exec(
        call.path.name,
        command,
        call.path.namespace,
        container=call.query.get("container", ""),
        stdin=flag(call.query, "stdin"),
        tty=flag(call.query, "tty"),
        token=node_token_of(request),
    )
    _check_upgrade(request)
    socket = web.WebSocketResponse(protocols=PROTOCOLS, max_msg_size=_MESSAGE_BYTES_MAX)
    await socket.prepare(request)
    try:
        async with stream:
            reader = asyncio.create_task(_read(socket, stream))
            try:
                await _write(socket, stream)
            finally:
                reader.cancel()
            ended = _ended(stream.exit_code)
    except ApiError as error:
        ended = _failure(error, call).document()
    await socket.send_bytes(bytes([_ERROR]) + json.dumps(ended).encode())
    await socket.close()
    return socket


def _check_upgrade(request: web.Request) -> None:
    offered = [one.strip() for one in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    if request.headers.get("Upgrade", "").lower() != "websocket" or not any(one in PROTOCOLS for one in offered):
        raise bad_request("exec is served over WebSockets, which kubectl speaks since 1.31; SPDY is not served")


async def _write(socket: web.WebSocketResponse, stream: AsyncExecStream) -> None:
    """What the program writes. Raises ApiError where its end is not known."""
    async for output in stream:
        await socket.send_bytes(bytes([_STDOUT if output.stream == "stdout" else _STDERR]) + output.data)


def _ended(exit_code: int | None) -> dict[str, Any]:
    if not exit_code:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {exit_code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(exit_code)}]},
    }


async def _read(socket: web.WebSocketResponse, stream: AsyncExecStream) -> None:
    """What the client sends. When it goes, the program's input ends."""
    async for message in socket:
        if message.type is not WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == _STDIN and data:
            await stream.write(data)
        elif channel == _RESIZE:
            await _resize(stream, data)
        elif channel == _CLOSE and data[:1] == bytes([_STDIN]):
            await stream.end_input()
    await stream.end_input()


async def _resize(stream: AsyncExecStream, data: bytes) -> None:
    """A size that is none is left out: the terminal keeps the one that it has."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        size = json.loads(data)
        columns, rows = int(size["Width"]), int(size["Height"])
        if 0 < columns <= _TERMINAL_MAX and 0 < rows <= _TERMINAL_MAX:
            await stream.resize(columns, rows)


def _failure(error: ApiError, call: GatewayCall) -> StatusFailure:
    if error.code is grpc.StatusCode.NOT_FOUND:
        return StatusFailure(404, "NotFound", error.message, subject=call.subject)
    if error.code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED):
        return bad_request(error.message)
    return of_api_error(error, call.subject)
