"""How exchanges cross: a Unix socket between the SchedulerActor, which listens, and the QueueActor, which connects when told to.

A call of Ray takes several threads on either side; here the two threads that own the cores write and read. The socket lies in a
directory that belongs to this user alone, and its file goes as soon as the queue has connected: both sides are one program, and
unpickle what the other one sends.

On the wire: four bytes of length, one that says whether the exchange went well, then the answer, or in a word what went wrong.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import select
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rayched.actors.inbox import Inbox

_HEAD: Final = struct.Struct("!IB")
_WENT_WELL, _WENT_WRONG = 1, 0
_BYTES_A_READ: Final = 1 << 18

log = logging.getLogger(__name__)


class ExchangeCaller:
    """The scheduler's end: one request, one answer, never waiting. Owner: the owner of the inbox."""

    _numbers = itertools.count()

    def __init__(self, directory: Path, inbox: Inbox, answered: Callable[[bytes], None], failed: Callable[[str], None]) -> None:
        """`answered` and `failed` are called by the inbox's owner: an answer came, or the queue says what went wrong."""
        self.path = str(directory / f"exchange-{os.getpid()}-{next(self._numbers)}")
        self._inbox = inbox
        self._answered = answered
        self._failed = failed
        self._sending = b""
        self._received = bytearray()
        self._connection: socket.socket | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._listener.bind(self.path)
        self._listener.listen(1)
        inbox.watch(self._listener.fileno(), select.POLLIN, self._accept)

    def send(self, request: bytes) -> None:
        """Sent once the queue has connected. Nothing answers where it is gone; that it died is told elsewhere."""
        self._sending += framed(_WENT_WELL, request)
        self._write()

    def close(self) -> None:
        """Nothing is called any more."""
        self._stop_listening()
        self._lose()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            # Whoever came is gone again.
            return
        connection.setblocking(False)
        self._connection = connection
        self._stop_listening()
        self._write()

    def _stop_listening(self) -> None:
        if self._listener.fileno() >= 0:
            self._inbox.forget(self._listener.fileno())
            self._listener.close()
            Path(self.path).unlink(missing_ok=True)

    def _write(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            if self._sending:
                self._sending = self._sending[connection.send(self._sending) :]
        except BlockingIOError:
            pass
        except OSError as error:
            log.warning("the queue takes no exchange: %s", error)
            self._lose()
            return
        wanted = select.POLLIN | (select.POLLOUT if self._sending else 0)
        self._inbox.watch(connection.fileno(), wanted, self._look)

    def _look(self) -> None:
        """Something has come, or what is left can be sent."""
        if self._connection is None:
            return
        if self._sending:
            self._write()
        try:
            while self._connection is not None:
                part = self._connection.recv(_BYTES_A_READ)
                if not part:
                    log.warning("the queue has closed the connection")
                    self._lose()
                    return
                self._received += part
                if len(part) < _BYTES_A_READ:
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            log.warning("the queue does not answer any more: %s", error)
            self._lose()
            return
        self._read()

    def _read(self) -> None:
        while len(self._received) >= _HEAD.size:
            size, went_well = _HEAD.unpack_from(self._received)
            end = _HEAD.size + size
            if len(self._received) < end:
                return
            content = bytes(self._received[_HEAD.size : end])
            del self._received[:end]
            if went_well:
                self._answered(content)
            else:
                self._failed(content.decode(errors="replace"))

    def _lose(self) -> None:
        if self._connection is not None:
            self._inbox.forget(self._connection.fileno())
            self._connection.close()
            self._connection = None
        self._sending = b""
        self._received.clear()


def serve_exchanges(path: str, exchange: Callable[[bytes], bytes]) -> Callable[[], None]:
    """The queue's end. Connects, which raises OSError; what is returned answers requests until the scheduler closes."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise

    def serve() -> None:
        with connection, contextlib.suppress(OSError):
            while (head := _exactly(connection, _HEAD.size)) is not None:
                request = _exactly(connection, _HEAD.unpack(head)[0])
                if request is None:
                    return
                connection.sendall(_tried(exchange, request))

    return serve


def framed(went_well: int, content: bytes) -> bytes:
    return _HEAD.pack(len(content), went_well) + content


def _tried(exchange: Callable[[bytes], bytes], request: bytes) -> bytes:
    try:
        return framed(_WENT_WELL, exchange(request))
    except Exception as error:
        # A border between processes: the caller begins a new session, which makes the queue whole.
        log.exception("an exchange failed")
        return framed(_WENT_WRONG, f"{type(error).__name__}: {error}".encode())


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    """So many bytes; None where the other side has closed."""
    parts: list[bytes] = []
    while size:
        part = connection.recv(min(size, _BYTES_A_READ))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
