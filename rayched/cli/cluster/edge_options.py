"""Options on how much the API takes, of one caller and of all; and on the names of the HTTP endpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final

import typer

from rayched.server.edge.limits import CallerLimits, EdgeLimits, RateLimits

DEFAULTS: Final = EdgeLimits()
RATES: Final = RateLimits()
NAMESPACES_AT_ONCE: Final = 3
"""So many may have all the bytes of one."""


def _rate(what: str) -> Any:
    return typer.Option(metavar="RATE", help=f"{what} a second of one caller.", min=0.1)


ConnectionsMax = Annotated[int, typer.Option("--connections-max", metavar="N", help="Of the API, in all.", min=1)]
ConnectionsPerAddress = Annotated[int, typer.Option(metavar="N", help="The same of one address, or one identity.", min=1)]
WriteRate = Annotated[float, _rate("Calls that write,")]
ReadRate = Annotated[float, _rate("Calls that read,")]
WatchRate = Annotated[float, _rate("Watches begun")]
HeartbeatRate = Annotated[float, _rate("Heartbeats")]
StoreBytes = Annotated[
    float,
    typer.Option(
        "--store-bytes", metavar="N", help="Bytes of objects written to one namespace a second; thrice that to all.", min=1
    ),
]
LimitLoopback = Annotated[
    bool, typer.Option("--limit-loopback", help="Callers on this host without an identity count as one caller.")
]
HttpNames = Annotated[
    str,
    typer.Option(
        "--http-names",
        metavar="NAME,...",
        help="Under which health and metrics may be asked, besides addresses.",
        show_default=False,
    ),
]


def edge_limits(
    connections_max: int,
    connections_per_address: int,
    write_rate: float,
    read_rate: float,
    watch_rate: float,
    heartbeat_rate: float,
    store_bytes: float,
    limit_loopback: bool,
) -> EdgeLimits:
    """What the options say."""
    rates = RateLimits(write_rate, read_rate, watch_rate, heartbeat_rate)
    caller = CallerLimits(connections=connections_per_address, rates=rates, store_bytes=store_bytes)
    found = EdgeLimits(identity=caller, connections=connections_max, store_bytes=store_bytes * NAMESPACES_AT_ONCE)
    return replace(found, loopback=caller) if limit_loopback else found
