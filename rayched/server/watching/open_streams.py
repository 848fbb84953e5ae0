"""The streams that a service has open, and their common end when the replica stops.

A stream runs in the task that gRPC gave its call. `close` ends every one with the failure that its service chose, and lets no
new one begin. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from rayched.server.errors import ApiFailure, unavailable

_END_SECONDS_MAX: Final = 1.0


class OpenStreams:
    """All streams of one service."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()
        self._closing = False

    def __len__(self) -> int:
        return len(self._tasks)

    def refuse_when_closing(self) -> None:
        if self._closing:
            raise shutting_down()

    async def run(self, work: Callable[[], Awaitable[None]], when_closed: Callable[[], ApiFailure]) -> None:
        """Runs a stream in the present task; raises `when_closed()` where `close` ended it."""
        self.refuse_when_closing()
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await work()
        except asyncio.CancelledError:
            if not self._closing:
                raise
            task.uncancel()
            raise when_closed() from None
        finally:
            self._tasks.discard(task)

    async def close(self) -> None:
        """Ends the streams; new ones are refused."""
        self._closing = True
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_END_SECONDS_MAX)


def shutting_down() -> ApiFailure:
    return unavailable("this replica is shutting down")
