"""Bytes that a replica holds for its callers: counted before they are read or written, for each caller and in all.

Who finds no room waits for it, each caller in a line of its own; lines take turns. A caller without room holds up itself alone.
One for whom there is no room in all is not overtaken by smaller ones.

Owner: the event loop. Cost: a look-up where there is room, a walk over the lines where there is none.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass


class NoRoom(Exception):
    """There was none in time."""


@dataclass(slots=True, eq=False)
class _ByteRequest:
    size: int
    limit: int
    granted: asyncio.Future[None]


class ByteBudget:
    """The bytes of one replica."""

    def __init__(self, total: int) -> None:
        self._total = total
        self.held = 0
        self._of_key: Counter[str] = Counter()
        self._lines: dict[str, deque[_ByteRequest]] = {}

    def of(self, key: str) -> int:
        return self._of_key[key]

    def has_room(self, key: str, size: int, limit: int) -> bool:
        """A caller, or a replica, that holds nothing may hold anything."""
        own, held = self._of_key[key], self.held
        return (not own or own + size <= limit) and (not held or held + size <= self._total)

    async def hold(self, key: str, size: int, limit: int, wait_seconds: float | None) -> None:
        """Counts so many bytes as held by a caller that may hold `limit`. Raises NoRoom after `wait_seconds`; None: never."""
        if self.take(key, size, limit):
            return
        request = _ByteRequest(size, limit, asyncio.get_running_loop().create_future())
        self._lines.setdefault(key, deque()).append(request)
        self._grant()
        try:
            async with asyncio.timeout(wait_seconds):
                await request.granted
        except BaseException as error:
            if request.granted.done() and not request.granted.cancelled():
                # It had room just when it gave up.
                self.give_back(key, size)
            else:
                self._leave(key, request)
                self._grant()
            if isinstance(error, TimeoutError):
                raise NoRoom from None
            raise

    def take(self, key: str, size: int, limit: int) -> bool:
        """As `hold`, where nobody waits and there is room; else False, and nothing is counted."""
        found = not self._lines and self.has_room(key, size, limit)
        if found:
            self.add(key, size)
        return found

    def add(self, key: str, size: int) -> None:
        """Counts bytes that are there already."""
        self.held += size
        self._of_key[key] += size

    def give_back(self, key: str, size: int) -> None:
        self.held -= size
        self._of_key[key] -= size
        if not self._of_key[key]:
            del self._of_key[key]
        if self._lines:
            self._grant()

    def _grant(self) -> None:
        """To those who have room by now; a line that got something goes behind the others."""
        found = True
        while found:
            found = False
            for key, line in list(self._lines.items()):
                first = line[0]
                if self.held and self.held + first.size > self._total:
                    return
                if first.granted.done() or self.has_room(key, first.size, first.limit):
                    self._leave(key, first)
                    if not first.granted.done():
                        self.add(key, first.size)
                        first.granted.set_result(None)
                    if key in self._lines:
                        self._lines[key] = self._lines.pop(key)
                    found = True

    def _leave(self, key: str, request: _ByteRequest) -> None:
        line = self._lines.get(key)
        if line is not None and request in line:
            line.remove(request)
            if not line:
                del self._lines[key]
