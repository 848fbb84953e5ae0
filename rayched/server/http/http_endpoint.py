"""HttpEndpoint: a small HTTP server beside the API, for probes, scrapes and people with curl.

It reads and changes nothing: GET and HEAD of the paths it was given, 404 for others, 405 for other methods. One daemon thread
accepts, one answers each connection. None of them holds anything that the election or the API waits for.

CONNECTIONS_MAX are open at once, ADDRESS_MAX of one address. Whoever says nothing, or says it byte by byte, keeps nobody else
out: the whole request has to be there SECONDS_MAX after the connection was made, in REQUEST_BYTES_MAX, and when all places are
taken, the oldest connection that is still asking gives its place to the new one: one of the same address where that has too
many. Where all of them are being answered, a few places are left for whoever restarts what does not live: in these nothing but
KEPT_PATH is answered.

A page in a browser reaches any port of its host under a name of its own that leads there. So whoever asks by a name that is not
this endpoint's gets 421; an address is nobody's name.

It asks nobody who he is. It is opened on loopback unless it was asked for otherwise, and then it speaks TLS; routes are told what
certificate a caller has shown, and which credentials a request has, and may ask by themselves (http_readers.py).
"""

from __future__ import annotations

import contextlib
import http.server
import ipaddress
import logging
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from rayched.api.errors import quoted
from rayched.pki.https import HttpsCertificate
from rayched.server.server_options import ListenError

CONNECTIONS_MAX: Final = 64
ADDRESS_MAX: Final = 4
KEPT: Final = 4
"""Of all places, those for KEPT_PATH alone."""
KEPT_PATH: Final = "/livez"
SECONDS_MAX: Final = 5.0
"""For a client to ask, and to take the answer."""
REQUEST_BYTES_MAX: Final = 8 << 10
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
    address: str = ""
    """Of the host that asks."""
    certificate: bytes = b""
    """In PEM, that the connection was made with; empty: none."""
    authorization: str = field(default="", repr=False)
    """The header; "" for none."""
    withholds: bool = False
    """Whoever asks may not know why something is wrong."""


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

    def __init__(
        self,
        host: str,
        port: int,
        routes: Mapping[str, Route],
        parents: frozenset[str] = frozenset(),
        names: Collection[str] = (),
        certificate: HttpsCertificate | None = None,
    ) -> None:
        """`routes` by path. Those of `parents` also answer for the paths below them. `names`: further ones under which it may be
        asked. With a certificate it speaks TLS. Raises ListenError."""
        own = frozenset(name.lower() for name in ("localhost", socket.gethostname(), host, *names))
        try:
            self._server = _Server((host.strip("[]"), port), _table(routes, parents), own, certificate)
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


@dataclass(frozen=True, slots=True)
class _HttpPlace:
    """One open connection's."""

    address: str
    is_kept: bool


class _RequestTooLong(Exception):
    """More than REQUEST_BYTES_MAX came, and no end of the request."""


