"""The agent's HTTP endpoint on loopback: /metrics, /metrics/resource, /livez, /readyz. One thread a request, a few at once.

A scrape asks the agent's loop for its state; where that does not answer within two seconds the answer is 503.
"""

from __future__ import annotations

import http.server
import logging
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from prometheus_client import CollectorRegistry, Metric, disable_created_metrics
from prometheus_client.exposition import generate_latest

from rayched.api.hosts import is_loopback

_REQUEST_SECONDS: Final = 5.0
_AT_ONCE_MAX: Final = 8
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PLAIN: Final = "text/plain; charset=utf-8"

log = logging.getLogger(__name__)

Page = Callable[[], tuple[HTTPStatus, str, bytes]]
"""What a path says: status, type, body. It may raise TimeoutError."""


class EndpointFault(Exception):
    """It cannot listen where it was told to; one line."""


class AgentEndpoint:
    """`start` once, `stop` once."""

    def __init__(self, address: str, pages: Mapping[str, Page]) -> None:
        """`address`: host:port on loopback. Raises EndpointFault."""
        host, _, port = address.rpartition(":")
        if not (port.isascii() and port.isdigit() and int(port) < 1 << 16) or not is_loopback(host):
            raise EndpointFault(f"--http-address {address!r}: want HOST:PORT with a host of loopback")
        try:
            self._server = _PageServer((host.strip("[]"), int(port)), _handler(pages))
        except OSError as error:
            raise EndpointFault(f"--http-address {address!r}: cannot listen there: {error.strerror}") from None
        self.address = f"{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="node-http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def metrics_page(families: Callable[[], list[Metric]], registry: CollectorRegistry | None = None) -> Page:
    """Families made at each scrape, and what the registry has."""
    disable_created_metrics()  # type: ignore[no-untyped-call]

    def page() -> tuple[HTTPStatus, str, bytes]:
        made = CollectorRegistry()
        found = families()
        made.register(_Made(found))
        body = generate_latest(made) + (generate_latest(registry) if registry is not None else b"")
        return HTTPStatus.OK, METRICS_TYPE, body

    return page


def health_page(fault: Callable[[], str]) -> Page:
    """`fault`: empty where all is well."""

    def page() -> tuple[HTTPStatus, str, bytes]:
        text = fault()
        status = HTTPStatus.SERVICE_UNAVAILABLE if text else HTTPStatus.OK
        return status, _PLAIN, f"{text or 'ok'}\n".encode()

    return page


class _Made:
    """Families as a registry wants them."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


class _PageServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        self._places = threading.BoundedSemaphore(_AT_ONCE_MAX)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, _: Any, client_address: Any) -> None:
        """Who hangs up in the middle is no fault of the agent's."""
        log.debug("a request of %s was cut short", client_address, exc_info=True)


def _handler(pages: Mapping[str, Page]) -> type[http.server.BaseHTTPRequestHandler]:
    class PageHandler(http.server.BaseHTTPRequestHandler):
        timeout = _REQUEST_SECONDS

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            try:
                answer = page() if page is not None else (HTTPStatus.NOT_FOUND, _PLAIN, b"no such path\n")
            except TimeoutError:
                answer = (HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, b"the agent's loop does not answer\n")
            status, kind, body = answer
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            log.debug(format, *args)

    return PageHandler
