"""The gateway's front: each HTTP request to what it asks for, each outcome to its answer.

    /version  /api  /apis  /openapi/...     what is served (discovery.py, open_api.py)
    /livez  /healthz  /readyz               whether the gateway lives; whether a replica answers it
    /api/v1/...  /apis/GROUP/VERSION/...    objects (paths.py)

Health is told to everybody. Any other request is judged by whom identity.py takes its sender for, and served with the client of
that identity.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from rayched.client.errors import ApiError
from rayched.client.gateway_client import AsyncGatewayClient
from rayched.gateway import (
    access_reviews,
    attach_streams,
    discovery,
    election_leases,
    exec_streams,
    logs,
    objects,
    open_api,
    paths,
    pod_bindings,
    port_forwards,
    subresources,
    usage_metrics,
)
from rayched.gateway.calls import GatewayAnswer, GatewayCall
from rayched.gateway.identity import CallerIdentity, CallerJudge
from rayched.gateway.limits import BODY_BYTES_MAX, BodyBudget, body_size
from rayched.gateway.paths import ResourcePath
from rayched.gateway.queries import accepted_form, accepts_aggregated, is_unicode, list_query
from rayched.gateway.served import ACCESS_VERSION, IDENTITY_VERSION, LEASES_VERSION, METRICS_VERSION
from rayched.gateway.shared_bodies import SharedBodies
from rayched.gateway.statuses import StatusFailure, bad_request, not_allowed
from rayched.gateway.watches import serve_watch

_log = logging.getLogger(__name__)

_READY_SECONDS: Final = 2.0
_WARNING_CHARACTERS_MAX: Final = 1_000
_WARNINGS_MAX: Final = 20
_NOT_FOUND: Final = "404 page not found\n"

Verb = Callable[[GatewayCall], Awaitable[GatewayAnswer]]
StreamVerb = Callable[[web.Request, GatewayCall], Awaitable[web.StreamResponse]]

_COLLECTION: Final[dict[str, tuple[str, Verb]]] = {
    "GET": ("list", objects.list_objects),
    "POST": ("create", objects.create),
    "DELETE": ("deletecollection", objects.delete_collection),
}
_OBJECT: Final[dict[str, tuple[str, Verb]]] = {
    "GET": ("get", objects.get),
    "PUT": ("update", objects.update),
    "PATCH": ("patch", objects.patch),
    "DELETE": ("delete", objects.delete),
}
_BELOW: Final[dict[tuple[str, str], Verb]] = {
    ("binding", "POST"): pod_bindings.bind,
    ("eviction", "POST"): subresources.evict,
    ("scale", "GET"): subresources.get_scale,
    ("scale", "PUT"): subresources.put_scale,
    ("scale", "PATCH"): subresources.patch_scale,
    ("status", "GET"): objects.get,
    ("status", "PUT"): subresources.put_status,
    ("status", "PATCH"): subresources.patch_status,
}
_VERBS_BELOW: Final = {"GET": "get", "PATCH": "patch", "POST": "create", "PUT": "update"}
_UNSTORED: Final[dict[str, Callable[[GatewayCall, str], Awaitable[GatewayAnswer]]]] = {
    ACCESS_VERSION: access_reviews.serve,
    IDENTITY_VERSION: access_reviews.serve,
    LEASES_VERSION: election_leases.serve,
    METRICS_VERSION: usage_metrics.serve,
}
"""What is kept nowhere, by version; asked with the method of the request."""
_STREAMS: Final[dict[tuple[str, str], StreamVerb]] = {
    ("log", "GET"): logs.serve_log,
    **{("attach", method): attach_streams.serve_attach for method in ("GET", "POST")},
    **{("exec", method): exec_streams.serve_exec for method in ("GET", "POST")},
    **{("portforward", method): port_forwards.serve_port_forward for method in ("GET", "POST")},
}


class GatewayFront:
    """Answers requests."""

    def __init__(
        self,
        own: AsyncGatewayClient,
        client_of: Callable[[CallerIdentity], AsyncGatewayClient],
        judge: CallerJudge,
        clock: Callable[[], float],
        bodies: BodyBudget,
    ) -> None:
        """`own`: asks in the gateway's own name. `clock` gives Unix seconds."""
        self._own = own
        self._client_of = client_of
        self._judge = judge
        self._clock = clock
        self._bodies = bodies
        self._shared = SharedBodies()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._served(request)
        except StatusFailure as failure:
            return _failed(failure)
        except web.HTTPRequestEntityTooLarge:
            message = f"the body has more than {BODY_BYTES_MAX} bytes"
            return _failed(StatusFailure(413, "RequestEntityTooLarge", message))
        except ConnectionResetError:
            # The client has gone, and nobody reads the answer.
            raise
        except Exception as error:
            _log.error("%s %s failed: %s", request.method, request.path, error, exc_info=error)
            return _failed(StatusFailure(500, "InternalError", "internal error; the gateway's log has the cause"))

    async def _served(self, request: web.Request) -> web.StreamResponse:
        if not is_unicode(request.raw_path):
            raise bad_request("the request's address has bytes that are not UTF-8")
        if request.path in ("/livez", "/healthz"):
            return web.Response(text="ok")
        if request.path == "/readyz":
            return await _ready(self._own)
        identity = await self._judge.identity_of(request)
        parts = request.path.strip("/").split("/")
        path = paths.parse(request.path)
        if path is None:
            return _discovered(request, parts)
        with self._bodies.held(identity.uri, body_size(request)):
            return await self._about(request, path, self._client_of(identity))

    async def _about(self, request: web.Request, path: ResourcePath, client: AsyncGatewayClient) -> web.StreamResponse:
        call = GatewayCall(
            path=path,
            client=client,
            query=request.query,
            body=await _body_of(request),
            content_type=request.headers.get("Content-Type", "").partition(";")[0].strip().lower(),
            form=accepted_form(request.headers.get("Accept", "")),
            now=self._clock(),
        )
        if path.subresource:
            return await self._below(request, call)
        return await self._about_objects(request, call)

    async def _about_objects(self, request: web.Request, call: GatewayCall) -> web.StreamResponse:
        unstored = _UNSTORED.get(call.path.resource.kind.api_version)
        if unstored is not None:
            return _answered(await unstored(call, request.method), call)
        verbs = _OBJECT if call.path.name else _COLLECTION
        if request.method not in verbs:
            raise not_allowed(request.method)
        verb, serve = verbs[request.method]
        if verb == "list" and (query := list_query(request.query)).watch:
            return await serve_watch(request, call, query, self._clock, self._shared)
        if verb not in call.path.resource.verbs:
            raise not_allowed(request.method)
        return _answered(await serve(call), call)

    async def _below(self, request: web.Request, call: GatewayCall) -> web.StreamResponse:
        stream = _STREAMS.get((call.path.subresource, request.method))
        if stream is not None:
            return await stream(request, call)
        below = call.path.resource.subresource(call.path.subresource)
        serve = _BELOW.get((call.path.subresource, request.method))
        if serve is None or below is None or _VERBS_BELOW[request.method] not in below.verbs:
            raise not_allowed(request.method)
        return _answered(await serve(call), call)


