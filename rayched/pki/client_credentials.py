"""What a caller shows: a certificate and its key from files, and whom it trusts; read again when the files change.

Whoever keeps channels asks `version` before a call and opens a new channel when it has moved. Files that do not fit together
leave the old ones in force, with a line in the log. Nothing here is imported that costs a command its start: what a certificate
says is only asked when files have changed.

Threads: any. Cost: three looks at the file system a second at most.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import grpc

from rayched.pki import private_files
from rayched.pki.errors import PkiError
from rayched.pki.tls_files import Stamp, TlsFiles

CERTIFICATE_KEY: Final = "rayched-certificate"
"""In the trailers of a refusal: the serial number, in hexadecimal digits, of the certificate that does not count any more."""
LOOK_SECONDS: Final = 1.0
"""Between two looks at the files."""

_log = logging.getLogger(__name__)


class ClientCertificate:
    """Read when it is first needed. Shared by all channels of one caller."""

    def __init__(self, files: TlsFiles, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises PkiError where a file cannot be read, or others can read the key."""
        self.files: Final = files
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: Stamp = files.stamp()
        self._looked_at = clock()
        self._version = 0
        read = _read(files)
        self._certificate_pem, self._credentials = read[1], _credentials(read)

    def version(self) -> int:
        """Moves when other files are in force."""
        with self._lock:
            now = self._clock()
            if now - self._looked_at >= LOOK_SECONDS:
                self._looked_at = now
                self._look()
            return self._version

    def credentials(self) -> Any:
        """For `secure_channel`."""
        return self._credentials

    def fault(self) -> str:
        """What is wrong with the certificate in the files, as far as it says so itself; empty: nothing is."""
        from rayched.pki.diagnosis import own_fault

        return own_fault(self.files, time.time())

    def is_newer_than(self, serial: str) -> bool:
        """Whether another certificate than that of this serial number, in hexadecimal digits, is in force now."""
        from rayched.pki.certificates import read_certificates, serial_text

        with self._lock:
            self._look()
            found = read_certificates(self._certificate_pem, str(self.files.certificate))[0]
        return serial_text(found.serial_number) != serial

    def _look(self) -> None:
        stamp = self.files.stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        # Costs more than all else here, and only whoever stays long enough to see files change needs it.
        from rayched.pki.certificates import check_pair, read_bundle

        try:
            ca, certificate, key = _read(self.files)
            read_bundle(ca, str(self.files.ca))
            check_pair(certificate, key, str(self.files.certificate), str(self.files.key))
        except PkiError as error:
            _log.error("the certificate in force stays, as the files that replace it do not fit: %s", error)
            return
        self._certificate_pem, self._credentials = certificate, _credentials((ca, certificate, key))
        self._version += 1


def _read(files: TlsFiles) -> tuple[bytes, bytes, bytes]:
    """Authorities, certificate, key."""
    return private_files.read(files.ca), private_files.read(files.certificate), private_files.read_private(files.key)


def _credentials(read: tuple[bytes, bytes, bytes]) -> Any:
    ca, certificate, key = read
    return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=certificate)
