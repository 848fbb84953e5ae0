"""What quota an etcd has: members before 3.6 say it among their metrics alone, on the port of their clients."""

from __future__ import annotations

import contextlib
import http.client
import re
from typing import Final

_BYTES_MAX: Final = 4 << 20
_SECONDS: Final = 2.0
_LINE: Final = re.compile(rb"^etcd_server_quota_backend_bytes (\S+)$", re.MULTILINE)


def quota_of(endpoint: str) -> int:
    """In bytes; 0 where this member does not tell it. `endpoint` is host:port, with http:// before it or not."""
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://").rstrip("/"), timeout=_SECONDS)
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError), contextlib.closing(connection):
        connection.request("GET", "/metrics")
        found = _LINE.search(connection.getresponse().read(_BYTES_MAX))
        return max(0, int(float(found[1]))) if found else 0
    return 0
