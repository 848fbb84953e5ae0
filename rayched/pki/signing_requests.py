"""Certificates for keys that stay where they were made: who wants one shows that it has the key, and says no more.

What a request says of its subject means nothing: whoever signs knows whom it is from.
"""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from rayched.pki.certificates import UNREADABLE
from rayched.pki.errors import PkiError

_BYTES_MAX: Final = 8192
"""One of a P-256 key has 300."""
_SAID_CHARACTERS_MAX: Final = 200


def signing_request(key: ec.EllipticCurvePrivateKey) -> bytes:
    """PKCS 10, in PEM."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def requested_key(request: bytes, what: str) -> ec.EllipticCurvePublicKey:
    """The key of a request, whose sender has shown to have it. Raises PkiError."""
    if len(request) > _BYTES_MAX:
        raise PkiError(f"{what}: has {len(request)} bytes, and {_BYTES_MAX} is the most")
    try:
        found = x509.load_pem_x509_csr(request)
        key, is_signed = found.public_key(), found.is_signature_valid
    except (*UNREADABLE, TypeError) as error:
        # Some repeat the whole request, or a line of it.
        said = " ".join(str(error).split())[:_SAID_CHARACTERS_MAX]
        raise PkiError(f"{what}: is no request for a certificate in PEM ({said})") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp256r1":
        raise PkiError(f"{what}: want a key of the curve P-256")
    if not is_signed:
        raise PkiError(f"{what}: its signature is not that of its key")
    return key
