"""Pipes and terminals read and written in an event loop. A descriptor has one reader and one writer at a time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any, Final

READ_BYTES: Final = 32 << 10


class DescriptorReader:
    """The descriptor does not block."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.waiting_since: float | None = None
        """Since when there has been nothing to read, in seconds of `time.monotonic`; None: it does not wait."""

    async def read(self) -> bytes:
        """Empty at the end; a terminal is at its end when nobody has it open any more."""
        while True:
            try:
                return os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                self.waiting_since = time.monotonic()
                try:
                    await _until(asyncio.get_running_loop().add_reader, asyncio.get_running_loop().remove_reader, self._fd)
                finally:
                    self.waiting_since = None
            except OSError:
                return b""


async def write_all(fd: int, data: bytes) -> bool:
    """False: nobody reads any more. The descriptor does not block."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            await _until(asyncio.get_running_loop().add_writer, asyncio.get_running_loop().remove_writer, fd)
        except OSError:
            return False
    return True


async def _until(begin: Callable[..., Any], end: Callable[[int], Any], fd: int) -> None:
    """The descriptor is ready."""
    ready = asyncio.Event()
    begin(fd, ready.set)
    try:
        await ready.wait()
    finally:
        end(fd)
