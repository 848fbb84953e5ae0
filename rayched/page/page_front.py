"""The page's front: requests below /ui to what they ask for.

    GET  /ui/                          the page; /ui/static/VERSION/NAME has what it is made of
    GET  /ui/stream?topics=...         what is new (streaming.py)
    GET  /ui/api/queue?namespace=      /ui/api/pod/NS/NAME     /ui/api/explain/NS/NAME
         /ui/api/node/NAME             /ui/api/select?selector=     /ui/api/replicas
    POST /ui/api/plan                  what-if (planning.py)
    POST /ui/code    /ui/session       a one-time code for a token, and the token for the code (sign_in_codes.py)

Everything reads. The page itself is told to everybody; what is below /ui/api/ and the stream is asked in the name of its reader
(readers.py), and is 401 for whoever is nobody. All else is 404, and every answer has the headers of guarding.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import grpc
from aiohttp import web

from rayched.client.async_client import AsyncClient
from rayched.client.errors import ApiError
from rayched.page import answers
from rayched.page.assets import PageAsset, read_assets
from rayched.page.guarding import HEADERS, METHODS, refusal_of
from rayched.page.planning import PlanRefused, PlanRunner, PlanWish
from rayched.page.readers import PageReader, ReaderOf, ReaderRefused, ReadersFeeds
from rayched.page.sign_in_codes import CODES_MAX, CodesFull, SignInCodes
from rayched.page.streaming import TOPICS, PageStream
from rayched.pki.tls_files import TlsFiles

_log = logging.getLogger(__name__)

PLACE: Final = "/ui"
STREAMS_MAX: Final = 64
PLAN_BYTES_MAX: Final = 1 << 20
_CODE_BYTES_MAX: Final = 1_024
ANSWER_SECONDS: Final = 30.0
_CACHED: Final = "public, max-age=31536000, immutable"
_CODES: Final = {
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.FAILED_PRECONDITION: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _PageFailure(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class PageFront:
    """Answers requests. Close it."""

    def __init__(
        self,
        client: AsyncClient,
        clock: Callable[[], float],
        reader_of: ReaderOf | None = None,
        hosts: frozenset[str] = frozenset(),
        tls: TlsFiles | None = None,
        codes: SignInCodes | None = None,
    ) -> None:
        """`reader_of` None: nobody is asked who they are, and `client`'s rights are those of every reader. `clock` gives Unix
        seconds. `hosts`: names of the gateway, in lower case. `tls`: what it shows to single replicas; None: there is no TLS.
        `codes` None: nobody signs in."""
        self._client = client
        self._clock = clock
        self._reader_of = reader_of
        self._hosts = hosts
        self._tls = tls
        self._codes = codes
        self._feeds = ReadersFeeds(clock, self._client_at)
        self._plans = PlanRunner()
        self._assets = read_assets()
        self._streams = 0
        self._replica_clients: dict[str, AsyncClient] = {}

    def add_to(self, application: web.Application, handle: Handler) -> None:
        """Before a route that takes everything. `handle`: that of this front, with what the gateway has around it."""
        application.router.add_route("*", PLACE, handle)
        # A path may have line breaks in it, which `.` does not match.
        application.router.add_route("*", PLACE + r"/{path:[\s\S]*}", handle)

    async def close(self) -> None:
        await self._feeds.close()
        for client in self._replica_clients.values():
            await client.close()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        refusal = refusal_of(request.method, request.scheme, request.headers, self._hosts)
        if refusal is not None:
            found = _failed(refusal.code, refusal.message)
            if refusal.code == 405:
                found.headers["Allow"] = ", ".join(METHODS)
            return found
        try:
            return await self._served(request)
        except (_PageFailure, ReaderRefused) as failure:
            return _failed(failure.code, str(failure))
        except ApiError as error:
            return _failed(_CODES.get(error.code, 502), str(error))
        except TimeoutError:
            return _failed(504, f"no answer within {ANSWER_SECONDS:g} s")
        except ConnectionResetError:
            # The reader has gone.
            raise
        except Exception as error:
            _log.error("%s %s failed: %s", request.method, request.path, error, exc_info=error)
            return _failed(500, "internal error; the gateway's log has the cause")

    async def _served(self, request: web.Request) -> web.StreamResponse:
        if request.path == PLACE:
            return web.Response(status=308, headers={**HEADERS, "Location": f"{PLACE}/"})
        parts = request.path.removeprefix(f"{PLACE}/").split("/")
        match parts, request.method:
            case ["api", "plan"], "POST":
                return await self._plan(request)
            case ["code"], "POST":
                return await self._code(request)
            case ["session"], "POST":
                return await self._session(request)
            case ["api", "plan"], _:
                raise _PageFailure(405, "a plan is asked for by POST")
            case _, "POST":
                raise _PageFailure(405, "nothing but a plan and a sign-in is asked for by POST")
            case [""], _:
                return _asset(self._assets.index, HEADERS["Cache-Control"])
            case ["static", version, *name], _ if version == self._assets.version and "/".join(name) in self._assets.files:
                return _asset(self._assets.files["/".join(name)], _CACHED)
            case ["stream"], "GET":
                return await self._stream(request)
            case ["api", *place], _:
                async with asyncio.timeout(ANSWER_SECONDS):
                    reader = await self._reader(request)
                    return _json(200, await self._asked(reader.client, place, request.query))
        raise _PageFailure(404, "nothing is served there")

    async def _reader(self, request: web.Request) -> PageReader:
        """Raises ReaderRefused."""
        return PageReader("", self._client) if self._reader_of is None else await self._reader_of(request)

    def _asked(self, client: AsyncClient, place: list[str], query: Mapping[str, str]) -> Awaitable[dict[str, Any]]:
        match place:
            case ["queue"]:
                return answers.queue(client, query.get("namespace", ""))
            case ["pod", namespace, name] if namespace and name:
                return answers.pod(client, namespace, name)
            case ["explain", namespace, name] if namespace and name:
                return answers.explanation(client, namespace, name)
            case ["node", name] if name:
                return answers.node(client, name)
            case ["select"]:
                return answers.selected(client, query.get("selector", ""))
            case ["replicas"]:
                return answers.replicas(client.endpoints, self._client_at)
        raise _PageFailure(404, "nothing is served there")

    def _client_at(self, endpoint: str) -> AsyncClient:
        """Of one replica alone."""
        found = self._replica_clients.get(endpoint)
        if found is None:
            found = self._replica_clients[endpoint] = AsyncClient([endpoint], tls=self._tls, insecure=self._tls is None)
        return found

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        topics = frozenset(filter(None, request.query.get("topics", "").split(",")))
        if unknown := sorted(topics - set(TOPICS)):
            raise _PageFailure(400, f"topics: found {unknown[0][:40]!r}, allowed are {', '.join(TOPICS)}")
        if self._streams >= STREAMS_MAX:
            raise _PageFailure(503, f"{STREAMS_MAX} pages are open, which is as many as may be; close one")
        self._streams += 1
        try:
            feed = self._feeds.of(await self._reader(request))
            async with feed.watched():
                return await PageStream(feed, topics, self._assets.version, self._clock).serve(request)
        finally:
            self._streams -= 1

    async def _plan(self, request: web.Request) -> web.StreamResponse:
        reader = await self._reader(request)
        document = await _document(request, PLAN_BYTES_MAX)
        try:
            return _json(200, await self._plans.run(PlanWish.of(document), reader.client))
        except PlanRefused as error:
            raise _PageFailure(400, str(error)) from None

    async def _code(self, request: web.Request) -> web.StreamResponse:
        reader = await self._reader(request)
        if self._codes is None or not reader.token:
            raise _PageFailure(409, "a code carries a token to the page, and this request has shown none")
        try:
            return _json(200, {"code": self._codes.issue(reader.token)})
        except CodesFull:
            raise _PageFailure(503, f"{CODES_MAX} codes wait for their pages, which is as many as may; try again") from None

    async def _session(self, request: web.Request) -> web.StreamResponse:
        document = await _document(request, _CODE_BYTES_MAX)
        code = document.get("code") if isinstance(document, dict) else None
        token = self._codes.redeem(code) if self._codes is not None and isinstance(code, str) else None
        if token is None:
            text = "the code has served already, is older than a minute, or is of another gateway; `rayched ui` makes a new one"
            raise _PageFailure(403, text)
        return _json(200, {"token": token})


async def _document(request: web.Request, bytes_max: int) -> Any:
    """The JSON of a body. Raises _PageFailure."""
    body = b""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            while len(body) <= bytes_max and (more := await request.content.read(bytes_max + 1)):
                body += more
    except TimeoutError:
        raise _PageFailure(408, f"the body did not come within {ANSWER_SECONDS:g} s") from None
    if len(body) > bytes_max:
        raise _PageFailure(413, f"the body has more than {bytes_max} bytes")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise _PageFailure(400, "the body: want JSON") from None


def _asset(asset: PageAsset, cached: str) -> web.Response:
    return web.Response(body=asset.body, headers={**HEADERS, "Content-Type": asset.content_type, "Cache-Control": cached})


def _failed(code: int, message: str) -> web.Response:
    return _json(code, {"error": message})


def _json(code: int, document: dict[str, Any]) -> web.Response:
    body = json.dumps(document, separators=(",", ":")).encode()
    return web.Response(status=code, body=body, headers={**HEADERS, "Content-Type": "application/json"})
