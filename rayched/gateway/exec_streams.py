"""Programs in containers, as `kubectl exec` runs them over a WebSocket (remote_channels.py).

Who wants one knows the token of the pod's node. It comes as the request's bearer token, and the gateway proves with it what
`rayched exec` proves; neither the replica nor the node is told it.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any, Final

from aiohttp import web

from rayched.client.async_two_way import AsyncExecStream
from rayched.gateway import remote_channels
from rayched.gateway.calls import GatewayCall
from rayched.gateway.identity import node_token_of
from rayched.gateway.queries import flag
from rayched.gateway.remote_channels import CLOSE, ENDED_WELL, RESIZE, STDERR, STDIN, STDOUT
from rayched.gateway.statuses import bad_request

_TERMINAL_MAX: Final = 0xFFFF


async def serve_exec(request: web.Request, call: GatewayCall) -> web.StreamResponse:
    """Raises StatusFailure where the request is none for a program."""
    command = request.query.getall("command", [])
    if not command:
        raise bad_request("command: at least one word is required")
    token = node_token_of(request)
    socket = remote_channels.agreed(request, "exec")
    stream = call.client.exec(
        call.path.name,
        command,
        call.path.namespace,
        container=call.query.get("container", ""),
        stdin=flag(call.query, "stdin"),
        tty=flag(call.query, "tty"),
        token=token,
    )
    return await remote_channels.carry(request, socket, stream, call.subject, _read, _write, lambda: _ended(stream.exit_code))


async def _write(socket: web.WebSocketResponse, stream: AsyncExecStream) -> None:
    """What the program writes. Raises ApiError where its end is not known."""
    async for output in stream:
        await socket.send_bytes(bytes([STDOUT if output.stream == "stdout" else STDERR]) + output.data)


def _ended(exit_code: int | None) -> dict[str, Any]:
    if not exit_code:
        return ENDED_WELL
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
        whole = remote_channels.bytes_of(message)
        if not whole:
            continue
        channel, data = whole[0], whole[1:]
        if channel == STDIN and data:
            await stream.write(data)
        elif channel == RESIZE:
            await _resize(stream, data)
        elif channel == CLOSE and data[:1] == bytes([STDIN]):
            await stream.end_input()
    await stream.end_input()


async def _resize(stream: AsyncExecStream, data: bytes) -> None:
    """A size that is none is left out: the terminal keeps the one that it has."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        size = json.loads(data)
        columns, rows = int(size["Width"]), int(size["Height"])
        if 0 < columns <= _TERMINAL_MAX and 0 < rows <= _TERMINAL_MAX:
            await stream.resize(columns, rows)
