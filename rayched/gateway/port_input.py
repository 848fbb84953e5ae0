"""One connection to a port of a pod: what its client sends until the pod takes it, and what the pod says.

Owner: the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from rayched.client.async_two_way import AsyncPortStream

MESSAGE_BYTES_MAX: Final = 256 << 10
WAITING_MAX: Final = 4
"""Messages of one connection. Who has more to say waits, and whoever shares a socket with it."""
_PORT_MAX: Final = 65_535


class PortInput:
    """One puts in, one sends on."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(WAITING_MAX)
        """Empty bytes are the end."""
        self._is_over = False

    async def put(self, data: bytes) -> None:
        """Waits while the pod reads slowly, and until the connection is over at most. Empty: nothing more comes."""
        if not self._is_over:
            await self._waiting.put(data)

    async def send_to(self, stream: AsyncPortStream) -> None:
        """To its end."""
        while data := await self._waiting.get():
            await stream.write(data)
        await stream.end_input()

    def end(self) -> None:
        """Nothing is taken any more."""
        self._is_over = True
        # Wakes who waits to put something in.
        while not self._waiting.empty():
            self._waiting.get_nowait()


async def exchange(connection: AsyncPortStream, given: PortInput, say: Callable[[bytes], Awaitable[None]]) -> None:
    """Until the pod has said all. Raises ApiError, and what `say` raises."""
    async with connection as stream:
        sending = asyncio.create_task(given.send_to(stream))
        try:
            async for data in stream:
                await say(data)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


def why_failed(port: int, pod: str, message: str) -> bytes:
    """What a client is told of a connection that there is none of, or no more."""
    return f"error forwarding port {port} to pod {pod}: {message}".encode()


def port_of(text: str) -> int | None:
    """None: the text is none."""
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(_PORT_MAX)):
        return None
    return int(text) if 0 < int(text) <= _PORT_MAX else None
