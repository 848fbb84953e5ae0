"""Links that know HTTP/2 well enough to hold back what a server streams, and to catch a request by what stands in it.

* `hold_streams` keeps the data that the target sends on calls whose client has not finished sending, which are watches and
  keepalives, while all other calls are answered: etcd works, and nobody hears of changes.
* `loses` names requests that get lost one by one.
* `catch` waits for a request that has all of these bytes in one frame. A request that is stopped never reaches the target,
  and nothing else on its connection does; one that passes is the last that this connection has an answer for. Either way the
  connection stays open, silent, until `break_caught`.

Source: RFC 9113, sections 4.1, 5.1 and 6.1. Requests to etcd are not compressed. Cost: one look at each frame.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from tests.chaos.proxy import Link, Network

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADER_BYTES: Final = 9
_DATA, _HEADERS, _RST_STREAM = 0, 1, 3
_END_STREAM: Final = 1
_CHUNK_BYTES: Final = 1 << 16


class Frames:
    """Cuts bytes into whole frames; what is not whole yet waits."""

    def __init__(self, skip: bytes = b"") -> None:
        self._skip = len(skip)
        self._rest = b""

    def take(self, data: bytes) -> list[bytes]:
        rest, frames = self._rest + data, list[bytes]()
        if self._skip:
            if len(rest) < self._skip:
                self._rest = rest
                return []
            frames.append(rest[: self._skip])
            rest, self._skip = rest[self._skip :], 0
        while len(rest) >= _HEADER_BYTES and len(rest) >= (size := _HEADER_BYTES + int.from_bytes(rest[:3], "big")):
            frames.append(rest[:size])
            rest = rest[size:]
        self._rest = rest
        return frames


def stream_of(frame: bytes) -> int:
    return int.from_bytes(frame[5:9], "big") & 0x7FFFFFFF


class OpenCalls:
    """The streams of a connection whose client may still send."""

    def __init__(self) -> None:
        self._open: set[int] = set()

    def sent(self, frame: bytes) -> None:
        """A frame on its way to the target, or the preface."""
        if frame == _PREFACE:
            return
        kind, flags, stream = frame[3], frame[4], stream_of(frame)
        if kind == _RST_STREAM or (kind in (_DATA, _HEADERS) and flags & _END_STREAM):
            self._open.discard(stream)
        elif kind == _HEADERS:
            self._open.add(stream)

    def streams(self, frame: bytes) -> bool:
        """Whether a frame from the target is what an open call tells."""
        return frame[3] == _DATA and stream_of(frame) in self._open


class Trap:
    """See the module."""

    def __init__(self, markers: tuple[bytes, ...], without: bytes, *, passes: bool, holds_streams: bool) -> None:
        self._markers, self._without = markers, without
        self.passes, self.holds_streams = passes, holds_streams
        self.caught = threading.Event()
        self.connection: _Connection | None = None

    def takes(self, frame: bytes) -> bool:
        if self.caught.is_set() or (self._without and self._without in frame):
            return False
        return all(marker in frame for marker in self._markers)


class _Connection:
    def __init__(self, link: TrapLink, client: asyncio.StreamWriter, target: asyncio.StreamWriter) -> None:
        self._link = link
        self._client, self._target = client, target
        self._requests, self._answers = Frames(_PREFACE), Frames()
        self._calls = OpenCalls()
        self._held: list[bytes] = []
        self._trap: Trap | None = None

    def to_target(self, data: bytes) -> None:
        for frame in self._requests.take(data):
            trap = self._link.trap
            if self._trap is not None:
                return
            if trap is not None and trap.takes(frame):
                self._trap, trap.connection = trap, self
                # Before the target has the request, or what it comes to might be told.
                self._link.hold_streams |= trap.holds_streams
                if trap.passes:
                    self._target.write(frame)
                trap.caught.set()
            elif not self._is_lost(frame):
                self._calls.sent(frame)
                self._target.write(frame)

    def _is_lost(self, frame: bytes) -> bool:
        markers = self._link.loses
        return bool(markers) and frame[3] == _DATA and all(marker in frame for marker in markers)

    def to_client(self, data: bytes) -> None:
        if self._trap is not None:
            return
        for frame in self._answers.take(data):
            # Both may change meanwhile, and what was held goes before what is not held any more.
            is_silent, holds_streams = self._link.silent_to_client, self._link.hold_streams
            if is_silent or (holds_streams and self._calls.streams(frame)):
                self._held.append(frame)
                continue
            if self._held and not (is_silent or holds_streams):
                self.release()
            self._client.write(frame)

    def release(self) -> None:
        held, self._held = self._held, []
        if self._trap is None:
            self._client.write(b"".join(held))

    def abort(self) -> None:
        self._client.transport.abort()
        self._target.transport.abort()


class TrapLink(Link):
    """A link for HTTP/2. It has no delays, and is silent towards the client alone."""

    def __init__(self, name: str, target: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name, target, loop)
        self.trap: Trap | None = None
        self.takes_new = True
        """Connections; those that are there stay."""
        self.hold_streams = False
        self.loses: tuple[bytes, ...] = ()
        """Requests with all of these bytes never reach the target; others on their connection do."""
        self._open: set[_Connection] = set()

    def catch(self, *markers: bytes, passes: bool, without: bytes = b"", holds_streams: bool = False) -> Trap:
        """The next request with all of these bytes, and without those, falls into the trap. `holds_streams`: from then on they
        are held."""
        self.trap = Trap(markers, without, passes=passes, holds_streams=holds_streams)
        return self.trap

    def break_caught(self) -> None:
        """Ends the connection of what was caught."""
        if self.trap is not None and self.trap.connection is not None:
            self._loop.call_soon_threadsafe(self.trap.connection.abort)
        self.trap = None

    def heal(self) -> None:
        super().heal()
        self.break_caught()
        self.takes_new, self.hold_streams, self.loses = True, False, ()
        self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        for connection in self._open:
            connection.release()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut or not self.takes_new:
            writer.transport.abort()
            return
        try:
            to_reader, to_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(self, writer, to_writer)
        self._open.add(connection)
        self._writers |= {writer, to_writer}

        async def pass_on(source: asyncio.StreamReader, give: object) -> None:
            try:
                while data := await source.read(_CHUNK_BYTES):
                    give(data)  # type: ignore[operator]
            except OSError:
                pass  # one side has gone; so does the other
            finally:
                connection.abort()

        try:
            await asyncio.gather(pass_on(reader, connection.to_target), pass_on(to_reader, connection.to_client))
        finally:
            self._open.discard(connection)
            self._writers -= {writer, to_writer}


class TrapNetwork(Network):
    """A network of such links."""

    link_class = TrapLink
