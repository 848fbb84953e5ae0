"""Plain TCP connections that are opened, kept and watched for their end; nothing is ever sent.

Owned by one thread, which calls `open`, `close` and `wait`.
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from leader.failure_detector import Connected, ConnectionBroken, ConnectionRefused, DetectorEvent, Unanswered

_READ_BYTES: Final = 4096
_WAIT_MAX_SECONDS: Final = 1.0


@dataclass(slots=True)
class _Link:
    socket: socket.socket
    deadline: float | None
    """By time.monotonic(), of the attempt; None: it is open."""


class Connections:
    """By the numbers that the detector gave them."""

    def __init__(self, tell: Callable[[DetectorEvent], None]) -> None:
        """`tell` is called within `open` and `wait`."""
        self._tell = tell
        self._selector = selectors.DefaultSelector()
        self._links: dict[int, _Link] = {}
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, 0)

    def open(self, number: int, host: str, port: int, timeout_seconds: float) -> None:
        """Begin to connect. Where there is no way, or no such host, that is told at once."""
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            made = socket.socket(family, kind, protocol)
        except OSError:
            self._tell(Unanswered(number))
            return
        made.setblocking(False)
        failure = made.connect_ex(place)
        if failure not in (0, errno.EINPROGRESS):
            made.close()
            self._tell(_outcome(number, failure))
            return
        self._links[number] = _Link(made, time.monotonic() + timeout_seconds)
        self._selector.register(made, selectors.EVENT_WRITE, number)

    def close(self, number: int) -> None:
        """Nothing more is told of it. Idempotent."""
        link = self._links.pop(number, None)
        if link is not None:
            self._selector.unregister(link.socket)
            link.socket.close()

    def wake(self) -> None:
        """Has `wait` return; any thread."""
        try:
            self._wake_write.send(b"\0")
        except OSError:
            return  # it is full, so somebody has woken it; or closed

    def wait(self, seconds: float | None) -> None:
        """Until something has happened, was to be told, or the time is over."""
        deadlines = [link.deadline for link in self._links.values() if link.deadline is not None]
        waits = [deadline - time.monotonic() for deadline in deadlines]
        waits += [] if seconds is None else [seconds]
        for key, _ in self._selector.select(max(0.0, min(waits, default=_WAIT_MAX_SECONDS))):
            if key.data == 0:
                self._wake_read.recv(_READ_BYTES)
            elif key.data in self._links:
                self._look(key.data)
        # After what has come by now: an answer that we were too busy to take is none that is missing.
        now = time.monotonic()
        for number, link in list(self._links.items()):
            if link.deadline is not None and now >= link.deadline:
                self.close(number)
                self._tell(Unanswered(number))

    def close_all(self) -> None:
        for number in list(self._links):
            self.close(number)
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()

    def _look(self, number: int) -> None:
        link = self._links[number]
        if link.deadline is None:
            try:
                is_over = not link.socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                is_over = True
            if is_over:
                self.close(number)
                self._tell(ConnectionBroken(number))
            return
        failure = link.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failure:
            self.close(number)
            self._tell(_outcome(number, failure))
            return
        link.deadline = None
        self._selector.modify(link.socket, selectors.EVENT_READ, number)
        self._tell(Connected(number))


def _outcome(number: int, failure: int) -> DetectorEvent:
    """Only this one says that the host is there and nobody listens."""
    return ConnectionRefused(number) if failure == errno.ECONNREFUSED else Unanswered(number)
