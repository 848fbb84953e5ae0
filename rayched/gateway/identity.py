"""Who asks. One place, and what is decided here is what a request is judged by.

With certificates a request is from the user whom the certificate of its connection names: the gateway asks replicas in that
user's name, and they judge it by the same table as a call over gRPC. The handshake has refused what no authority of the cluster
has signed; what it does not ask, and whether the certificate still counts, is asked for each request. Who shows none shows a
bearer token, `Authorization: Bearer rt_...`, and is whom it stands for by a replica's word (token_judge.py). Who shows neither
is refused.
On a connection with a certificate that is who asks, and the header is what a node asks for before it lets somebody into a pod.

Without certificates the gateway listens on loopback only, and whoever reaches it there is nobody in particular: what may be done
is what the replica lets such a caller do.

A page in a browser reaches loopback as well, and a browser may show a certificate that its user has. So requests that a page may
have sent are refused: those with an Origin, those of which a browser says that another site made them, and without certificates
also those that name another host than loopback. Programs send no Origin, but the official Python client does where it opens a
WebSocket: the one of the host that it dials. So a WebSocket may be opened with the gateway's own Origin. A page cannot choose its
Origin, and none has the gateway's but those that the gateway serves itself (ADR 66).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from rayched.access.identity import IdentityKind
from rayched.api.errors import quoted
from rayched.api.hosts import is_loopback
from rayched.gateway.limits import place_of
from rayched.gateway.queries import is_unicode
from rayched.gateway.statuses import StatusFailure, bad_request
from rayched.gateway.token_judge import TokenJudge
from rayched.page.guarding import OWN_SITES
from rayched.pki.callers import Peer, peer_with

_OWN_ORIGIN: Final = "a WebSocket has none, or that of the gateway, by loopback or by a name in the gateway's certificate"


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

    def __init__(
        self,
        trust_domain: str,
        fault_of: FaultOf | None,
        tokens: TokenJudge | None = None,
        hosts: frozenset[str] = frozenset(),
    ) -> None:
        """`fault_of` None: there are no certificates, and `trust_domain` is empty. `tokens` None: none are taken. `hosts`: names,
        in lower case, and addresses that the gateway has beside loopback."""
        self._trust_domain = trust_domain
        self._fault_of = fault_of
        self._tokens = tokens
        self._hosts = hosts

    async def identity_of(self, request: web.Request) -> CallerIdentity:
        """Raises StatusFailure where the request is nobody's whom the gateway answers."""
        self._refuse_pages(request)
        if self._fault_of is not None:
            return await self.of_reader(request)
        if not is_loopback(_host_of(request.headers.get("Host", ""))):
            raise StatusFailure(403, "Forbidden", "the request's Host is not on loopback, where alone the gateway is")
        return NOBODY

    def _refuse_pages(self, request: web.Request) -> None:
        """Raises StatusFailure where a page in a browser may have sent the request."""
        headers = request.headers
        if headers.get("Sec-Fetch-Site", "none") not in OWN_SITES:
            raise StatusFailure(403, "Forbidden", "requests from pages of other sites are not answered")
        origins = headers.getall("Origin", [])
        if not origins:
            return
        if not _is_handshake(request):
            raise StatusFailure(403, "Forbidden", "requests of pages in browsers are not answered")
        named = headers.get("Host", "")
        host = _host_of(named).lower()
        is_own = is_loopback(host) or host in self._hosts
        if not is_own or [one.lower() for one in origins] != [f"{request.scheme}://{named}".lower()]:
            raise StatusFailure(403, "Forbidden", f"Origin: found {quoted(', '.join(origins))}; {_OWN_ORIGIN}")

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


def _is_handshake(request: web.Request) -> bool:
    """Whether the request opens a WebSocket. A page cannot say so of another request: browsers let none set this header."""
    return request.method == "GET" and request.headers.get("Upgrade", "").strip().lower() == "websocket"


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
    """What a node may ask for before it lets somebody into a pod: never what proves who asks. Raises StatusFailure."""
    token = "" if peer_of(request) is None and request.secure else bearer_token_of(request)
    # Bytes of a header that are no UTF-8 come as halves of pairs, with which nothing can be proven.
    if not is_unicode(token):
        raise bad_request("Authorization: the token is not UTF-8 text")
    return token


def _unauthorized(why: str) -> StatusFailure:
    return StatusFailure(401, "Unauthorized", why)


def _host_of(text: str) -> str:
    """Without the port and without the brackets of an IPv6 address."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]
