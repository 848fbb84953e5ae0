"""Probes and hooks over the network: an HTTP GET or a TCP connection. They block, and belong into a worker."""

from __future__ import annotations

import http.client
import socket
import ssl
from typing import Final

from rayched.v1.core_pb2 import Container, HTTPGetAction, TCPSocketAction
from rayched.v1.meta_pb2 import IntOrString

_BODY_MAX: Final = 10 << 10


def http_get(action: HTTPGetAction, container: Container, address: str, seconds: float) -> str:
    """Empty for a status from 200 to 399; else what was wrong."""
    port = _port(action.port, container)
    if port is None:
        return f"port {action.port.string_value!r} is none of the container's"
    host = action.host or address
    path = action.path or "/"
    headers = {header.name: header.value for header in action.http_headers}
    connection: http.client.HTTPConnection
    if action.scheme.upper() == "HTTPS":
        # As kubelet does: a probe asks whether something answers, not who.
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(host, port, timeout=seconds, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=seconds)
    try:
        connection.request("GET", path if path.startswith("/") else f"/{path}", headers={"User-Agent": "kube-probe", **headers})
        response = connection.getresponse()
        response.read(_BODY_MAX)
    except (OSError, http.client.HTTPException) as error:
        return f"Get http://{host}:{port}{path}: {error or type(error).__name__}"
    finally:
        connection.close()
    return "" if 200 <= response.status < 400 else f"HTTP probe failed with statuscode: {response.status}"


def tcp_connect(action: TCPSocketAction, container: Container, address: str, seconds: float) -> str:
    """Empty where somebody listens; else what was wrong."""
    port = _port(action.port, container)
    if port is None:
        return f"port {action.port.string_value!r} is none of the container's"
    host = action.host or address
    try:
        socket.create_connection((host, port), timeout=seconds).close()
    except OSError as error:
        return f"dial tcp {host}:{port}: {error}"
    return ""


def _port(port: IntOrString, container: Container) -> int | None:
    if port.WhichOneof("value") != "string_value":
        return port.int_value
    if port.string_value.isascii() and port.string_value.isdigit():
        return int(port.string_value)
    return next((one.container_port for one in container.ports if one.name == port.string_value), None)
