"""Ports of pods over channels, as the official Python client opens them: a WebSocket for some ports, one connection to each.

Messages begin with the number of a channel. The first port that the request names has channel 0 for data and channel 1 for why it
failed, the next one 2 and 3, and so on. The first message on each channel is the port, in two bytes, the lower one first.

The connections begin with the socket. Neither side can say that one of them is over: the socket is closed once the pod has said
all on every one, and what is open when the client leaves ends with it. What a client sends faster than a pod reads is kept up to
four messages; then its socket is not read, and its other ports wait too.

Source: portforward of the kubelet over WebSockets, Kubernetes 1.34.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from aiohttp import web

from rayched.client.async_two_way import AsyncPortStream
from rayched.client.errors import ApiError
from rayched.gateway import remote_channels
from rayched.gateway.port_input import PortInput, exchange, port_of, why_failed
from rayched.gateway.statuses import bad_request

CHANNELS: Final = "v4.channel.k8s.io"
CHANNEL_BYTES_MAX: Final = (1 << 20) + 1
"""Of a message. The official client reads a mebibyte at a time of what it sends on."""
PORTS_MAX: Final = 16


def ports_of(given: Sequence[str]) -> list[int]:
    """What `ports` in a query names, once or several times, with commas or without. Raises StatusFailure."""
    found: list[int] = []
    for text in ",".join(given).split(",") if given else ():
        port = port_of(text)
        if port is None or port in found or len(found) == PORTS_MAX:
            raise bad_request(f'ports: found "{text[:40]}", want {PORTS_MAX} numbers from 1 to 65535 at most, each once')
        found.append(port)
    return found


class ChannelForwarding:
    """Of one client. Owner: the event loop."""

    def __init__(
        self, socket: web.WebSocketResponse, connection: Callable[[int], AsyncPortStream], pod: str, ports: Sequence[int]
    ) -> None:
        self._socket = socket
        self._connection = connection
        self._pod = pod
        self._ports = tuple(ports)
        self._inputs = [PortInput() for _ in ports]

    async def run(self) -> None:
        """Until the pod has said all, or the client leaves."""
        async with asyncio.TaskGroup() as tasks:
            carrying = [tasks.create_task(self._carry(number)) for number in range(len(self._ports))]
            reading, said = tasks.create_task(self._read()), tasks.create_task(_ended(carrying))
            await asyncio.wait((reading, said), return_when=asyncio.FIRST_COMPLETED)
            for task in (reading, said, *carrying):
                task.cancel()

    async def _read(self) -> None:
        """Until the client leaves."""
        async for message in self._socket:
            whole = remote_channels.bytes_of(message)
            # Nobody writes where errors are told.
            if len(whole) > 1 and whole[0] % 2 == 0 and whole[0] // 2 < len(self._inputs):
                await self._inputs[whole[0] // 2].put(whole[1:])

    async def _carry(self, number: int) -> None:
        """One connection, to its end."""
        port, channel = self._ports[number], 2 * number

        async def say(data: bytes, channel: int = channel) -> None:
            await self._socket.send_bytes(bytes([channel]) + data)

        # The client has left: its socket's end is noticed where it is read.
        with contextlib.suppress(ConnectionError):
            try:
                for one in (channel, channel + 1):
                    await say(port.to_bytes(2, "little"), one)
                await exchange(self._connection(port), self._inputs[number], say)
            except ApiError as error:
                await say(why_failed(port, self._pod, error.message), channel + 1)
            finally:
                self._inputs[number].end()


async def _ended(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Once all are."""
    await asyncio.wait(tasks)
