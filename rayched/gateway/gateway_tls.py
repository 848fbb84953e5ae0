"""The gateway's certificate: what it shows to its callers and to replicas, whom it lets in, and until when.

One pair serves and asks, as a replica's does. Its identity is of the kind web, which replicas let ask in the name of users. Files
are read again when they change: for callers at the next handshake, for replicas at the next call.

A connection outlives its caller's certificate. Once a second the deny list is read again, and connections whose certificate does
not count any more are closed, with the watches on them; a request is judged by itself before.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self

from aiohttp import web

from rayched.access.identity import Identity, IdentityKind
from rayched.gateway.identity import peer_of
from rayched.pki import private_files
from rayched.pki.callers import Peer, peer_with
from rayched.pki.certificates import hosts_of, read_certificates
from rayched.pki.deny_list import DenyList
from rayched.pki.errors import PkiError
from rayched.pki.https import HttpsCertificate
from rayched.pki.tls_files import TlsFiles

LOOK_SECONDS: Final = 1.0
"""Between two looks at connections and the deny list."""


class GatewayTls:
    """Of one gateway. Owner: the event loop."""

    def __init__(
        self,
        files: TlsFiles,
        identity: Identity,
        https: HttpsCertificate,
        deny_list: DenyList,
        clock: Callable[[], float],
    ) -> None:
        self.files: Final = files
        self.identity: Final = identity
        self._https = https
        self._deny_list = deny_list
        self._clock = clock
        self._served: dict[asyncio.Task[Any] | None, tuple[asyncio.Transport | None, Peer]] = {}

    @classmethod
    def read(cls, files: TlsFiles, deny_list: Path | None, clock: Callable[[], float] = time.time) -> Self:
        """`clock`: seconds since 1970. Raises PkiError where a file is not what it has to be."""
        private_files.read_private(files.key)
        https = HttpsCertificate(files.certificate, files.key, files.ca)
        own = peer_with(private_files.read(files.certificate))
        if isinstance(own, str):
            raise PkiError(f"{files.certificate}: {own}")
        if own.identity.kind is not IdentityKind.WEB or not own.certificate.serves:
            raise PkiError(f"{files.certificate}: is that of {own.identity}, want one of `rayched pki issue web`, which serves")
        denied = DenyList(deny_list)
        if why := own.fault(clock(), denied):
            raise PkiError(f"{files.certificate}: {why}; `rayched pki issue web` makes a new one")
        return cls(files, own.identity, https, denied, clock)

    @property
    def hosts(self) -> frozenset[str]:
        """Names, in lower case, and addresses that the certificate in its file has now. Raises PkiError."""
        return hosts_of(read_certificates(private_files.read(self.files.certificate), str(self.files.certificate))[0])

    def context(self) -> ssl.SSLContext:
        """For the server's socket."""
        return self._https.lasting_context()

    def fault(self, peer: Peer) -> str:
        """Why a caller's certificate does not count now; empty: it does."""
        return peer.fault(self._clock(), self._deny_list)

    @contextlib.contextmanager
    def serving(self, request: web.Request) -> Iterator[None]:
        """While inside, the request's connection is closed when its certificate does not count any more."""
        peer = peer_of(request)
        task = asyncio.current_task()
        if isinstance(peer, Peer):
            self._served[task] = request.transport, peer
        try:
            yield
        finally:
            self._served.pop(task, None)

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._deny_list.look()
            for transport, peer in list(self._served.values()):
                if transport is not None and self.fault(peer):
                    transport.abort()
