"""Who makes a call: known before anything of its request is read, but for what the request is about."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from grpc._cython.cygrpc import ExecuteBatchError

from rayched.access.authorizing import AccessAllowed
from rayched.access.binding_limits import NO_LIMITS, BindingLimits
from rayched.access.identity import Identity, IdentityKind
from rayched.access.requests import Facts
from rayched.access.tokens import BearerToken
from rayched.api.identity import node_identity
from rayched.api.kinds import NODE
from rayched.server.errors import ApiFailure

INSECURE_DOMAIN: Final = "insecure"
"""The trust domain of identities that nothing proves."""


@dataclass(slots=True, eq=False)
class Caller:
    """Who makes one call, from where, and what lets them."""

    identity: Identity
    """Whose rights count: of a call that a replica passes on, whom it asks for."""
    peer: str = ""
    """The connection, as gRPC names it."""
    address: str = ""
    """Of the host that it comes from, without a port."""
    token: BearerToken | None = None
    """Which it has shown; None: a certificate, or nothing."""
    is_passed_on: bool = False
    serial: str = ""
    """Of the certificate that was shown."""
    made_with: str = ""
    """The id of the bearer token that the certificate was made with, which whoever calls has shown, here or to a gateway."""
    asker_serial: str = ""
    """Of the certificate that was shown to the gateway which asks for its user."""
    passed_on_by: str = ""
    """The URI of the replica or the gateway that asks for it."""
    refused: ApiFailure | None = None
    """Why whom a gateway asks for may make no call: the token that they have shown there does not count."""
    claimed: str = ""
    """For whom it says that it asks, though it is neither."""
    granted: BindingLimits = NO_LIMITS
    """How much the identity may have, by its bindings."""
    facts: Facts = ()
    """What its request is about, once that was judged."""
    allowed: AccessAllowed | None = None
    """By what its request may be made; None: it was not judged yet."""
    roles: set[str] = field(default_factory=set)
    bindings: set[str] = field(default_factory=set)
    """Roles that let it do what it has done so far, and the ids of the bindings that they come from."""
    ended: ApiFailure | None = None
    """Why the stream may not go on."""

    def was_allowed(self, answer: AccessAllowed) -> None:
        """Keeps by what."""
        self.roles.update(answer.roles)
        self.bindings.update(binding.id for binding in answer.bindings)

    @property
    def proves_nothing(self) -> bool:
        """It is an identity of a server without certificates."""
        return self.identity.trust_domain == INSECURE_DOMAIN

    @property
    def is_by_token(self) -> bool:
        """It has shown a token, or a certificate that counts while one does."""
        return self.token is not None or bool(self.made_with)

    @property
    def key(self) -> str:
        """What its limits and its turns go by."""
        return self.address if self.proves_nothing else self.identity.uri

    @property
    def by_gateway(self) -> bool:
        """A gateway makes it, for one of its users or in its own name."""
        return self.identity.kind is IdentityKind.WEB or (bool(self.passed_on_by) and not self.is_passed_on)

    @property
    def stream_key(self) -> tuple[str, str]:
        """What its streams are counted by: the connection, and of a gateway's, which all its users share, the user."""
        return self.peer, self.key if self.by_gateway else ""

    @property
    def is_local(self) -> bool:
        """On this host, and nobody in particular."""
        return self.proves_nothing and is_local(self.address)

    @property
    def is_agent(self) -> bool:
        return self.identity.kind in (IdentityKind.NODE, IdentityKind.NODES)

    @property
    def node_text(self) -> str:
        """The agent's identity as the rules of nodes have it; of an agent of many, that of the one node that it speaks of now."""
        if self.identity.kind is IdentityKind.NODE:
            return node_identity(self.identity.name)
        if self.identity.kind is IdentityKind.NODES and len(self.facts) == 1 and self.facts[0].kind == NODE.name:
            return node_identity(self.facts[0].name)
        return ""


Identify: TypeAlias = Callable[[Any], Caller]
"""Who makes the call of a gRPC context. Raises ApiFailure (UNAUTHENTICATED)."""
Check: TypeAlias = Callable[[Caller], None]
"""Whether a caller who was identified may go on. Raises ApiFailure."""
Authorize: TypeAlias = Callable[[Caller, str], None]
"""Whether a caller may make a call such as "Submission.Submit" at all. Raises ApiFailure (PERMISSION_DENIED, UNAVAILABLE)."""


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
