"""The connections of a shim: lines of JSON come in, with descriptors where a request brings some; answers and events go out."""

from __future__ import annotations

import json
import os
import selectors
import socket
from collections.abc import Callable
from typing import Any, Final

DESCRIPTORS_MAX: Final = 3
_LINE_MAX: Final = 1 << 20
_SEND_SECONDS: Final = 1.0
"""An agent that does not read shall not hold up the containers."""


class Peers:
    """By the number of their descriptor, which the next one may have as well."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        asked: Callable[[int, bytes], None],
        left: Callable[[int], None],
    ) -> None:
        """`asked` gets each line, `left` is told of who hung up."""
        self._selector = selector
        self._listener = listener
        self._asked = asked
        self._left = left
        self._peers: dict[int, tuple[socket.socket, bytearray]] = {}
        self._descriptors: dict[int, list[int]] = {}
        """What came with a request that is not read yet."""
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def descriptors(self, fd: int) -> list[int]:
        return self._descriptors.get(fd, [])

    def close_descriptors(self, fd: int) -> None:
        for descriptor in self._descriptors.pop(fd, ()):
            os.close(descriptor)

    def send(self, fd: int, message: dict[str, Any]) -> None:
        if fd not in self._peers:
            return
        try:
            self._peers[fd][0].sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._hang_up(fd)

    def broadcast(self, message: dict[str, Any]) -> None:
        for fd in list(self._peers):
            self.send(fd, message)

    def _accept(self, _: int) -> None:
        peer, _address = self._listener.accept()
        peer.settimeout(_SEND_SECONDS)
        self._peers[peer.fileno()] = (peer, bytearray())
        self._selector.register(peer, selectors.EVENT_READ, self._heard)

    def _heard(self, fd: int) -> None:
        peer, buffer = self._peers[fd]
        descriptors: list[int] = []
        try:
            data, descriptors, _, _ = socket.recv_fds(peer, 1 << 16, DESCRIPTORS_MAX)
        except OSError:
            data = b""
        held = self._descriptors.setdefault(fd, [])
        held += descriptors
        buffer += data
        if not data or len(buffer) > _LINE_MAX or len(held) > DESCRIPTORS_MAX:
            self._hang_up(fd)
            return
        *lines, rest = bytes(buffer).split(b"\n")
        buffer[:] = rest
        for line in lines:
            self._asked(fd, line)

    def _hang_up(self, fd: int) -> None:
        peer, _ = self._peers.pop(fd)
        self._selector.unregister(peer)
        peer.close()
        self.close_descriptors(fd)
        self._left(fd)
