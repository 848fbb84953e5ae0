"""Probes and hooks over the network: an HTTP GET or a TCP connection. They block, and belong into a worker."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Final

from rayched.v1.core_pb2 import Container, HTTPGetAction, TCPSocketAction
from rayched.v1.meta_pb2 import IntOrString

_BODY_MAX: Final = 10 << 10
_PORT_MAX: Final = 65_535


def http_get(action: HTTPGetAction, container: Container, address: str, seconds: float) -> str:
    """Empty for a status from 200 to 399 within so many seconds in all; else what was wrong."""
    ends_at = time.monotonic() + seconds
    port = _port(action.port, container)
    if port is None:
        return _port_fault(action.port)
    host = action.host or address
    path = action.path or "/"
    headers = {header.name: header.value for header in action.http_headers}
    # As kubelet does: a probe asks whether something answers, not who.
    context = ssl._create_unverified_context() if action.scheme.upper() == "HTTPS" else None
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
    if context is not None:
        connection = http.client.HTTPSConnection(host, port, timeout=seconds, context=context)
    try:
        raw = socket.create_connection((host, port), timeout=seconds)
        with raw, _cut_at(raw, ends_at):
            connection.sock = context.wrap_socket(raw, server_hostname=host) if context is not None else raw
            connection.request(
                "GET", path if path.startswith("/") else f"/{path}", headers={"User-Agent": "kube-probe", **headers}
            )
            response = connection.getresponse()
            response.read(_BODY_MAX)
    except (OSError, http.client.HTTPException) as error:
        text = "timed out" if time.monotonic() >= ends_at else str(error) or type(error).__name__
        return f"Get http://{host}:{port}{path}: {text}"
    finally:
        connection.close()
    return "" if 200 <= response.status < 400 else f"HTTP probe failed with statuscode: {response.status}"


def tcp_connect(action: TCPSocketAction, container: Container, address: str, seconds: float) -> str:
    """Empty where somebody listens; else what was wrong."""
    port = _port(action.port, container)
    if port is None:
        return _port_fault(action.port)
    host = action.host or address
    try:
        socket.create_connection((host, port), timeout=seconds).close()
    except OSError as error:
        return f"dial tcp {host}:{port}: {error}"
    return ""


@contextlib.contextmanager
def _cut_at(connection: socket.socket, ends_at: float) -> Iterator[None]:
    """Ends the connection then: its own timeout begins anew with each byte that comes."""
    with connection.dup() as own:

        def cut() -> None:
            # Who has hung up meanwhile needs no cut.
            with contextlib.suppress(OSError):
                own.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(max(ends_at - time.monotonic(), 0.0), cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _port(port: IntOrString, container: Container) -> int | None:
    """None: there is no such port."""
    text = port.string_value
    if port.WhichOneof("value") != "string_value":
        found: int | None = port.int_value
    elif text.isascii() and text.isdigit() and len(text) <= len(str(_PORT_MAX)):
        found = int(text)
    else:
        found = next((one.container_port for one in container.ports if one.name == text), None)
    return found if found is not None and 1 <= found <= _PORT_MAX else None


def _port_fault(port: IntOrString) -> str:
    asked = port.string_value if port.WhichOneof("value") == "string_value" else port.int_value
    return f"port {asked!r} is none of the container's, and no number from 1 to {_PORT_MAX}"
