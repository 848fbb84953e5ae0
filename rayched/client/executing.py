"""A program in a container, as the synchronous client has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import grpc

from rayched.client.errors import ApiError
from rayched.client.proving import StreamProof
from rayched.client.transport import Transport
from rayched.client.two_way import FRAME_BYTES, TwoWayStream
from rayched.v1.streams_pb2 import ExecRequest, ExecStart, TerminalSize


@dataclass(frozen=True, slots=True)
class ExecOutput:
    """Some of what a program wrote. `stream`: stdout or stderr."""

    stream: str
    data: bytes


class ExecStream:
    """Iterates over a program's output until its end; then `exit_code` is there. Use it in a `with`: closing kills the program.

    One thread iterates; others may write.
    """

    def __init__(self, transport: Transport, start: ExecStart, token: str) -> None:
        """When the program runs. The token proves, and is not sent. Raises ApiError."""
        self._stream = TwoWayStream.open(transport, "Exec.Stream", StreamProof(token, start))
        self.exit_code: int | None = None
        """128 + the number of the signal that killed it."""

    def __iter__(self) -> Iterator[ExecOutput]:
        while (response := self._stream.read()) is not None:
            field = response.WhichOneof("frame")
            if field == "exit":
                self.exit_code = response.exit.code
                return
            if field in ("stdout", "stderr"):
                yield ExecOutput(field, getattr(response, field))
        raise ApiError(grpc.StatusCode.ABORTED, "the stream ended before the program did")

    def __enter__(self) -> ExecStream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def write(self, data: bytes) -> None:
        """To its standard input; waits while the program reads slowly."""
        for start in range(0, len(data), FRAME_BYTES):
            self._stream.send(ExecRequest(stdin=data[start : start + FRAME_BYTES]))

    def end_input(self) -> None:
        """Nothing more comes on its standard input."""
        self._stream.send(ExecRequest(end_of_input=True))

    def resize(self, columns: int, rows: int) -> None:
        """Of its terminal."""
        self._stream.send(ExecRequest(resize=TerminalSize(columns=columns, rows=rows)))

    def close(self) -> None:
        """Idempotent; from any thread."""
        self._stream.close()


def exec_start(
    name: str,
    command: Sequence[str],
    namespace: str,
    container: str,
    *,
    stdin: bool,
    tty: bool,
    size: tuple[int, int] | None,
) -> ExecStart:
    """`size`: columns and rows."""
    if isinstance(command, str):
        raise TypeError("command: found one text, want a sequence of words, for no shell reads it")
    start = ExecStart(namespace=namespace, pod=name, container=container, command=command, stdin=stdin, tty=tty)
    if size is not None:
        start.size.columns, start.size.rows = size
    return start
