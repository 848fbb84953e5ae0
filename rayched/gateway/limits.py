"""What the gateway bears of others: connections of an address, connections that say nothing, bytes of bodies of a user.

Connections are counted as they are accepted, before TLS: who is too many is closed at once, and costs no handshake. An address is
one of IPv4, the first 64 bits of one of IPv6, which is what one host is given, or loopback, which has many.

Bodies are counted before they are read, by the length that they tell, or by the largest that is taken where they tell none, and
until they are answered. Who holds too many is told to come back.

Owner: the event loop.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakSet

from aiohttp import hdrs, web

from rayched.gateway.statuses import StatusFailure

BODY_BYTES_MAX: Final = 4 << 20
"""What one call of a replica takes."""
_BACKLOG: Final = 128
_IPV6_BITS: Final = 64
_TOLD_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Of one gateway."""

    connections_an_address: int = 256
    """A watch has one of its own, over HTTP/1.1."""
    idle_seconds: float = 30.0
    """A connection without a whole head of a request; one that has been answered may bring the next one as long."""
    body_bytes_a_user: int = 2 * BODY_BYTES_MAX
    body_bytes: int = 32 * BODY_BYTES_MAX
    """Of all users."""


class CappedListener(socket.socket):
    """A socket that listens and lets each address have so many connections."""

    def __init__(self, one: socket.socket, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Takes the place of a socket that listens."""
        super().__init__(one.family, one.type, one.proto, one.detach())
        self._limit = limit
        self._clock = clock
        self._open: dict[str, WeakSet[socket.socket]] = {}
        self._told_at = -_TOLD_SECONDS

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises ConnectionAbortedError where its address has too many, and OSError as any socket."""
        connection, peer = super().accept()
        address = place_of(str(peer[0]))
        # Whoever closes a socket does not tell.
        there = [one for one in self._open.get(address, ()) if one.fileno() >= 0]
        if len(there) >= self._limit:
            connection.close()
            self._tell(address)
            raise ConnectionAbortedError(f"{address} has {self._limit} connections")
        self._open = {key: found for key, found in self._open.items() if found}
        self._open[address] = WeakSet([*there, connection])
        return connection, peer

    def _tell(self, address: str) -> None:
        now = self._clock()
        if now - self._told_at >= _TOLD_SECONDS:
            self._told_at = now
            _log.warning("connections of %s are closed: no address may have more than %d", address, self._limit)


def listening(host: str, port: int, limits: GatewayLimits) -> list[CappedListener]:
    """At every address that the host name has. Raises OSError."""
    found: list[CappedListener] = []
    try:
        for family, *_, place in dict.fromkeys(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)):
            one = socket.create_server(place, family=family, backlog=_BACKLOG)
            found.append(CappedListener(one, limits.connections_an_address))
    except OSError:
        for listener in found:
            listener.close()
        raise
    return found


def place_of(host: str) -> str:
    """What counts as one address."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return "loopback"
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, _IPV6_BITS), strict=False))


class BodyBudget:
    """Bytes of bodies that are held at this moment."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self._held: Counter[str] = Counter()

    @contextlib.contextmanager
    def held(self, user: str, size: int) -> Iterator[None]:
        """While inside, so many bytes count as the user's. Raises StatusFailure where there is no room for them."""
        if size:
            self._check(user, size)
        self._held[user] += size
        try:
            yield
        finally:
            self._held[user] -= size
            if not self._held[user]:
                del self._held[user]

    def _check(self, user: str, size: int) -> None:
        limits = self._limits
        if self._held[user] + size > limits.body_bytes_a_user:
            text = (
                f"{limits.body_bytes_a_user} bytes of bodies of one user are read at a time; send fewer or smaller ones at once"
            )
        elif self._held.total() + size > limits.body_bytes:
            text = f"{limits.body_bytes} bytes of bodies are read at a time"
        else:
            return
        raise StatusFailure(429, "TooManyRequests", f"{text}; try again", retry_after_seconds=_RETRY_SECONDS)


def body_size(request: web.Request) -> int:
    """The most bytes that the request's body may come to, before it is read; what has more is refused."""
    if not request.body_exists:
        return 0
    told = request.content_length
    # What is compressed is unpacked while it is read.
    return BODY_BYTES_MAX if told is None or hdrs.CONTENT_ENCODING in request.headers else min(told, BODY_BYTES_MAX)
