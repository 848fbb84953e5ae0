"""Who asks. One place, and what is decided here is what a request is judged by.

With certificates a request is from the user whom the certificate of its connection names: the gateway asks replicas in that
user's name, and they judge it by the same table as a call over gRPC. The handshake has refused what no authority of the cluster
has signed; what it does not ask, and whether the certificate still counts, is asked for each request. Who shows none shows a
bearer token, `Authorization: Bearer rt_...`, and is whom it stands for by a replica's word (token_judge.py). Who shows neither
is refused.
On a connection with a certificate that is who asks, and the header is what a node asks for before it lets somebody into a pod.

Without certificates the gateway listens on loopback only, and whoever reaches it there is nobody in particular: what may be done
is what the replica lets such a caller do.

A page in a browser reaches loopback as well, and a browser may show a certificate that its user has. So a request that a page may
have sent, which has an Origin, is refused, and without certificates also one that names another host than loopback.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from rayched.access.identity import IdentityKind
from rayched.api.hosts import is_loopback
from rayched.gateway.limits import place_of
from rayched.gateway.statuses import StatusFailure
from rayched.gateway.token_judge import TokenJudge
from rayched.pki.callers import Peer, peer_with


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """Who a request is from."""

    uri: str
    """Of the user in whose name replicas are asked; empty: nobody in particular, and the gateway asks in its own name."""
    serial: str
    """Of the certificate that the user has shown, as replicas look it up (Peer.shown)."""
    token: str = field(default="", repr=False)
    """The bearer token that the user has shown in the place of a certificate; replicas are asked with it."""


NOBODY: Final = CallerIdentity("", "")


FaultOf = Callable[[Peer], str]
"""Why a peer's certificate does not count now; empty: it does."""


class CallerJudge:
    """Who the callers of one gateway are."""

    def __init__(self, trust_domain: str, fault_of: FaultOf | None, tokens: TokenJudge | None = None) -> None:
        """`fault_of` None: there are no certificates, and `trust_domain` is empty. `tokens` None: none are taken."""
        self._trust_domain = trust_domain
        self._fault_of = fault_of
        self._tokens = tokens

    async def identity_of(self, request: web.Request) -> CallerIdentity:
        """Raises StatusFailure where the request is nobody's whom the gateway answers."""
        if "Origin" in request.headers:
            raise StatusFailure(403, "Forbidden", "requests of pages in browsers are not answered")
        if self._fault_of is not None:
            return await self.of_reader(request)
        if not is_loopback(_host_of(request.headers.get("Host", ""))):
            raise StatusFailure(403, "Forbidden", "the request's Host is not on loopback, where alone the gateway is")
        return NOBODY

    async def of_reader(self, request: web.Request) -> CallerIdentity:
        """The same where it is settled that pages of others have not sent the request. Raises StatusFailure."""
        if self._fault_of is None:
            return NOBODY
        peer, token = peer_of(request), bearer_token_of(request)
        if peer is None and token and self._tokens is not None:
            return CallerIdentity(await self._tokens.uri_of(token, place_of(request.remote or "::")), "", token)
        return self._certified(peer, self._fault_of)

    def _certified(self, peer: Peer | str | None, fault_of: FaultOf) -> CallerIdentity:
        if peer is None:
            raise _unauthorized(
                "the request has neither a certificate nor a token: a kubeconfig of `rayched kubeconfig` names one"
            )
        if isinstance(peer, str):
            raise _unauthorized(peer)
        if peer.identity.trust_domain != self._trust_domain:
            raise _unauthorized(f"{peer.identity} is of another trust domain than {self._trust_domain}")
        if why := fault_of(peer):
            raise _unauthorized(why)
        if peer.identity.kind is not IdentityKind.USER:
            raise StatusFailure(403, "Forbidden", f"{peer.identity} is no user, and the gateway answers users alone")
        return CallerIdentity(peer.identity.uri, peer.shown)


def peer_of(request: web.Request) -> Peer | str | None:
    """Whose certificate the connection has, or why it is nobody's; None: it has none."""
    connection = None if request.transport is None else request.transport.get_extra_info("ssl_object")
    if connection is None:
        return None
    shown = connection.getpeercert(binary_form=True)
    return peer_with(ssl.DER_cert_to_PEM_cert(shown).encode()) if shown else None


def bearer_token_of(request: web.Request) -> str:
    """What the request has in the header for tokens; empty: nothing."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def node_token_of(request: web.Request) -> str:
    """What a node may ask for before it lets somebody into a pod: never what proves who asks."""
    return "" if peer_of(request) is None and request.secure else bearer_token_of(request)


def _unauthorized(why: str) -> StatusFailure:
    return StatusFailure(401, "Unauthorized", why)


def _host_of(text: str) -> str:
    """Without the port and without the brackets of an IPv6 address."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]
