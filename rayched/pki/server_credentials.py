"""What a server shows at a handshake, and whom it lets in: three files that are looked at anew at each one.

A file that has changed is read again. What does not fit together, such as a certificate whose key is not there yet, changes
nothing: the pair that was in force stays, and the log says so once. No connection ends when files change.

Threads: gRPC asks in a thread of its own at each handshake, all else in any.
Cost: three looks at the file system a handshake.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

import grpc

from rayched.pki import private_files
from rayched.pki.certificates import CertificateFacts, check_pair, facts_of, read_bundle
from rayched.pki.errors import PkiError
from rayched.pki.tls_files import Stamp, TlsFiles

_log = logging.getLogger(__name__)


class ServerCertificate:
    """The pair in force and who is trusted."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises PkiError where the files are not what they have to be."""
        self.files: Final = files
        self._lock = threading.Lock()
        self._seen: Stamp = files.stamp()
        self._configuration, self._facts, self._trusted_until = _read(files)

    @property
    def facts(self) -> CertificateFacts:
        """Of the certificate in force."""
        return self._facts

    @property
    def trusted_until(self) -> float:
        """When the first of the authorities that are trusted expires; seconds since 1970."""
        return self._trusted_until

    def credentials(self, *, asks_callers: bool = True) -> Any:
        """For one `add_secure_port`. `asks_callers`: for certificates; else they prove who they are in other ways."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration, _Offer(self, self._configuration).fetch, require_client_authentication=asks_callers
        )

    def look(self) -> bool:
        """Reads the files again where they have changed; whether something new is in force."""
        with self._lock:
            stamp = self.files.stamp()
            if stamp == self._seen:
                return False
            self._seen = stamp
            try:
                self._configuration, self._facts, self._trusted_until = _read(self.files)
            except PkiError as error:
                _log.error("the certificate in force stays, as the files that replace it do not fit: %s", error)
                return False
            _log.info("the server's certificate was read anew: serial %x", self._facts.serial)
            return True

    def in_force(self) -> Any:
        """The configuration that a handshake which begins now is made with. Looks at the files."""
        self.look()
        return self._configuration


class _Offer:
    """What one port was given last.

    gRPC takes a configuration that it is given for a new one, and makes a new TLS context of it, while handshakes in its other
    threads may be using the one before, which ends then: given at each handshake it crashes the process after some hundred. So a
    port is given each configuration once.
    """

    def __init__(self, certificate: ServerCertificate, given: Any) -> None:
        """`given`: what the port begins with."""
        self._certificate = certificate
        self._given = given

    def fetch(self) -> Any:
        """None: nothing has changed. gRPC asks for one port at a time."""
        found = self._certificate.in_force()
        if found is self._given:
            return None
        self._given = found
        return found


def _read(files: TlsFiles) -> tuple[Any, CertificateFacts, float]:
    ca, chain, key = private_files.read(files.ca), private_files.read(files.certificate), private_files.read_private(files.key)
    bundle = read_bundle(ca, str(files.ca))
    facts = facts_of(check_pair(chain, key, str(files.certificate), str(files.key)))
    if not facts.serves:
        raise PkiError(f"{files.certificate}: is not for servers; `rayched pki issue replica` makes one that is")
    configuration = grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=ca)
    return configuration, facts, min(facts_of(one).not_after for one in bundle)
