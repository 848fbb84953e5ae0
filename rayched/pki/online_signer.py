"""A replica's hold on the authority's key: who asks for a certificate of an identity, and may, gets it signed.

It is a directory of `rayched pki init` with its ca.key, read again for each signing: so the key can be taken away from a replica
that runs, and its exchange needs no restart. Whose certificate is signed is settled before: what a request says of itself is not
read. Serial numbers are in the directory's list, as of those that `rayched pki issue` made.

Blocks: a lock, and a line that is brought to disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from rayched.access.identity import Identity
from rayched.pki.certificates import facts_of, read_certificates, serial_text
from rayched.pki.directory import PkiDirectory
from rayched.pki.errors import PkiError
from rayched.pki.issuing import leaf_request
from rayched.pki.kinds import CERTIFICATE_KINDS


@dataclass(frozen=True, slots=True)
class SignedOnline:
    """A certificate and what is to be trusted with it, in PEM."""

    certificate: bytes
    authorities: bytes
    serial: str
    """Hexadecimal."""
    not_after: float
    """Seconds since 1970."""


class OnlineSigner:
    """Signs in one trust domain. Hosts are those that the authority has put into a certificate before."""

    def __init__(self, directory: PkiDirectory) -> None:
        self._directory = directory

    @classmethod
    def read(cls, path: Path, trust_domain: str) -> Self:
        """`trust_domain`: of the replica's own certificate. Raises PkiError where the directory cannot sign for it."""
        found = PkiDirectory(path)
        if found.trust_domain != trust_domain:
            raise PkiError(f"{path}: is of the trust domain {found.trust_domain}, and the replica is of {trust_domain}")
        if found.is_external:
            raise PkiError(f"{path}: another authority signs, so there is no key to sign with")
        if found.signer() is None:
            raise PkiError(f"{path}: its ca.key is not there; put it back for the replica that is to sign")
        return cls(found)

    @staticmethod
    def refusal(identity: Identity, hosts: Sequence[str] = ()) -> str:
        """Why no certificate of this identity is signed here; empty: it is. `hosts`: that its present certificate names."""
        rule = CERTIFICATE_KINDS[identity.kind]
        if (rule.serves and not hosts) or rule.may_serve:
            # Hosts that no certificate has shown would be the word of whoever asks.
            return f"a certificate of the kind {identity.kind.value} names hosts; `rayched pki issue` makes it"
        return ""

    def sign(
        self,
        identity: Identity,
        signing_request: bytes,
        seconds: float | None = None,
        token_id: str = "",
        hosts: Sequence[str] = (),
    ) -> SignedOnline:
        """`seconds`: how long it is valid at most; `token_id`: of the bearer token that it is made with; `hosts`: of who is
        dialled, as a certificate has them that this authority has signed. Raises PkiError."""
        wanted = leaf_request(identity.trust_domain, identity.kind, identity.name, hosts)
        if seconds is not None:
            wanted = replace(wanted, seconds=min(wanted.seconds, int(seconds)), token_id=token_id)
        made = self._directory.certify(wanted, signing_request)
        facts = facts_of(read_certificates(made, "the certificate that was signed")[0])
        return SignedOnline(made, self._directory.bundle, serial_text(facts.serial), facts.not_after)
