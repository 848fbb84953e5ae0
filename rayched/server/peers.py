"""Who calls, by the certificate that the connection was made with; and whether that certificate still counts.

What gRPC does not ask at the handshake is asked at each call (pki/callers.py), and that the identity is one of this cluster. A
connection outlives its certificate, so expiry and the deny list are looked at in each call and each message of a stream, from
memory; streams that say nothing are ended by `watch`.

Owner: the event loop. Cost: a look-up of the certificate's bytes a call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from rayched.access.identity import Identity, IdentityError, IdentityKind
from rayched.pki.callers import Peer, peer_with
from rayched.pki.certificates import serial_text
from rayched.pki.client_credentials import ClientCertificate
from rayched.pki.deny_list import DenyList
from rayched.pki.errors import PkiError
from rayched.pki.server_credentials import ServerCertificate
from rayched.pki.tls_files import TlsFiles
from rayched.server.errors import ApiFailure, unauthenticated

LOOK_SECONDS: Final = 1.0
"""Between two looks at streams and the deny list."""
_TOLD_SECONDS: Final = 60.0
_TOLD_MAX: Final = 1_024
"""Refusals that the log does not repeat within that time."""

RULE_CERTIFICATES_ARE_JUDGED_IN_EACH_CALL: bool = True
"""Broken by tests alone."""

_log = logging.getLogger(__name__)


def peer_of(context: Any) -> Peer | None:
    """None: the connection has no TLS. Raises UNAUTHENTICATED for a certificate that is no caller's."""
    found = context.auth_context().get("x509_pem_cert")
    if not found:
        return None
    peer = peer_with(bytes(found[0]))
    if isinstance(peer, str):
        raise unauthenticated(peer)
    return peer


def serial_of(context: Any) -> str:
    """Of the certificate that a call was made with, in hexadecimal digits; "": there is none. Raises as `peer_of`."""
    peer = peer_of(context) if context is not None else None
    return "" if peer is None else serial_text(peer.certificate.serial)


def token_id_of(context: Any) -> str:
    """Of the bearer token that this certificate was made with; "": there is none. Raises as `peer_of`."""
    peer = peer_of(context) if context is not None else None
    return "" if peer is None else peer.certificate.token_id


class CertificateJudge:
    """Which peers a replica serves."""

    def __init__(self, trust_domain: str, deny_list: DenyList, clock: Callable[[], float] = time.time) -> None:
        """`clock`: seconds since 1970, as certificates have them."""
        self.trust_domain: Final = trust_domain
        self._deny_list = deny_list
        self.clock: Final = clock
        self._held: dict[asyncio.Task[Any], Peer] = {}
        self._ended: dict[asyncio.Task[Any], ApiFailure] = {}
        self._told: dict[tuple[str, str], float] = {}

    def admit(self, context: Any) -> Peer | None:
        """At the begin of a call; None: the connection has no TLS. Raises UNAUTHENTICATED, with a line in the log."""
        try:
            peer = peer_of(context)
            if peer is not None:
                if peer.identity.trust_domain != self.trust_domain:
                    raise unauthenticated(f"{peer.identity} is of another trust domain than {self.trust_domain}")
                self.check(peer)
        except ApiFailure as failure:
            self._tell(context.peer(), failure.message)
            raise
        return peer

    def identify(self, context: Any) -> Identity:
        """That of the call's certificate, where it counts; for whom a replica asks is not looked at.

        Raises UNAUTHENTICATED, also where the connection has no TLS.
        """
        peer = self.admit(context)
        if peer is None:
            raise unauthenticated("the connection has no certificate")
        return peer.identity

    def check(self, peer: Peer) -> None:
        """At any later moment. Raises UNAUTHENTICATED."""
        if failure := self._fault(peer):
            raise failure

    def check_again(self, context: Any) -> None:
        """In the middle of a call that was admitted. Raises UNAUTHENTICATED."""
        peer = peer_of(context)
        if peer is not None:
            self.check(peer)

    @contextmanager
    def holding(self, context: Any) -> Iterator[None]:
        """As `held`, by gRPC's context; where the connection has no TLS, nothing is held."""
        peer = peer_of(context)
        if peer is None:
            yield
            return
        with self.held(peer):
            yield

    @contextmanager
    def held(self, peer: Peer) -> Iterator[None]:
        """Ends the present task's stream with UNAUTHENTICATED when its peer's certificate does not count any more."""
        task = asyncio.current_task()
        assert task is not None
        self._held[task] = peer
        try:
            yield
        except asyncio.CancelledError:
            failure = self._ended.get(task)
            if failure is None:
                raise
            task.uncancel()
            raise failure from None
        finally:
            self._held.pop(task, None)
            self._ended.pop(task, None)

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._deny_list.look()
            for task, peer in list(self._held.items()):
                if task not in self._ended and (failure := self._fault(peer)):
                    self._ended[task] = failure
                    task.cancel()

    def _fault(self, peer: Peer) -> ApiFailure | None:
        if not RULE_CERTIFICATES_ARE_JUDGED_IN_EACH_CALL:
            return None
        why = peer.fault(self.clock(), self._deny_list)
        return unauthenticated(why, serial_text(peer.certificate.serial)) if why else None

    def _tell(self, peer: str, why: str) -> None:
        """Once a minute for each host and reason."""
        key, now = (peer.rpartition(":")[0], why), self.clock()
        if now - self._told.get(key, -_TOLD_SECONDS) < _TOLD_SECONDS:
            return
        if len(self._told) >= _TOLD_MAX:
            self._told.clear()
        self._told[key] = now
        _log.warning("a caller at %s is refused: %s", peer, why)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """What a replica serves with, whom it serves, and what it shows to other replicas."""

    certificate: ServerCertificate
    judge: CertificateJudge
    forwards: ClientCertificate

    @classmethod
    def read(cls, files: TlsFiles, deny_list: Path | None, clock: Callable[[], float] = time.time) -> Self:
        """`deny_list`: its file; None: nothing is denied. Raises PkiError where a file is not what it has to be."""
        certificate = ServerCertificate(files)
        uris = certificate.facts.uris
        try:
            identity = Identity.parse(uris[0] if len(uris) == 1 else "")
        except IdentityError as error:
            raise PkiError(
                f"{files.certificate}: has {len(uris)} URIs among its names ({error}); want that of a replica"
            ) from None
        if identity.kind is not IdentityKind.REPLICA:
            raise PkiError(f"{files.certificate}: is that of {identity}, want one of `rayched pki issue replica`")
        judge = CertificateJudge(identity.trust_domain, DenyList(deny_list), clock)
        return cls(certificate, judge, ClientCertificate(files))

    def credentials(self) -> Any:
        """For `add_secure_port`."""
        return self.certificate.credentials()

    def token_credentials(self) -> Any:
        """The same for a port where callers are asked for no certificate."""
        return self.certificate.credentials(asks_callers=False)