class _BoundedReader:
    """What http.server reads a request from."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._left = REQUEST_BYTES_MAX

    def readline(self, limit: int) -> bytes:
        """Raises _RequestTooLong."""
        line: bytes = self._source.readline(min(limit, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise _RequestTooLong
        return line

    def drain(self) -> None:
        """Forgets what came so far."""
        self._source.read1(1 << 16)

    def close(self) -> None:
        self._source.close()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(
        self,
        place: tuple[str, int],
        find: Callable[[str], tuple[Route, str] | None],
        names: frozenset[str],
        certificate: HttpsCertificate | None,
    ) -> None:
        self.find = find
        self.names = names
        self._certificate = certificate
        self._guard = threading.Lock()
        self._open: dict[socket.socket, _HttpPlace] = {}
        self._asking: dict[socket.socket, float] = {}
        """Of those that are open the ones whose request is not complete, oldest first, and since when."""
        if ":" in place[0]:
            self.address_family = socket.AF_INET6
        super().__init__(place, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            place = self._place_for(client_address[0])
            if place is not None:
                self._open[request] = place
                self._asking[request] = time.monotonic()
        if place is None:
            _log.warning("all places for HTTP connections are taken; one from %s was closed", client_address[0])
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def is_kept(self, request: socket.socket) -> bool:
        """Whether it has a place for KEPT_PATH alone."""
        with self._guard:
            place = self._open.get(request)
        return place is not None and place.is_kept

    def _place_for(self, address: str) -> _HttpPlace | None:
        """With `_guard` held. None: all are being answered."""
        ordinary = [one for one, place in self._open.items() if not place.is_kept]
        own = [one for one in ordinary if self._open[one].address == address]
        crowd = own if len(own) >= ADDRESS_MAX else ordinary if len(ordinary) >= CONNECTIONS_MAX - KEPT else []
        if not crowd or self._dropped_one_of(crowd):
            return _HttpPlace(address, is_kept=False)
        kept = [one for one, place in self._open.items() if place.is_kept]
        if len(kept) < KEPT or self._dropped_one_of(kept):
            return _HttpPlace(address, is_kept=True)
        return None

    def _dropped_one_of(self, crowd: Collection[socket.socket]) -> bool:
        """The oldest that is still asking, where there is one."""
        oldest = next((one for one in self._asking if one in crowd), None)
        if oldest is not None:
            self._drop(oldest)
        return oldest is not None

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
        self._open.pop(connection, None)
        del self._asking[connection]
        with contextlib.suppress(OSError):  # the client was faster
            connection.shutdown(socket.SHUT_RDWR)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            if self._certificate is not None:
                request = self._secured(request, self._certificate)
            super().process_request_thread(request, client_address)
        finally:
            with self._guard:
                self._open.pop(request, None)
                self._asking.pop(request, None)

    def _secured(self, request: socket.socket, certificate: HttpsCertificate) -> socket.socket:
        """The connection with TLS, in the place of the one without. The handshake is part of the time to ask."""
        secured = certificate.context().wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        with self._guard:
            if request in self._open:
                self._open[secured] = self._open.pop(request)
            if request in self._asking:
                self._asking[secured] = self._asking.pop(request)
        return secured

    def handle_error(self, _request: Any, client_address: Any) -> None:
        """A client that went away is nobody's fault; routes' own faults are answered before they come here."""
        _log.debug("an HTTP connection from %s broke", client_address[0], exc_info=True)


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = SECONDS_MAX
    server_version = "rayched"
    sys_version = ""
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.rfile: Any = _BoundedReader(self.rfile)

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except _RequestTooLong:
            self.server.has_asked(self.connection)
            self.command, self.requestline, self.request_version = "", "", "HTTP/1.0"
            self.close_connection = True
            text = f"431 the request is longer than {REQUEST_BYTES_MAX} bytes\n"
            self._send(Answer(text.encode(), status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), with_body=True)
            # What is there and not read would let the kernel take the answer back.
            self.rfile.drain()

    def parse_request(self) -> bool:
        """The first line and the headers; nothing else is read. False: it is answered already."""
        is_request = super().parse_request()
        self.server.has_asked(self.connection)
        refusal = self._refusal() if is_request else None
        if refusal is not None:
            self._send(refusal, with_body=True)
        return is_request and refusal is None

    def _refusal(self) -> Answer | None:
        """The answer to what is not asked of this endpoint, or not now."""
        for host in self.headers.get_all("Host", ()):
            if not _is_named(host, self.server.names):
                text = (
                    f"421 {quoted(host)} is no name of this endpoint; ask by its address, or give it that name (--http-names)\n"
                )
                return Answer(text.encode(), status=HTTPStatus.MISDIRECTED_REQUEST)
        if self.server.is_kept(self.connection) and urlsplit(self.path).path != KEPT_PATH:
            text = f"503 as many connections are being answered as may be; only {KEPT_PATH} is answered beside them\n"
            return Answer(text.encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
        return None

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
            answer = route(self._request(rest, query))
        except Exception:
            # The border to the client; a broken page must not end the others.
            _log.exception("%s cannot be answered", asked.path)
            answer = Answer(b"500 internal error; the log says more\n", status=HTTPStatus.INTERNAL_SERVER_ERROR)
        self._send(answer, with_body)

    def _request(self, rest: str, query: Mapping[str, list[str]]) -> Request:
        accept, authorization = (self.headers.get(name, "") for name in ("Accept", "Authorization"))
        return Request(rest, query, accept, self.client_address[0], _certificate_of(self.connection), authorization)

    def _send(self, answer: Answer, with_body: bool) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        if answer.status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Bearer realm="rayched"')
        if answer.status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
            self.send_header("Retry-After", "1")
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Probes come every few seconds."""
        _log.debug(format, *args)


def _certificate_of(connection: socket.socket) -> bytes:
    """In PEM; empty: there is none."""
    shown = connection.getpeercert(binary_form=True) if isinstance(connection, ssl.SSLSocket) else None
    return ssl.DER_cert_to_PEM_cert(shown).encode() if shown else b""


def _is_named(host: str, names: Collection[str]) -> bool:
    """Whether the header of a request names this endpoint. No header, or an empty one, names nothing else."""
    if not host.strip():
        return True
    try:
        name = urlsplit(f"//{host.strip()}").hostname or ""
    except ValueError:
        return False
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return name.removesuffix(".") in names
