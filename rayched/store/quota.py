"""What quota an etcd has: members before 3.6 say it among their metrics alone, on the port of their clients."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
from typing import Final

_BYTES_MAX: Final = 4 << 20
_SECONDS: Final = 2.0
_LINE: Final = re.compile(rb"^etcd_server_quota_backend_bytes (\S+)$", re.MULTILINE)


def quota_of(endpoint: str) -> int:
    """In bytes; 0 where this member does not tell it. `endpoint` is host:port, with http:// before it or not, or unix:path."""
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        found = _LINE.search(metrics_of(endpoint))
        return max(0, int(float(found[1]))) if found else 0
    return 0


def metrics_of(endpoint: str) -> bytes:
    """What a member tells Prometheus. Raises OSError, HTTPException, ValueError."""
    if endpoint.startswith("unix:"):
        connection: http.client.HTTPConnection = _UnixConnection(endpoint.removeprefix("unix:"))
    else:
        connection = http.client.HTTPConnection(endpoint.removeprefix("http://").rstrip("/"), timeout=_SECONDS)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        return connection.getresponse().read(_BYTES_MAX)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP at a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_SECONDS)
        self.sock.connect(self._path)
