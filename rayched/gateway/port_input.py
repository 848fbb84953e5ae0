"""What a client sends into one connection to a port, until the pod takes it. Owner: the event loop."""

from __future__ import annotations

import asyncio
from typing import Final

from rayched.client.async_two_way import AsyncPortStream

MESSAGE_BYTES_MAX: Final = 256 << 10
WAITING_MAX: Final = 4
"""Messages of one connection. Who has more to say waits, and whoever shares a socket with it."""


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
