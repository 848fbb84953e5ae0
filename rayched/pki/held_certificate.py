"""A certificate at who holds it, far from the authority: its key is made there and never leaves.

`request` says what to bring to the authority, `take` what came from there. All of it is in one directory, as `rayched pki issue`
would have written it. Time and randomness are given.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec

from rayched.access.identity import Identity, IdentityError
from rayched.pki import private_files
from rayched.pki.authority import KeyMaker, key_pem_of
from rayched.pki.certificates import CertificateFacts, check_pair, facts_of, read_bundle, read_certificates
from rayched.pki.errors import PkiError
from rayched.pki.signing_requests import signing_request
from rayched.pki.tls_files import TlsFiles

RENEWED_SHARE: Final = 1 / 3
"""Of its time that a certificate has left when it is issued anew."""


class HeldCertificate:
    """Of one program. `take` answers the last `request`."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time, maker: KeyMaker | None = None) -> None:
        """The directory is made when there is something to write."""
        self.files = TlsFiles.within(directory)
        self._directory = directory
        self._clock = clock
        self._maker = maker or KeyMaker()
        self._key: ec.EllipticCurvePrivateKey | None = None

    def is_due(self) -> bool:
        """Whether there is none, or it has too little time left."""
        facts = self._facts()
        if facts is None:
            return True
        return facts.not_after - self._clock() <= RENEWED_SHARE * (facts.not_after - facts.not_before)

    def counts_for(self, identity: Identity) -> bool:
        """Whether there is one of this identity that has not expired."""
        facts = self._facts()
        return facts is not None and facts.uris == (str(identity),) and facts.not_after > self._clock()

    def identity(self) -> Identity:
        """Whose it is. Raises PkiError where there is none."""
        facts = facts_of(read_certificates(private_files.read(self.files.certificate), str(self.files.certificate))[0])
        try:
            return Identity.parse(facts.uris[0] if len(facts.uris) == 1 else "")
        except IdentityError as error:
            raise PkiError(f"{self.files.certificate}: has {len(facts.uris)} URIs among its names ({error})") from None

    def _facts(self) -> CertificateFacts | None:
        """None: there are no files that fit together."""
        files = self.files
        try:
            certificate, key = private_files.read(files.certificate), private_files.read_private(files.key)
            return facts_of(check_pair(certificate, key, str(files.certificate), str(files.key)))
        except PkiError:
            return None

    def request(self) -> bytes:
        """With a new key, which is kept in memory until its certificate is there."""
        self._key = self._maker.key()
        return signing_request(self._key)

    def take(self, certificate: bytes, bundle: bytes, identity: Identity) -> None:
        """Writes them in place of the old ones. Raises PkiError where they are not what was asked for."""
        if self._key is None:
            raise PkiError(f"{self._directory}: nothing was asked for")
        key, what = key_pem_of(self._key), "the certificate that came"
        facts = facts_of(check_pair(certificate, key, what, "the key that was made here"))
        if facts.uris != (str(identity),):
            raise PkiError(f"{what}: is of {', '.join(facts.uris) or 'nobody'}, want {identity}")
        read_bundle(bundle, "the authorities that came")
        private_files.make_directory(self._directory)
        private_files.replace(self.files.ca, bundle)
        private_files.replace(self.files.key, key)
        # Last: until it is there, the old pair stays in use.
        private_files.replace(self.files.certificate, certificate)
        self._key = None
