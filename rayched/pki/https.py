"""The TLS of the HTTP endpoint: a replica's own pair, without a certificate of the caller; read again when its files change.

Threads: any. Cost: two looks at the file system a connection.
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

    def __init__(self, certificate: Path, key: Path) -> None:
        """Raises PkiError."""
        self._certificate, self._key = certificate, key
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

    def _stamp(self) -> Stamp:
        return stamp_of(self._certificate, self._key)

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._certificate, self._key, lambda: "")
        except (ssl.SSLError, OSError) as error:
            raise PkiError(f"{self._key}: is not the key of the certificate in {self._certificate} ({error})") from error
        return context
