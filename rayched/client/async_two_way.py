"""Streams both ways for asyncio: programs in containers and ports of pods; the rules are those of two_way.py."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar, Self

import grpc
from google.protobuf.message import Message

from rayched.client.async_transport import AsyncTransport
from rayched.client.errors import ApiError, api_error
from rayched.client.executing import ExecOutput
from rayched.client.forwarding import CONNECTIONS_MAX
from rayched.client.proving import StreamProof
from rayched.client.two_way import FRAME_BYTES, nothing_was_done
from rayched.v1.streams_pb2 import ExecRequest, ExecStart, PortForwardRequest, PortForwardStart, TerminalSize


class AsyncTwoWayStream:
    """Messages to and from one call. One task reads, another one may send."""

    def __init__(self, call: Any, endpoints: str) -> None:
        self._call = call
        self._endpoints = endpoints

    @staticmethod
    async def open(transport: AsyncTransport, name: str, proof: StreamProof) -> AsyncTwoWayStream:
        """When the first message has come that is no challenge. Raises ApiError."""
        async for attempt in transport.attempts(transport.patience.total_seconds, nothing_was_done):
            with attempt:
                endpoint, call = transport.two_way(name)
                stream = AsyncTwoWayStream(call, ", ".join(transport.endpoints.all))
                try:
                    if await stream._begin(proof):
                        return stream
                except grpc.RpcError as error:
                    raise proof.explained(transport.endpoints.failed(endpoint, error)) from None
                except asyncio.InvalidStateError:
                    # It ended before the start, or the proof, was written.
                    pass
                except ApiError:
                    stream.close()
                    raise
                raise proof.explained(await stream.failure())
        raise AssertionError("an attempt returns or raises")

    async def _begin(self, proof: StreamProof) -> bool:
        """Whether a message has come that is no challenge."""
        await self._call.write(proof.first_request)
        first = await self._call.read()
        answer = proof.answer(first) if first is not grpc.aio.EOF else None
        if answer is not None:
            await self._call.write(answer)
            first = await self._call.read()
        return first is not grpc.aio.EOF

    async def send(self, message: Message) -> None:
        """Waits while the network takes no more; nothing is sent any more once the stream has ended."""
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            await self._call.write(message)

    async def read(self) -> Any:
        """The next message; None: the stream has ended. Raises ApiError."""
        try:
            response = await self._call.read()
        except grpc.RpcError as error:
            raise api_error(error, self._endpoints) from None
        return None if response is grpc.aio.EOF else response

    async def failure(self) -> ApiError:
        """Of a stream that ended before its first message."""
        code, details = await self._call.code(), await self._call.details()
        return ApiError(
            grpc.StatusCode.ABORTED if code is grpc.StatusCode.OK else code, details or "the stream ended without a word"
        )

    def close(self) -> None:
        """Idempotent."""
        self._call.cancel()


class _OpenedStream:
    """Begins when it is entered, in an `async with`; then its other methods may be called."""

    _NAME: ClassVar[str]

    def __init__(self, transport: AsyncTransport, proof: StreamProof) -> None:
        self._transport = transport
        self._proof = proof
        self._stream: AsyncTwoWayStream | None = None

    async def __aenter__(self) -> Self:
        """When the program runs, or the pod has taken the connection. Raises ApiError."""
        self._stream = await AsyncTwoWayStream.open(self._transport, self._NAME, self._proof)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        if self._stream is not None:
            self._stream.close()

    def _opened(self) -> AsyncTwoWayStream:
        if self._stream is None:
            raise RuntimeError("it has not begun; use `async with`")
        return self._stream


class AsyncExecStream(_OpenedStream):
    """Iterates over a program's output until its end; then `exit_code` is there. Closing kills the program."""

    _NAME = "Exec.Stream"

    def __init__(self, transport: AsyncTransport, start: ExecStart, token: str) -> None:
        super().__init__(transport, StreamProof(token, start))
        self.exit_code: int | None = None
        """128 + the number of the signal that killed it."""

    async def __aiter__(self) -> AsyncIterator[ExecOutput]:
        while (response := await self._opened().read()) is not None:
            field = response.WhichOneof("frame")
            if field == "exit":
                self.exit_code = response.exit.code
                return
            if field in ("stdout", "stderr"):
                yield ExecOutput(field, getattr(response, field))
        raise ApiError(grpc.StatusCode.ABORTED, "the stream ended before the program did")

    async def write(self, data: bytes) -> None:
        """To its standard input; waits while the program reads slowly."""
        for start in range(0, len(data), FRAME_BYTES):
            await self._opened().send(ExecRequest(stdin=data[start : start + FRAME_BYTES]))

    async def end_input(self) -> None:
        """Nothing more comes on its standard input."""
        await self._opened().send(ExecRequest(end_of_input=True))

    async def resize(self, columns: int, rows: int) -> None:
        """Of its terminal."""
        await self._opened().send(ExecRequest(resize=TerminalSize(columns=columns, rows=rows)))


class AsyncPortStream(_OpenedStream):
    """One connection to a port of a pod. Iterates over what comes from there, to its end; closing ends both directions."""

    _NAME = "PortForward.Stream"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (response := await self._opened().read()) is not None:
            if response.WhichOneof("frame") == "data":
                yield response.data
            elif response.end:
                return

    async def finished(self) -> None:
        """Once the pod has taken all as well. Raises ApiError."""
        while await self._opened().read() is not None:
            continue

    async def write(self, data: bytes) -> None:
        """To the pod; waits while it reads slowly."""
        for start in range(0, len(data), FRAME_BYTES):
            await self._opened().send(PortForwardRequest(data=data[start : start + FRAME_BYTES]))

    async def end_input(self) -> None:
        """Nothing more comes from this side."""
        await self._opened().send(PortForwardRequest(end=True))


class AsyncPortForwarder:
    """A port of this host that is one of a pod, while it is entered, in an `async with`."""

    def __init__(
        self,
        transport: AsyncTransport,
        start: PortForwardStart,
        token: str,
        address: str,
        port: int,
        *,
        failed: Callable[[ApiError], None],
        accepted: Callable[[int], None],
    ) -> None:
        """`port` 0: one that is free. `failed` is told of each connection that fails, `accepted` of each one."""
        self._transport = transport
        self._proof = StreamProof(token, start)
        self._address = address
        self._failed = failed
        self._accepted = accepted
        self._turns = asyncio.Semaphore(CONNECTIONS_MAX)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None
        self.port = port
        """Of this host."""

    async def __aenter__(self) -> AsyncPortForwarder:
        """Raises OSError where nobody can listen there."""
        self._server = await asyncio.start_server(self._carry, self._address, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            async with self._turns:
                self._accepted(self.port)
                await self._carry_streamed(reader, writer)
        except ApiError as error:
            self._failed(error)
        except OSError:
            # The program on this side has left.
            return
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _carry_streamed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with AsyncPortStream(self._transport, self._proof) as stream:
            sending = asyncio.create_task(self._send(reader, stream))
            try:
                async for data in stream:
                    writer.write(data)
                    await writer.drain()
                writer.write_eof()
                await stream.finished()
            finally:
                stream.close()
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, reader: asyncio.StreamReader, stream: AsyncPortStream) -> None:
        try:
            while data := await reader.read(FRAME_BYTES):
                await stream.write(data)
            await stream.end_input()
        except OSError:
            # Reset by the program on this side: so is the other end.
            stream.close()
