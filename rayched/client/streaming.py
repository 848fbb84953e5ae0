"""What a Client can do that reaches into nodes: logs, programs in containers, ports, use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

from rayched.client.errors import ApiError
from rayched.client.executing import ExecStream, exec_start
from rayched.client.forwarding import PortForwarder
from rayched.client.log_following import LogChunk, LogProgress, logs_request
from rayched.client.transport import Transport
from rayched.client.watch import ResumingStream, StreamClosed
from rayched.v1.streams_pb2 import PortForwardStart, UsageRequest, UsageResponse

STREAM_PATIENCE_SECONDS: Final = 60.0


class LogStream:
    """Iterates over a log until its end, or until it is closed. Use it in a `with`, or close it."""

    def __init__(self, transport: Transport, progress: LogProgress, patience_seconds: float) -> None:
        self._progress = progress
        self._stream = ResumingStream(transport, "Logs.Get", patience_seconds)
        self._chunks = self._run()

    def __iter__(self) -> LogStream:
        return self

    def __next__(self) -> LogChunk:
        return next(self._chunks)

    def __enter__(self) -> LogStream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the iteration, also one that waits in another thread."""
        self._stream.close()

    def _run(self) -> Iterator[LogChunk]:
        progress = self._progress
        try:
            for response in self._stream.responses(progress.request):
                chunk = progress.take(response)
                if chunk is not None:
                    yield chunk
                if progress.is_done:
                    return
        except StreamClosed:
            return


class StreamingCalls:
    """A part of Client."""

    _transport: Transport

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
    ) -> LogStream:
        """What a container wrote, as bytes; `container` may be left out where the pod has one.

        With `follow` it goes on until the container ends, over restarts of the node's agent and of replicas; no line comes twice.
        Raises ApiError when it cannot be read for `patience_seconds`: 60 with `follow`, else the client's own time.
        """
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
        return LogStream(self._transport, LogProgress(request), own if patience_seconds is None else patience_seconds)

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
    ) -> ExecStream:
        """Runs a program in a container that runs, as the container's own user, with its environment.

        `size` is the terminal's, columns and rows; `token` that of the pod's node, which is proved and not sent. Closing the
        stream kills the program. Raises ApiError when it cannot be started; tried again only where nothing was done.
        """
        start = exec_start(name, command, namespace, container, stdin=stdin, tty=tty, size=size)
        return ExecStream(self._transport, start, token)

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
    ) -> PortForwarder:
        """Makes a port of a pod one of this host, until it is closed; `local_port` 0: one that is free, which `port` of it says.

        `failed` is told of each connection that fails, `accepted` of each one, with the port here. Raises OSError where nobody
        can listen there.
        """
        start = PortForwardStart(namespace=namespace, pod=name, port=port)
        return PortForwarder(self._transport, start, token, address, local_port, failed=failed, accepted=accepted)

    def usage(self, node: str = "", *, timeout_seconds: float | None = None) -> UsageResponse:
        """What nodes and their pods use: of all whose agents have a stream to the replica that answers, or of one."""
        request = UsageRequest(node=node)
        found: UsageResponse = self._transport.call("Usage.GetUsage", request, total_seconds=timeout_seconds)
        return found
