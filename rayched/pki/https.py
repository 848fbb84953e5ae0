"""The TLS of HTTP servers: a pair of one's own, which is read again when its files change.

The HTTP endpoint of a replica asks its callers for no certificate. Who names authorities takes the certificates that callers show
and that one of these has signed, refuses others at the handshake, and serves callers without one as far as it likes.

Threads: any. Cost: two or three looks at the file system a connection.
"""

from __future__ import annotations

import logging
import ssl
import threading
from pathlib import Path

from rayched.pki.errors import PkiError
from rayched.pki.tls_files import Stamp, stamp_of

_log = logging.getLogger(__name__)


class HttpsCertificate:
    """What an HTTP server shows."""

    def __init__(self, certificate: Path, key: Path, ca: Path | None = None) -> None:
        """`ca`: authorities of callers; None: none is asked for a certificate. Raises PkiError."""
        self._certificate, self._key, self._ca = certificate, key, ca
        self._lock = threading.Lock()
        self._seen: Stamp = self._stamp()
        self._context = self._read()

    def context(self) -> ssl.SSLContext:
        """For one connection. Files that do not fit leave the old ones in force, with a line in the log."""
        with self._lock:
            stamp = self._stamp()
            if stamp != self._seen:
                self._seen = stamp
                try:
                    self._context = self._read()
                except PkiError as error:
                    _log.error("the certificate in force stays, as the files that replace it do not fit: %s", error)
            return self._context

    def lasting_context(self) -> ssl.SSLContext:
        """For a server that takes one context for good: each handshake has what is in force then."""
        context = self._read()

        def renew(connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            connection.context = self.context()

        context.sni_callback = renew
        return context

    def _stamp(self) -> Stamp:
        return stamp_of(self._certificate, self._key, *([] if self._ca is None else [self._ca]))

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._certificate, self._key, lambda: "")
        except (ssl.SSLError, OSError) as error:
            raise PkiError(f"{self._key}: is not the key of the certificate in {self._certificate} ({error})") from error
        if self._ca is not None:
            _ask_callers(context, self._ca)
        return context


def _ask_callers(context: ssl.SSLContext, ca: Path) -> None:
    try:
        context.load_verify_locations(ca)
    except (ssl.SSLError, OSError) as error:
        raise PkiError(f"{ca}: holds no certificates of authorities ({error})") from error
    context.verify_mode = ssl.CERT_OPTIONAL
    # A resumed session would go on with a certificate that nobody has verified against the authorities of today.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
