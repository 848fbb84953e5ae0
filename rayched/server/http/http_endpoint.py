"""HttpEndpoint: a small HTTP server beside the API, for probes, scrapes and people with curl.

It reads and changes nothing: GET and HEAD of the paths it was given, 404 for others, 405 for other methods. One daemon thread
accepts, one answers each connection, CONNECTIONS_MAX at once. None of them holds anything that the election or the API waits for.

Whoever says nothing, or says it byte by byte, keeps nobody else out: the whole request has to be there SECONDS_MAX after the
connection was made, and when all places are taken, the oldest connection that is still asking gives its place to the new one.
Only where all of them are being answered is a new one closed.

There is no authentication: whoever reaches the port can read it, so it is opened on loopback unless it was asked for otherwise.
"""

from __future__ import annotations

import contextlib
import http.server
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from rayched.server.app import ListenError

CONNECTIONS_MAX: Final = 16
SECONDS_MAX: Final = 5.0
"""For a client to ask, and to take the answer."""
PLAIN_TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """What a path is asked."""

    path: str
    """What follows the route: "" or "/leaderElection"."""
    query: Mapping[str, list[str]]
    accept: str = ""
    """The header; "" for none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What it says."""

    body: bytes
    content_type: str = PLAIN_TEXT
    status: HTTPStatus = HTTPStatus.OK


Route = Callable[[Request], Answer]
"""Called on a thread of the endpoint; returns within a few seconds."""


class HttpEndpoint:
    """`start` once, `stop` once; both return at once."""

    def __init__(self, host: str, port: int, routes: Mapping[str, Route], parents: frozenset[str] = frozenset()) -> None:
        """`routes` by path. Those of `parents` also answer for the paths below them. Raises ListenError."""
        try:
            self._server = _Server((host.strip("[]"), port), _table(routes, parents))
        except OSError as error:
            raise ListenError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        self.address = f"{host}:{self._server.server_address[1]}"
        """host:port, with the real port."""
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Open connections end with the process."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


def _table(routes: Mapping[str, Route], parents: frozenset[str]) -> Callable[[str], tuple[Route, str] | None]:
    def find(path: str) -> tuple[Route, str] | None:
        if path in routes:
            return routes[path], ""
        parent, slash, _ = path.rpartition("/")
        return (routes[parent], path[len(parent) :]) if slash and parent in parents else None

    return find


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, place: tuple[str, int], find: Callable[[str], tuple[Route, str] | None]) -> None:
        self.find = find
        self._guard = threading.Lock()
        self._open: set[socket.socket] = set()
        self._asking: dict[socket.socket, float] = {}
        """Of those that are open the ones whose request is not complete, oldest first, and since when."""
        if ":" in place[0]:
            self.address_family = socket.AF_INET6
        super().__init__(place, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            if len(self._open) >= CONNECTIONS_MAX and self._asking:
                self._drop(next(iter(self._asking)))
            has_place = len(self._open) < CONNECTIONS_MAX
            if has_place:
                self._open.add(request)
                self._asking[request] = time.monotonic()
        if not has_place:
            _log.warning("more than %d HTTP connections at once; one from %s was closed", CONNECTIONS_MAX, client_address[0])
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """At each turn of the accepting thread, ten times a second at least."""
        with self._guard:
            began_before = time.monotonic() - SECONDS_MAX
            for connection in [one for one, began in self._asking.items() if began <= began_before]:
                self._drop(connection)

    def has_asked(self, request: socket.socket) -> None:
        """Its request is complete."""
        with self._guard:
            self._asking.pop(request, None)

    def _drop(self, connection: socket.socket) -> None:
        """With `_guard` held: its place is free at once, and its thread ends as soon as it reads."""
        self._open.discard(connection)
        del self._asking[connection]
        with contextlib.suppress(OSError):  # the client was faster
            connection.shutdown(socket.SHUT_RDWR)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._guard:
                self._open.discard(request)
                self._asking.pop(request, None)

    def handle_error(self, _request: Any, client_address: Any) -> None:
        """A client that went away is nobody's fault; routes' own faults are answered before they come here."""
        _log.debug("an HTTP connection from %s broke", client_address[0], exc_info=True)


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = SECONDS_MAX
    server_version = "rayched"
    sys_version = ""
    server: _Server

    def parse_request(self) -> bool:
        """The first line and the headers; nothing else is read."""
        is_request = super().parse_request()
        self.server.has_asked(self.connection)
        return is_request

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _refuse(self) -> None:
        self._send(Answer(b"405 method not allowed\n", status=HTTPStatus.METHOD_NOT_ALLOWED), with_body=True)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _refuse  # noqa: N815  # the names that http.server looks for

    def _answer(self, *, with_body: bool) -> None:
        asked = urlsplit(self.path)
        found = self.server.find(asked.path)
        if found is None:
            self._send(Answer(b"404 page not found\n", status=HTTPStatus.NOT_FOUND), with_body)
            return
        route, rest = found
        try:
            query = parse_qs(asked.query, keep_blank_values=True, max_num_fields=32)
            answer = route(Request(rest, query, self.headers.get("Accept", "")))
        except Exception:
            # The border to the client; a broken page must not end the others.
            _log.exception("%s cannot be answered", asked.path)
            answer = Answer(b"500 internal error; the log says more\n", status=HTTPStatus.INTERNAL_SERVER_ERROR)
        self._send(answer, with_body)

    def _send(self, answer: Answer, with_body: bool) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Probes come every few seconds."""
        _log.debug(format, *args)
