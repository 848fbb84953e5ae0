"""Who reads what over HTTP, where the endpoint speaks TLS: routes behind the question who asks (access/http_policy.py).

    request ──▶ open to anybody? ──▶ certificate or token shown? ──▶ who is it? ──▶ may it read this? ──▶ route
                                     401                             as at the API's ports   403

Identities, expiry, deny lists, tokens and the count of wrong ones an address are those of the API: the same edge is asked. Tokens
are taken where the replica takes any. What health checks say beyond ok is for whoever may know; others are told that one fails.

HttpReaders is the event loop's; routes are called on the endpoint's threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final

from rayched.access.http_policy import REASONS
from rayched.server.call_guard import TOKEN_METADATA, CallGuard
from rayched.server.edge.edge import Edge
from rayched.server.edge.fairness import PriorityLevel
from rayched.server.edge.method_traits import MethodTraits, RateKind
from rayched.server.errors import ApiFailure, Code, unauthenticated
from rayched.server.http.http_endpoint import Answer, Request, Route

Judge = Callable[[Request, str], ApiFailure | None]
"""Why whoever asks may not read a path; None: they may. Called on any thread, and answers within a few seconds."""

_TRAITS: Final = MethodTraits(PriorityLevel.CATCH_ALL, RateKind.NONE)
_STATUSES: Final = {
    Code.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    Code.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    Code.RESOURCE_EXHAUSTED: HTTPStatus.TOO_MANY_REQUESTS,
}
_SHOWS_NOTHING: Final = "want a certificate of this cluster, or a bearer token where the replica takes tokens (--token-listen)"


@dataclass(frozen=True, slots=True)
class _Connection:
    """One request as the API's ports see a call."""

    request: Request

    def peer(self) -> str:
        address = self.request.address
        return f"ipv6:[{address}]:0" if ":" in address else f"ipv4:{address}:0"

    def auth_context(self) -> dict[str, list[bytes]]:
        shown = {"x509_pem_cert": [self.request.certificate]} if self.request.certificate else {}
        return {"transport_security_type": [b"ssl"], **shown}

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ((TOKEN_METADATA, self.request.authorization),) if self.request.authorization else ()


class HttpReaders:
    """Of one replica. Owner: the event loop."""

    def __init__(self, edge: Edge, guard: CallGuard) -> None:
        self._edge = edge
        self._guard = guard

    def judge(self, request: Request, path: str) -> None:
        """Raises ApiFailure where who asks may not read the path."""
        if not request.certificate and not request.authorization:
            # It has shown nothing, so it counts as nothing wrong: a scraper that is not set up yet locks nobody out.
            raise unauthenticated(_SHOWS_NOTHING)
        connection: Any = _Connection(request)
        self._guard.authorize_path(self._edge.identified(connection, _TRAITS), path)


def guarded(path: str, route: Route, judge: Judge) -> Route:
    """A route for whoever may read the path."""

    def answer(request: Request) -> Answer:
        failure = judge(request, path)
        return route(request) if failure is None else _refusal(failure)

    return answer


def guarded_health(route: Route, judge: Judge) -> Route:
    """Health checks for everybody, and what is wrong for whoever may know."""
    with_reasons = guarded(REASONS, route, judge)

    def answer(request: Request) -> Answer:
        return with_reasons(request) if "verbose" in request.query else route(replace(request, withholds=True))

    return answer


def _refusal(failure: ApiFailure) -> Answer:
    status = _STATUSES.get(failure.code, HTTPStatus.SERVICE_UNAVAILABLE)
    return Answer(f"{status.value} {failure.message}\n".encode(), status=status)
