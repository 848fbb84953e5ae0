"""`rayched gateway` as a process: an HTTP server over clients of replicas. What ends it ends nothing else."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from rayched.client.gateway_client import AsyncGatewayClient
from rayched.gateway.front import BODY_BYTES_MAX, GatewayFront
from rayched.gateway.identity import is_loopback

DEFAULT_LISTEN: Final = "127.0.0.1:7620"
_SHUTDOWN_SECONDS: Final = 2.0
"""What requests under way have; watches end at once."""
_PORT_MAX: Final = 65_535


class GatewayError(Exception):
    """The gateway cannot be run as it was told to. The message is one line."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """How to run it."""

    host: str
    port: int
    """0: any that is free."""
    endpoints: str | None
    """Replicas, host:port, comma separated; None: as every client."""


def settings_of(listen: str, endpoints: str | None) -> GatewaySettings:
    """Raises GatewayError."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > _PORT_MAX:
        raise GatewayError(f"--listen {listen!r}: want HOST:PORT, for example {DEFAULT_LISTEN}")
    if not is_loopback(host):
        raise GatewayError(
            f"--listen {listen!r}: want an address on loopback; the gateway has no TLS and asks nobody who they are"
        )
    return GatewaySettings(host, int(port), endpoints)


async def run(settings: GatewaySettings, listens: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT. `listens` is told the address as soon as it takes requests. Raises GatewayError."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        client = AsyncGatewayClient(settings.endpoints)
    except ValueError as error:
        raise GatewayError(str(error)) from None
    async with client:
        front = GatewayFront(lambda _identity: client, time.time)
        application = web.Application(client_max_size=BODY_BYTES_MAX)
        # A path may have line breaks in it, which `.` does not match: what no route has, aiohttp answers in words of its own.
        application.router.add_route("*", r"/{path:[\s\S]*}", front.handle)
        # With cancellation a watch ends with its client, also while nothing happens.
        runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_SECONDS, handle_signals=False
        )
        await runner.setup()
        try:
            site = web.TCPSite(runner, settings.host, settings.port)
            await site.start()
            listens(_address_of(runner, settings.host))
            await stop.wait()
        except OSError as error:
            raise GatewayError(f"cannot listen at {settings.host}:{settings.port}: {error.strerror or error}") from None
        finally:
            await runner.cleanup()


def _address_of(runner: web.AppRunner, host: str) -> str:
    port = runner.addresses[0][1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
