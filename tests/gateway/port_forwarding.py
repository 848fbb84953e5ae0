"""Port-forwards by hand, whose frames are what the test wants them to be; and TLS before a gateway that has none.

kubectl sends a token over TLS alone. So what the tests of nodes start without certificates has a front with one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from rayched.gateway.spdy_frames import SpdyData, SpdyFrame, SpdyReader, SpdyWriter
from rayched.pki.tls_files import TlsFiles

PROTOCOL = "SPDY/3.1+portforward.k8s.io"
SECONDS_MAX = 60.0


class RawPortForward:
    """A client of one pod's ports."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.writer = SpdyWriter()
        self._reader = SpdyReader()
        self._next_stream = 1
        self._kept: list[SpdyFrame] = []

    async def send(self, frame: bytes) -> None:
        """In pieces, as spdystream sends a frame."""
        for start in range(0, len(frame), 5):
            await self.socket.send_bytes(frame[start : start + 5])

    async def open(self, kind: str, port: Any, request: str = "0") -> int:
        """A stream with these headers, and its number."""
        stream = self._next_stream
        self._next_stream += 2
        await self.send(self.writer.opening(stream, {"streamtype": kind, "port": str(port), "requestid": request}))
        return stream

    async def connect(self, port: int, request: str = "0") -> tuple[int, int]:
        """The streams of a connection: for data, and for why it failed."""
        error = await self.open("error", port, request)
        await self.send(self.writer.data(error, b"", is_last=True))
        return await self.open("data", port, request), error

    async def frame(self) -> SpdyFrame:
        """The next one that is whole. ConnectionError: there are no more."""
        while not self._kept:
            message = await self.socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                raise ConnectionError(f"the socket ended: {message}")
            self._kept += self._reader.take(message.data)
        return self._kept.pop(0)

    async def said(self, *streams: int) -> list[bytes]:
        """What comes on these streams, to the end of each."""
        found = dict.fromkeys(streams, b"")
        left = set(streams)
        while left:
            match await self.frame():
                case SpdyData(stream=stream, data=data, is_last=is_last) if stream in found:
                    found[stream] += data
                    left -= {stream} if is_last else set()
        return [found[stream] for stream in streams]


@contextlib.asynccontextmanager
async def port_forward(url: str, pod: str, token: str) -> AsyncIterator[RawPortForward]:
    place = f"{url}/api/v1/namespaces/default/pods/{pod}/portforward"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        asyncio.timeout(SECONDS_MAX),
        aiohttp.ClientSession() as session,
        session.ws_connect(place, protocols=(PROTOCOL,), headers=headers) as socket,
    ):
        assert socket.protocol == PROTOCOL
        yield RawPortForward(socket)


@contextlib.contextmanager
def tls_before(url: str, files: TlsFiles) -> Iterator[str]:
    """Whoever connects speaks TLS, and reaches what listens at this URL without it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    host, port = urlsplit(url).hostname, urlsplit(url).port
    loop = asyncio.new_event_loop()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(host, port)
        await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))

    server = loop.run_until_complete(asyncio.start_server(carry, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        server.close()
        loop.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
