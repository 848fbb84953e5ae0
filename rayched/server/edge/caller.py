"""Who makes a call, as far as it is known before anything of the request is read."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote

from grpc._cython.cygrpc import ExecuteBatchError

from rayched.api.identity import IDENTITY_METADATA


@dataclass(frozen=True, slots=True)
class Caller:
    """One caller."""

    identity: str
    """Proven by a certificate or a token; empty: none was shown."""
    stated: str
    """What the call says of itself, which takes rights away and gives none; empty: nothing."""
    peer: str
    """The connection, as gRPC names it."""
    address: str
    """Of the host that it comes from, without a port."""

    @property
    def key(self) -> str:
        """What its limits and its turns go by."""
        return self.identity or self.address

    @property
    def is_local(self) -> bool:
        """On this host, and nobody in particular."""
        return not self.identity and is_local(self.address)


Identify: TypeAlias = Callable[[Any], str]
"""The identity that the caller of a gRPC context has proven; empty: none. Raises ApiFailure (UNAUTHENTICATED)."""
Authorize: TypeAlias = Callable[[Caller, str], None]
"""Whether a caller may make a call such as "Submission.Submit" at all. Raises ApiFailure (PERMISSION_DENIED, UNAUTHENTICATED)."""


def nobody(_: Any) -> str:
    """Identify, where callers show no certificates."""
    return ""


def allow(_: Caller, __: str) -> None:
    """Authorize, where everybody may make every call."""


def caller_of(context: Any, identify: Identify) -> Caller:
    """Of a gRPC context."""
    peer = context.peer()
    stated = next((str(text) for key, text in context.invocation_metadata() or () if key == IDENTITY_METADATA), "")
    return Caller(identify(context), stated, peer, address_of(peer))


@functools.lru_cache(maxsize=4_096)
def address_of(peer: str) -> str:
    """127.0.0.1 of "ipv4:127.0.0.1:40000", ::1 of "ipv6:%5B::1%5D:40000", "unix" of a local socket."""
    scheme, _, rest = unquote(peer).partition(":")
    if scheme not in ("ipv4", "ipv6"):
        return scheme
    return host_of(rest.rpartition(":")[0].strip("[]"))


def host_of(host: str) -> str:
    """An address in the one form that all its spellings have."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host.partition("%")[0])
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return str(mapped or address)
    return host


@functools.lru_cache(maxsize=4_096)
def is_local(address: str) -> bool:
    """Of this host."""
    if address == "unix":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address).is_loopback
    return False


@contextlib.contextmanager
def caller_may_leave() -> Iterator[None]:
    """What gRPC raises where the caller left in the middle becomes what it raises where the caller left between two messages."""
    try:
        yield
    except ExecuteBatchError:
        raise asyncio.CancelledError("the caller has left") from None
