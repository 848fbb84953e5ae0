"""What an AsyncClient can do that reaches into nodes; as streaming.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from rayched.client.async_transport import AsyncTransport
from rayched.client.async_two_way import AsyncExecStream, AsyncPortForwarder
from rayched.client.async_watch import AsyncResumingStream
from rayched.client.errors import ApiError
from rayched.client.executing import exec_start
from rayched.client.log_following import LogChunk, LogProgress, logs_request
from rayched.client.streaming import STREAM_PATIENCE_SECONDS
from rayched.client.watching import StreamClosed
from rayched.v1.streams_pb2 import PortForwardStart, UsageRequest, UsageResponse


class AsyncLogStream:
    """Iterates over a log until its end, or until it is closed. Use it in an `async with`, or close it."""

    def __init__(self, transport: AsyncTransport, progress: LogProgress, patience_seconds: float) -> None:
        self._progress = progress
        self._stream = AsyncResumingStream(transport, "Logs.Get", progress.request, patience_seconds)

    def __aiter__(self) -> AsyncLogStream:
        return self

    async def __anext__(self) -> LogChunk:
        try:
            while not self._progress.is_done:
                chunk = self._progress.take(await self._stream.next())
                if chunk is not None:
                    return chunk
        except StreamClosed:
            pass
        self.close()
        raise StopAsyncIteration

    async def __aenter__(self) -> AsyncLogStream:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()


class AsyncStreamingCalls:
    """A part of AsyncClient."""

    _transport: AsyncTransport

    def logs(
        self,
        name: str,
        namespace: str = "default",
        *,
        container: str = "",
        follow: bool = False,
        previous: bool = False,
        tail_lines: int | None = None,
        since_seconds: float | None = None,
        since_time: datetime | None = None,
        timestamps: bool = False,
        limit_bytes: int | None = None,
        patience_seconds: float | None = None,
    ) -> AsyncLogStream:
        """As Client.logs."""
        request = logs_request(
            name,
            namespace,
            container,
            follow=follow,
            previous=previous,
            tail_lines=tail_lines,
            since_seconds=since_seconds,
            since_time=since_time,
            timestamps=timestamps,
            limit_bytes=limit_bytes,
        )
        own = STREAM_PATIENCE_SECONDS if follow else self._transport.patience.total_seconds
        return AsyncLogStream(self._transport, LogProgress(request), own if patience_seconds is None else patience_seconds)

    def exec(
        self,
        name: str,
        command: Sequence[str],
        namespace: str = "default",
        *,
        container: str = "",
        stdin: bool = False,
        tty: bool = False,
        size: tuple[int, int] | None = None,
        token: str = "",
    ) -> AsyncExecStream:
        """As Client.exec; it begins with `async with`."""
        start = exec_start(name, command, namespace, container, stdin=stdin, tty=tty, size=size)
        return AsyncExecStream(self._transport, start, token)

    def port_forward(
        self,
        name: str,
        port: int,
        namespace: str = "default",
        *,
        local_port: int = 0,
        address: str = "127.0.0.1",
        token: str = "",
        failed: Callable[[ApiError], None] = lambda _: None,
        accepted: Callable[[int], None] = lambda _port: None,
    ) -> AsyncPortForwarder:
        """As Client.port_forward; it begins with `async with`."""
        start = PortForwardStart(namespace=namespace, pod=name, port=port)
        return AsyncPortForwarder(self._transport, start, token, address, local_port, failed=failed, accepted=accepted)

    async def usage(self, node: str = "", *, timeout_seconds: float | None = None) -> UsageResponse:
        """As Client.usage."""
        request = UsageRequest(node=node)
        found: UsageResponse = await self._transport.call("Usage.GetUsage", request, total_seconds=timeout_seconds)
        return found
