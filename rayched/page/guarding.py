"""Which requests the page answers, and the headers of all its answers. Pure.

There is no cookie and no header that opens anything to other origins. What remains is that a page of somebody else's makes the
reader's browser send requests here: such requests name another host, another origin or another site, and are refused for it.

Sources: the Fetch standard for Origin and Sec-Fetch-Site, Content Security Policy level 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rayched.api.hosts import is_loopback

METHODS: Final = ("GET", "HEAD", "POST")
OWN_SITES: Final = ("same-origin", "none")
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_NO_FEATURES: Final = "camera=(), clipboard-read=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()"

HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Content-Security-Policy": _POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": _NO_FEATURES,
        "Cache-Control": "no-store",
    }
)
"""Of every answer; assets that have their hash in their address are cached."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered."""

    code: int
    message: str


def refusal_of(method: str, scheme: str, headers: Mapping[str, str], hosts: frozenset[str] = frozenset()) -> Refusal | None:
    """None: the request may be answered. `scheme` is http or https, as the request came; `hosts`: names and addresses that the
    page has beside loopback, in lower case."""
    host = headers.get("Host", "")
    if not is_loopback_host(host) and _name_of(host).lower() not in hosts:
        return Refusal(421, "the request's Host is neither on loopback nor a name in the gateway's certificate")
    if method not in METHODS:
        return Refusal(405, f"method: found {method[:20]!r}, allowed are {', '.join(METHODS)}")
    if "Origin" in headers and headers["Origin"].lower() != f"{scheme}://{host}".lower():
        return Refusal(403, "requests of other pages are not answered")
    if headers.get("Sec-Fetch-Site", "none") not in OWN_SITES:
        return Refusal(403, "requests from other sites are not answered")
    if method == "POST" and headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        return Refusal(415, "Content-Type: want application/json")
    return None


def is_loopback_host(host: str) -> bool:
    """Whether a Host header can only mean this machine."""
    return is_loopback(_name_of(host))


def _name_of(host: str) -> str:
    """Of a Host header, without the port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
