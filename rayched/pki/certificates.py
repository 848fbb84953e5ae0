"""What certificates say, as far as rayched asks: who it is, from when until when, for what, and signed by whom.

An identity is the one URI among a certificate's subject alternative names. Its common name and organisation mean nothing here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rayched.pki.errors import PkiError

UNREADABLE: Final = (
    *(ValueError, UnsupportedAlgorithm),
    *(x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType),
)
"""What cryptography raises for bytes that are no certificate, nor a request for one, and for extensions that are none."""
_KEY_ID_BYTES: Final = 8
MADE_WITH: Final = "rayched-token:"
"""Before the id of a token, in the serial number of a certificate's subject; what others write there means nothing."""


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """Of one certificate. Times are seconds since 1970."""

    serial: int
    uris: tuple[str, ...]
    """Of the subject alternative names."""
    not_before: float
    not_after: float
    """From this moment on it is no longer valid."""
    is_authority: bool
    """It may sign others."""
    serves: bool
    """Its extended key usage names serverAuth."""
    calls: bool
    """The same of clientAuth. One without any extended key usage is for neither."""
    key_id: str
    """Of its public key."""
    token_id: str = ""
    """Of the bearer token that it was made with, while which it counts; empty: there was none."""
    hosts: tuple[str, ...] = ()
    """Names, in lower case, and addresses where its holder may be dialled."""


def serial_text(serial: int) -> str:
    """As lists show a serial number: hexadecimal, an even number of digits."""
    text = f"{serial:x}"
    return text.zfill(len(text) + len(text) % 2)


def facts_of(certificate: x509.Certificate) -> CertificateFacts:
    """Raises PkiError where an extension cannot be read."""
    try:
        extensions = certificate.extensions
        names = _extension(extensions, x509.SubjectAlternativeName)
        usage = _extension(extensions, x509.ExtendedKeyUsage)
        constraints = _extension(extensions, x509.BasicConstraints)
        key_id = key_id_of(certificate.public_key())
        token_id = _token_id(certificate.subject)
    except UNREADABLE as error:
        raise PkiError(f"a certificate whose extensions cannot be read ({error})") from error
    return CertificateFacts(
        serial=certificate.serial_number,
        uris=() if names is None else tuple(names.get_values_for_type(x509.UniformResourceIdentifier)),
        not_before=certificate.not_valid_before_utc.timestamp(),
        not_after=certificate.not_valid_after_utc.timestamp(),
        is_authority=constraints is not None and constraints.ca,
        serves=usage is not None and ExtendedKeyUsageOID.SERVER_AUTH in usage,
        calls=usage is not None and ExtendedKeyUsageOID.CLIENT_AUTH in usage,
        key_id=key_id,
        token_id=token_id,
        hosts=_hosts_in(names),
    )


def _token_id(subject: x509.Name) -> str:
    texts = [str(one.value) for one in subject.get_attributes_for_oid(NameOID.SERIAL_NUMBER)]
    return next((text.removeprefix(MADE_WITH) for text in texts if text.startswith(MADE_WITH)), "")


def hosts_of(certificate: x509.Certificate) -> frozenset[str]:
    """Names, in lower case, and addresses where its holder may be dialled. Raises PkiError where an extension cannot be read."""
    try:
        names = _extension(certificate.extensions, x509.SubjectAlternativeName)
    except UNREADABLE as error:
        raise PkiError(f"a certificate whose extensions cannot be read ({error})") from error
    return frozenset(_hosts_in(names))


def _hosts_in(names: x509.SubjectAlternativeName | None) -> tuple[str, ...]:
    if names is None:
        return ()
    dns, places = names.get_values_for_type(x509.DNSName), names.get_values_for_type(x509.IPAddress)
    return (*(one.lower() for one in dns), *map(str, places))


def read_certificates(pem: bytes, what: str) -> list[x509.Certificate]:
    """All certificates of a text in PEM, at least one. `what` names it in the error. Raises PkiError."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except UNREADABLE as error:
        raise PkiError(f"{what}: holds no certificates in PEM ({_short(error)})") from error


def read_bundle(pem: bytes, what: str) -> list[x509.Certificate]:
    """The same of certificates that others are trusted by. Raises PkiError where one may not sign."""
    found = read_certificates(pem, what)
    for one in found:
        if not facts_of(one).is_authority:
            raise PkiError(f"{what}: {one.subject.rfc4514_string()} is no certificate authority; want the CA's own certificates")
    return found


def read_private_key(pem: bytes, what: str) -> ec.EllipticCurvePrivateKey:
    """Raises PkiError."""
    try:
        found = load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise PkiError(f"{what}: holds no private key in PEM without a password ({_short(error)})") from error
    if not isinstance(found, ec.EllipticCurvePrivateKey) or not isinstance(found.curve, ec.SECP256R1):
        raise PkiError(f"{what}: is no key of the curve P-256, which rayched's certificates have")
    return found


def check_pair(certificate_pem: bytes, key_pem: bytes, certificate_name: str, key_name: str) -> x509.Certificate:
    """The first certificate, once it is sure that this is its key. Raises PkiError."""
    certificate = read_certificates(certificate_pem, certificate_name)[0]
    try:
        key = load_pem_private_key(key_pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise PkiError(f"{key_name}: holds no private key in PEM without a password ({_short(error)})") from error
    if key_id_of(key.public_key()) != key_id_of(certificate.public_key()):
        raise PkiError(f"{key_name}: is not the key of the certificate in {certificate_name}; both come from one issuing")
    return certificate


def signer_of(certificate: x509.Certificate, bundle: Sequence[x509.Certificate]) -> x509.Certificate | None:
    """Which of these has signed it; None: none of them."""
    for authority in bundle:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return authority
    return None


def key_id_of(key: object) -> str:
    """Hexadecimal digits that tell public keys apart."""
    encoded: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined]
    return hashlib.sha256(encoded).hexdigest()[: 2 * _KEY_ID_BYTES]


def pem_of(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _extension(extensions: x509.Extensions, kind: type[x509.ExtensionType]) -> Any:
    try:
        return extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:100] or type(error).__name__