async def _body_of(request: web.Request) -> bytes:
    """Raises StatusFailure where it is not what its headers say, compressed for example."""
    try:
        return await request.read()
    except web.RequestPayloadError as error:
        raise bad_request(f"the body cannot be read: {' '.join(str(error).split())}") from None


def _discovered(request: web.Request, parts: list[str]) -> web.Response:
    """What is served; else nothing is there, which kubectl tells by the answer's text."""
    if request.method != "GET":
        return web.Response(status=404, text=_NOT_FOUND)
    found: dict[str, Any] | None = None
    match parts:
        case ["version"]:
            found = discovery.version()
        case ["api" | "apis"] if accepts_aggregated(request.headers.get("Accept", "")):
            return _json(200, discovery.aggregated(parts[0] == "api"), discovery.AGGREGATED)
        case ["api"]:
            found = discovery.core_versions()
        case ["apis"]:
            found = discovery.groups()
        case ["api", version]:
            found = discovery.resources(version)
        case ["apis", group]:
            found = discovery.group(group)
        case ["apis", group, version]:
            found = discovery.resources(f"{group}/{version}")
        case ["openapi", "v2"] if "protobuf" in request.headers.get("Accept", ""):
            return web.Response(body=open_api.empty_v2_protobuf(), content_type=open_api.V2_PROTOBUF)
        case ["openapi", "v2"]:
            found = open_api.empty_v2()
        case ["openapi", "v3"]:
            found = open_api.index()
        case ["openapi", "v3", *place]:
            found = open_api.document("/".join(place))
    return web.Response(status=404, text=_NOT_FOUND) if found is None else _json(200, found)


async def _ready(client: AsyncGatewayClient) -> web.Response:
    try:
        leader = await client.leader(timeout_seconds=_READY_SECONDS)
    except ApiError as error:
        return web.Response(status=503, text=f"no replica answers: {error}\n")
    return web.Response(text=f"ok: {leader.answered_by} answers\n")


def _answered(answer: GatewayAnswer, call: GatewayCall) -> web.Response:
    response = _json(answer.code, answer.document)
    for warning in call.warnings[:_WARNINGS_MAX]:
        response.headers.add("Warning", f'299 - "{_quotable(warning)}"')
    return response


def _quotable(text: str) -> str:
    """As a quoted string of a header."""
    plain = "".join(one if one.isascii() and one.isprintable() else "?" for one in " ".join(text.split()))
    return plain[:_WARNING_CHARACTERS_MAX].replace("\\", "\\\\").replace('"', '\\"')


def _failed(failure: StatusFailure) -> web.Response:
    response = _json(failure.code, failure.document())
    if failure.retry_after_seconds:
        response.headers["Retry-After"] = str(failure.retry_after_seconds)
    return response


def _json(code: int, document: dict[str, Any], content_type: str = "application/json") -> web.Response:
    # What a message repeats of a request may be half of a pair, which UTF-8 has no bytes for.
    body = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
    return web.Response(status=code, body=body, headers={"Content-Type": content_type, "Cache-Control": "no-cache, private"})
