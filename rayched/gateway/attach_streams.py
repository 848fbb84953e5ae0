"""What a container writes from now on, as `kubectl attach` shows it: its log, followed, over a WebSocket.

The log has whole lines of standard output and standard error in the order in which they were written, so all of it comes as
standard output, and a line once it is complete. It ends when the container does. Who may read the log may attach.

Containers have no standard input and no terminal: who wants to write to one is told so.
"""

from __future__ import annotations

from aiohttp import web

from rayched.client.async_streaming import AsyncLogStream
from rayched.gateway import remote_channels
from rayched.gateway.calls import GatewayCall
from rayched.gateway.logs import LOST
from rayched.gateway.objects import stored
from rayched.gateway.queries import flag
from rayched.gateway.remote_channels import ENDED_WELL, STDERR, STDOUT
from rayched.gateway.statuses import bad_request

_NO_INPUT = (
    "attach: containers have no standard input here: attach without --stdin (-i), or run a program that has one with exec -i"
)


async def serve_attach(request: web.Request, call: GatewayCall) -> web.StreamResponse:
    """Raises StatusFailure where the request is none for a socket."""
    wants_input = flag(call.query, "stdin")
    stream = call.client.logs(
        call.path.name, call.path.namespace, container=call.query.get("container", ""), follow=True, tail_lines=0
    )
    socket = remote_channels.agreed(request, "attach")
    if not remote_channels.is_told_on_the_socket(request):
        if wants_input:
            raise bad_request(_NO_INPUT)
        # A log that is followed begins with its first line: what can be refused before is that the pod is there.
        await stored(call)
    elif wants_input:
        await socket.prepare(request)
        await remote_channels.end(socket, bad_request(_NO_INPUT).document())
        return socket
    return await remote_channels.carry(request, socket, stream, call.subject, _close_with, _write, lambda: ENDED_WELL)


async def _write(socket: web.WebSocketResponse, stream: AsyncLogStream) -> None:
    """Until the container ends. Raises ApiError."""
    async for chunk in stream:
        if chunk.lost:
            await socket.send_bytes(bytes([STDERR]) + LOST)
        if chunk.data:
            await socket.send_bytes(bytes([STDOUT]) + chunk.data)


async def _close_with(socket: web.WebSocketResponse, stream: AsyncLogStream) -> None:
    """A client that leaves ends the stream, also while the container says nothing."""
    async for _ in socket:
        continue
    stream.close()
