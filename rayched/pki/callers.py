"""Whose certificate a caller has, and whether it still counts.

A handshake proves that a certificate is signed by an authority that is trusted, and within its time. What it does not ask is
asked here: that the certificate is for callers and no authority's own, and that it has exactly one URI, which is an identity. A
connection outlives its certificate, so expiry and the deny list are looked at again for as long as somebody is served.

Cost: a look-up of the certificate's bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rayched.access.identity import Identity, IdentityError
from rayched.api.moments import moment_text
from rayched.pki.certificates import CertificateFacts, facts_of, read_certificates, serial_text
from rayched.pki.deny_list import DenyList
from rayched.pki.errors import PkiError

_KNOWN_MAX: Final = 4_096
"""Certificates that are kept read."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who made a connection."""

    identity: Identity
    certificate: CertificateFacts

    @property
    def shown(self) -> str:
        """What a gateway tells replicas of it: the serial number, and behind a blank the id of the token that is behind it."""
        return f"{serial_text(self.certificate.serial)} {self.certificate.token_id}".rstrip()

    def fault(self, now: float, deny_list: DenyList) -> str:
        """Why the certificate does not count any more; empty: it does. `now`: seconds since 1970."""
        serial = serial_text(self.certificate.serial)
        if now >= self.certificate.not_after:
            return f"certificate {serial} of {self.identity} has expired, at {moment_text(self.certificate.not_after)}"
        if self.certificate.serial in deny_list:
            return f"certificate {serial} of {self.identity} is revoked"
        return ""


@lru_cache(maxsize=_KNOWN_MAX)
def peer_with(pem: bytes) -> Peer | str:
    """Who shows this certificate, or why it is nobody."""
    try:
        facts = facts_of(read_certificates(pem, "the caller's certificate")[0])
    except PkiError as error:
        return str(error)
    what = f"certificate {serial_text(facts.serial)}"
    if facts.is_authority:
        return f"{what} is that of a certificate authority; a caller has one of its own"
    if not facts.calls:
        return f"{what} is not for callers: its extended key usage does not name clientAuth"
    if len(facts.uris) != 1:
        return f"{what} has {len(facts.uris)} URIs among its names, want exactly one, which is the identity"
    try:
        return Peer(Identity.parse(facts.uris[0]), facts)
    except IdentityError as error:
        return f"{what}: {error}"
