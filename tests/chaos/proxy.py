"""TCP links that can be slow, silent in either direction, or broken, between any two processes on this host.

A link listens on a port of its own and passes bytes on to its target. `delay_seconds` holds every byte in each direction,
`request_delay_seconds` those to the target; a silent direction passes nothing on and loses nothing, as a network that drops
packets looks to TCP; a cut link ends its connections and takes no new ones. All links of a `Network` live on one thread.

A link to etcd knows a leader's writes when it sees them, and which of them it handed over late: requests are not compressed, and
epoch and attempt stand in each write as protobuf has them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Self

from rayched.audit.auditor import LateWrite

_CHUNK_BYTES = 1 << 16
_LOOK_SECONDS = 0.005
_CHUNKS_MAX = 64
_LEADER_WRITE: Final = re.compile(rb"\x10([\x80-\xff]{0,8}[\x00-\x7f])\x1a.([0-9a-f]{32}-(?:[a-z]+-)?[0-9]+)(?![0-9])", re.DOTALL)
"""Epoch and attempt of a LeaderWrite: field 2, a varint, and field 3, a string."""


def leader_writes_in(data: bytes) -> set[tuple[int, str]]:
    """Epoch and attempt of each leader's write that stands whole in these bytes."""
    return {
        (sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(epoch)), attempt.decode())
        for epoch, attempt in _LEADER_WRITE.findall(data)
    }


class Link:
    """One listening port and its target. Its properties may be set by any thread at any time."""

    def __init__(self, name: str, target: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self.delay_seconds = 0.0
        self.request_delay_seconds = 0.0
        """Beside that, on the way to the target alone."""
        self.silent_to_target = False
        self.silent_to_client = False
        self.address = ""
        self.connections = 0
        """Taken so far."""
        self.held: set[tuple[int, str]] = set()
        """Epoch and attempt of each leader's write that lies here and is not to reach the target."""
        self.late: list[LateWrite] = []
        """Those of them that were handed over after all."""
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._loop = loop
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    def cut(self) -> None:
        """Ends all connections and refuses new ones until `heal`."""
        self._is_cut = True
        self._loop.call_soon_threadsafe(self._abort)

    def hold(self) -> None:
        """Keeps everything that is to reach the target, until `heal`."""
        self.held = set()
        self.silent_to_target = True

    def heal(self) -> None:
        """Passes everything on again, at once."""
        self._is_cut = self.silent_to_target = self.silent_to_client = False
        self.delay_seconds = self.request_delay_seconds = 0.0

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._abort()

    def _abort(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            if self._is_cut:
                return
            to_reader, to_writer = await asyncio.open_connection(self._host, self._port)
            self._writers.add(to_writer)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pump(reader, to_writer, towards_target=True))
                    group.create_task(self._pump(to_reader, writer, towards_target=False))
            finally:
                self._writers.discard(to_writer)
                to_writer.transport.abort()
        except* (OSError, asyncio.CancelledError):
            pass  # one side has gone; so does the other
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, towards_target: bool) -> None:
        chunks: asyncio.Queue[tuple[float, bytes, set[tuple[int, str]]]] = asyncio.Queue(_CHUNKS_MAX)

        async def take() -> None:
            while True:
                data = await reader.read(_CHUNK_BYTES)
                held = leader_writes_in(data) if towards_target and self.silent_to_target else set()
                self.held |= held
                await chunks.put((time.monotonic(), data, held))
                if not data:
                    return

        async def give() -> None:
            while True:
                came, data, held = await chunks.get()
                while self._is_silent(towards_target) or time.monotonic() < came + self._delay(towards_target):
                    await asyncio.sleep(_LOOK_SECONDS)
                if not data:
                    writer.write_eof()
                    return
                now = time.monotonic()
                self.late += [LateWrite(epoch, attempt, now) for epoch, attempt in held]
                writer.write(data)
                await writer.drain()

        async with asyncio.TaskGroup() as group:
            group.create_task(take())
            group.create_task(give())

    def _delay(self, towards_target: bool) -> float:
        return self.delay_seconds + (self.request_delay_seconds if towards_target else 0.0)

    def _is_silent(self, towards_target: bool) -> bool:
        return self.silent_to_target if towards_target else self.silent_to_client


class Network:
    """The links of a cluster. A context manager."""

    link_class: type[Link] = Link

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self.links: dict[str, Link] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(TimeoutError):
            for link in self.links.values():
                self._run(link.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)

    def link(self, name: str, target: str) -> Link:
        """A new link to host:port."""
        link = self.links[name] = self.link_class(name, target, self._loop)
        self._run(link.listen())
        return link

    def heal(self) -> None:
        for link in self.links.values():
            link.heal()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(5.0)
