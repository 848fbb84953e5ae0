"""Who asks. One place, so that certificates and tokens have one place to come in.

Until then the gateway listens on loopback only, and whoever reaches it there is nobody in particular: what may be done is what
the replica lets such a caller do. A page in a browser reaches loopback as well. So a request that a page may have sent, which has
an Origin or names another host than loopback, is refused.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from rayched.gateway.statuses import StatusFailure


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """Who a request is from."""

    name: str
    """Empty: nobody in particular."""


NOBODY: Final = CallerIdentity("")


def identity_of(request: web.Request) -> CallerIdentity:
    """Raises StatusFailure where the request is nobody's whom the gateway answers."""
    if "Origin" in request.headers:
        raise StatusFailure(403, "Forbidden", "requests of pages in browsers are not answered")
    if not is_loopback(_host_of(request.headers.get("Host", ""))):
        raise StatusFailure(403, "Forbidden", "the request's Host is not on loopback, where alone the gateway is")
    return NOBODY


def bearer_token_of(request: web.Request) -> str:
    """What the request proves itself by where a node asks for its token; empty: nothing."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def is_loopback(host: str) -> bool:
    """Whether a host name or an address can only be this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_of(text: str) -> str:
    """Without the port and without the brackets of an IPv6 address."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]
