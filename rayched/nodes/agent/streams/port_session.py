"""Carries one TCP connection from a client to a port of a pod, which is one of this host."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from rayched.nodes.agent.streams.refusals import Code, StreamRefusal
from rayched.nodes.agent.streams.replica_stream import ReplicaStream, cancelled
from rayched.v1.streams_pb2 import AgentFrame, PortForwardResponse, PortForwardStart

_HOST: Final = "127.0.0.1"
_CONNECT_SECONDS: Final = 10.0
_READ_BYTES: Final = 64 << 10


class PortSession:
    """One of them for each connection."""

    def __init__(self, start: PortForwardStart, stream: ReplicaStream) -> None:
        self._start = start
        self._stream = stream

    async def run(self) -> None:
        """Until both sides have said all. Raises StreamRefusal and HungUp."""
        port = self._start.port
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(_HOST, port)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else "no answer in time"
            text = f'pod "{self._start.pod}": cannot connect to port {port}: {why}'
            raise StreamRefusal(Code.FAILED_PRECONDITION, text) from None
        up = asyncio.create_task(self._up(writer))
        down = asyncio.create_task(self._down(reader))
        try:
            await self._send(PortForwardResponse(connected=True))
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_EXCEPTION)
            for task in (up, down):
                if task.done():
                    task.result()
        except OSError as error:
            text = f'pod "{self._start.pod}": the connection to port {port} broke: {error.strerror or error}'
            raise StreamRefusal(Code.ABORTED, text) from None
        finally:
            await cancelled(up, down)
            # Not all that a client asked for may have been taken, and nobody is there any more to take it.
            writer.transport.abort() if not _is_through(up, down) else writer.close()

    async def _up(self, writer: asyncio.StreamWriter) -> None:
        while True:
            frame = (await self._stream.read()).port_forward
            if frame.WhichOneof("frame") == "data":
                writer.write(frame.data)
                await writer.drain()
            elif frame.end:
                writer.write_eof()
                return

    async def _down(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_READ_BYTES):
            await self._send(PortForwardResponse(data=data))
        await self._send(PortForwardResponse(end=True))

    async def _send(self, response: PortForwardResponse) -> None:
        await self._stream.write(AgentFrame(port_forward=response))


def _is_through(*tasks: asyncio.Task[None]) -> bool:
    return all(task.done() and not task.cancelled() and task.exception() is None for task in tasks)
