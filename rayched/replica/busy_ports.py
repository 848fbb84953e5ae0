"""Whether a server can listen somewhere, told before anything starts. That the port may be taken in between its server tells."""

from __future__ import annotations

import socket


def try_port(host: str, port: int) -> None:
    """Raises OSError where nobody can listen there now."""
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    with socket.socket(family, kind, protocol) as probe:
        # Connections of an earlier life that are just closing do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(place)
