"""`rayched gateway` as a process: an HTTP server over clients of replicas. What ends it ends nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

from rayched.api.hosts import is_loopback
from rayched.client.contexts import choose
from rayched.client.gateway_client import AsyncGatewayClient
from rayched.gateway.front import GatewayFront
from rayched.gateway.gateway_tls import GatewayTls
from rayched.gateway.http_log import HTTP_LOG
from rayched.gateway.identity import CallerIdentity, CallerJudge
from rayched.gateway.limits import BODY_BYTES_MAX, BodyBudget, GatewayLimits, listening
from rayched.gateway.statuses import StatusFailure
from rayched.gateway.token_judge import TokenJudge
from rayched.page.page_front import Handler, PageFront
from rayched.page.readers import PageReader, ReaderRefused
from rayched.page.sign_in_codes import SignInCodes
from rayched.pki.errors import PkiError
from rayched.pki.tls_files import TlsFiles

DEFAULT_LISTEN: Final = "127.0.0.1:7620"
_SHUTDOWN_SECONDS: Final = 2.0
"""What requests under way have; watches end at once."""
_PORT_MAX: Final = 65_535
_CODE_BYTES: Final = 32
"""Random ones, of a code that signs in."""


class GatewayError(Exception):
    """The gateway cannot be run as it was told to. The message is one line."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """How to run it."""

    host: str
    port: int
    """0: any that is free."""
    endpoints: tuple[str, ...]
    """Replicas, host:port each."""
    tls: TlsFiles | None
    """What it shows to callers and replicas, and whose callers it trusts; None: there is no TLS on either side."""
    deny_list: Path | None
    limits: GatewayLimits = field(default_factory=GatewayLimits)


def settings_of(
    listen: str,
    endpoints: str | None,
    context: str | None = None,
    tls: TlsFiles | None = None,
    deny_list: Path | None = None,
    limits: GatewayLimits | None = None,
) -> GatewaySettings:
    """`endpoints` and `context`: as every client takes them. Raises GatewayError."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > _PORT_MAX:
        raise GatewayError(f"--listen {listen!r}: want HOST:PORT, for example {DEFAULT_LISTEN}")
    if tls is None and not is_loopback(host):
        raise GatewayError(
            f"--listen {listen!r}: want an address on loopback; without --tls-cert-file, --tls-private-key-file and"
            " --client-ca-file nobody is asked who they are"
        )
    try:
        chosen = choose(endpoints, context)
    except ValueError as error:
        raise GatewayError(str(error)) from None
    if tls is None and chosen.files is not None:
        raise GatewayError(
            f"the replicas at {','.join(chosen.endpoints)} want certificates, and every user of this host would ask with that of"
            f" context {chosen.context}: `rayched pki issue web NAME` makes one for the gateway, which --tls-cert-file,"
            " --tls-private-key-file and --client-ca-file name; --context none is for replicas without certificates"
        )
    return GatewaySettings(host, int(port), chosen.endpoints, tls, deny_list, limits or GatewayLimits())


async def run(settings: GatewaySettings, listens: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT. `listens` is told the URL as soon as it takes requests. Raises GatewayError."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        tls = None if settings.tls is None else GatewayTls.read(settings.tls, settings.deny_list)
        client = AsyncGatewayClient(settings.endpoints, tls=settings.tls, insecure=tls is None)
    except (ValueError, PkiError) as error:
        raise GatewayError(str(error)) from None
    judge, client_of = _judge(client, tls), _clients(client)
    page = PageFront(client, time.time) if tls is None else _secured_page(client, tls, judge, client_of)
    async with client, _watched(tls):
        application = _application(tls, page, GatewayFront(client, client_of, judge, time.time, BodyBudget(settings.limits)))
        # With cancellation a watch ends with its client, also while nothing happens.
        runner = web.AppRunner(
            application,
            access_log=None,
            logger=HTTP_LOG,
            handler_cancellation=True,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            handle_signals=False,
            keepalive_timeout=settings.limits.idle_seconds,
        )
        await runner.setup()
        try:
            context = None if tls is None else tls.context()
            for one in listening(settings.host, settings.port, settings.limits):
                await web.SockSite(runner, one, ssl_context=context).start()
            listens(f"http{'' if tls is None else 's'}://{_address_of(runner, settings.host)}")
            await stop.wait()
        except OSError as error:
            raise GatewayError(f"cannot listen at {settings.host}:{settings.port}: {error.strerror or error}") from None
        finally:
            await page.close()
            await runner.cleanup()


def _clients(client: AsyncGatewayClient) -> Callable[[CallerIdentity], AsyncGatewayClient]:
    """What asks in the name of a caller."""

    def client_of(identity: CallerIdentity) -> AsyncGatewayClient:
        if identity.token:
            return client.asking_with(identity.token)
        return client.asking_for(identity.uri, identity.serial) if identity.uri else client

    return client_of


def _judge(client: AsyncGatewayClient, tls: GatewayTls | None) -> CallerJudge:
    async def whose(token: str) -> str:
        return (await client.asking_with(token).who_am_i()).identity

    if tls is None:
        return CallerJudge("", None)
    return CallerJudge(tls.identity.trust_domain, tls.fault, TokenJudge(whose, time.monotonic), tls.hosts)


def _secured_page(
    client: AsyncGatewayClient,
    tls: GatewayTls,
    judge: CallerJudge,
    client_of: Callable[[CallerIdentity], AsyncGatewayClient],
) -> PageFront:
    """Its readers show who they are, as kubectl does."""

    async def reader_of(request: web.Request) -> PageReader:
        try:
            found = await judge.of_reader(request)
        except StatusFailure as failure:
            raise ReaderRefused(failure.code, failure.message) from None
        shown = hashlib.sha256(found.token.encode()).hexdigest() if found.token else found.serial
        return PageReader(f"{found.uri} {shown}", client_of(found), found.token)

    codes = SignInCodes(time.monotonic, partial(secrets.token_urlsafe, _CODE_BYTES))
    return PageFront(client, time.time, reader_of, tls.hosts, tls.files, codes)


def _application(tls: GatewayTls | None, page: PageFront, front: GatewayFront) -> web.Application:
    """What is served at which place."""

    def watched(handle: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Handler:
        async def served(request: web.Request) -> web.StreamResponse:
            with contextlib.nullcontext() if tls is None else tls.serving(request):
                return await handle(request)

        return served

    application = web.Application(client_max_size=BODY_BYTES_MAX)
    page.add_to(application, watched(page.handle))
    # A path may have line breaks in it, which `.` does not match: what no route has, aiohttp answers in words of its own.
    application.router.add_route("*", r"/{path:[\s\S]*}", watched(front.handle))
    return application


@contextlib.asynccontextmanager
async def _watched(tls: GatewayTls | None) -> AsyncIterator[None]:
    """While inside, connections end with their certificates."""
    if tls is None:
        yield
        return
    watching = asyncio.create_task(tls.watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def _address_of(runner: web.AppRunner, host: str) -> str:
    port = runner.addresses[0][1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
