"""A further process in a container that runs. The shim starts it over a connection of its own, whose end is that of the process;
its input and output are pipes or a terminal of the agent's, so that the shim has nothing to do with what passes."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import socket
import struct
import termios
from collections.abc import Sequence
from typing import Any, Final

from rayched.nodes.agent.shim_link import connect_to_shim
from rayched.nodes.agent.streams.refusals import forbidden
from rayched.nodes.agent.streams.targets import RunningTarget
from rayched.v1.streams_pb2 import TerminalSize

_SEND_SECONDS: Final = 2.0
_REQUEST: Final = 1
_END_OF_INPUT: Final = b"\x04"
"""What a terminal takes as the end of its input."""


class ContainerProcess:
    """Made by `started`; `close` kills what still runs of it."""

    def __init__(self, target: RunningTarget, *, stdin: bool, tty: bool) -> None:
        self._target = target
        self._tty = tty
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._theirs: list[int] = []
        self._own: list[int] = []
        self.stdin: int | None = None
        self.outputs: list[tuple[str, int]] = []
        """Descriptors to read, with the name of their stream."""
        if tty:
            own, theirs = pty.openpty()
            self._own, self._theirs = [own], [theirs]
            self.stdin, self.outputs = own, [("stdout", own)]
        else:
            (out, out_write), (errors, errors_write) = os.pipe(), os.pipe()
            self._own, self.outputs = [out, errors], [("stdout", out), ("stderr", errors)]
            if stdin:
                reading, self.stdin = os.pipe()
                self._own.append(self.stdin)
            else:
                reading = os.open(os.devnull, os.O_RDONLY)
            self._theirs = [reading, out_write, errors_write]
        for fd in self._own:
            os.set_blocking(fd, False)

    async def start(self, command: Sequence[str]) -> None:
        """Raises StreamRefusal."""
        target = self._target
        request = {"container": target.container, "attempt": target.attempt, "argv": list(command)}
        line = json.dumps({"id": _REQUEST, "verb": "run", **request}).encode() + b"\n"
        loop = asyncio.get_running_loop()
        try:
            connection = await loop.run_in_executor(None, self._sent, line)
        except OSError as error:
            raise forbidden(f'container "{target.container}" cannot be reached: {error.strerror or error}') from None
        finally:
            for fd in self._theirs:
                os.close(fd)
            self._theirs = []
        self._reader, self._writer = await asyncio.open_unix_connection(sock=connection)
        answer = await self._answer()
        if not answer.get("event"):
            raise forbidden(f'container "{target.container}": {answer.get("error", "the shim is gone")}')

    def _sent(self, line: bytes) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_SEND_SECONDS)
            connect_to_shim(connection, self._target.directory)
            sent = socket.send_fds(connection, [line], self._theirs)
            connection.sendall(line[sent:])
        except BaseException:
            connection.close()
            raise
        return connection

    async def exit(self) -> tuple[int, int]:
        """Its code and the signal that killed it, once it has ended. When the shim is gone, so is the process."""
        answer = await self._answer()
        return int(answer.get("code", 137)), int(answer.get("signal", 9))

    async def _answer(self) -> dict[str, Any]:
        """The next message about the process; empty: the shim is gone."""
        assert self._reader is not None
        while line := await self._reader.readline():
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == _REQUEST:
                return message
        return {}

    def resize(self, size: TerminalSize) -> None:
        """Of a terminal; others have no size."""
        if self._tty:
            rows, columns = min(size.rows, 0xFFFF), min(size.columns, 0xFFFF)
            fcntl.ioctl(self._own[0], termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def end_input(self) -> bytes:
        """What is still to be written for that, to a terminal; a pipe is closed."""
        if self._tty:
            return _END_OF_INPUT
        if self.stdin is not None:
            self._own.remove(self.stdin)
            os.close(self.stdin)
            self.stdin = None
        return b""

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        for fd in (*self._own, *self._theirs):
            os.close(fd)
        self._own, self._theirs = [], []
