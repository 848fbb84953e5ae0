"""The ports of a cluster on this host: of the first replica, of its HTTP endpoint, and of the gateway beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from rayched.cli.printing import fail
from rayched.replica.busy_ports import try_port
from rayched.replica.settings import DEFAULT_PORT, GATEWAY_PORT_DISTANCE, HTTP_PORT_DISTANCE

_HOST: Final = "127.0.0.1"


def _first(what: str, distance: int) -> Any:
    text = f"{what}; 0: none. Not given: --port + {distance}."
    return typer.Option(metavar="PORT", help=text, show_default=False, min=0, max=65_500)


@dataclass(frozen=True, kw_only=True)
class PortOptions:
    """As they were given."""

    port: Annotated[
        int, typer.Option(metavar="PORT", help="Port of the first replica; the others use the next ones.", min=1, max=65_000)
    ] = DEFAULT_PORT
    http_port: Annotated[int | None, _first("The same of health, metrics and status", HTTP_PORT_DISTANCE)] = None
    gateway_port: Annotated[int | None, _first("The same of the Kubernetes API", GATEWAY_PORT_DISTANCE)] = None

    @property
    def first_http(self) -> int:
        """0: there are none."""
        return self.port + HTTP_PORT_DISTANCE if self.http_port is None else self.http_port

    @property
    def first_gateway(self) -> int:
        """0: there are none."""
        return self.port + GATEWAY_PORT_DISTANCE if self.gateway_port is None else self.gateway_port

    def check(self, replicas: int) -> None:
        """Ends the command where one of the replicas could not listen."""
        for flag, first in (("--port", self.port), ("--http-port", self.first_http), ("--gateway-port", self.first_gateway)):
            check_ports(range(first, first + replicas) if first else (), flag)


def check_ports(ports: Iterable[int], flag: str = "--port") -> None:
    """Ends the command where a replica could not listen."""
    for port in ports:
        try:
            try_port(_HOST, port)
        except OSError as error:
            fail(f"{flag}: cannot listen on {_HOST}:{port}: {error.strerror}; stop what does, or choose another {flag}")
