"""The certificate authority of one cluster: a P-256 key, its certificate, and what it signs.

The authority's certificate lives ten years and signs no other authority. A certificate that it issues has exactly one URI among
its subject alternative names, which is the identity; names and addresses stand beside it in certificates that serve. Each is
valid from five minutes before, for clocks that are behind. Time and randomness are given.

Cost: 0.3 ms a certificate.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rayched.access.identity import Identity
from rayched.pki.certificates import MADE_WITH, key_id_of, pem_of, read_bundle, read_private_key
from rayched.pki.errors import PkiError

AUTHORITY_DAYS: Final = 3650
DAY_SECONDS: Final = 86_400
BACKDATED_SECONDS: Final = 300
SERIAL_BYTES: Final = 20
TRUST_DOMAIN_PREFIX: Final = "rayched-"
_TRUST_DOMAIN_BYTES: Final = 4
_COMMON_NAME_MAX: Final = 64
"""Characters that X.509 has room for."""
_HOST: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*")


def _p256() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@dataclass(frozen=True, slots=True)
class KeyMaker:
    """Where randomness comes from."""

    token: Callable[[int], bytes] = secrets.token_bytes
    key: Callable[[], ec.EllipticCurvePrivateKey] = _p256

    def serial(self) -> int:
        """Positive, of at most 159 bits, as RFC 5280 wants it."""
        return int.from_bytes(self.token(SERIAL_BYTES)) >> 1 or 1

    def trust_domain(self) -> str:
        return TRUST_DOMAIN_PREFIX + self.token(_TRUST_DOMAIN_BYTES).hex()


@dataclass(frozen=True, slots=True)
class LeafRequest:
    """A certificate that is wanted."""

    identity: Identity
    seconds: int
    """How long it is valid."""
    serves: bool = False
    """Its holder is dialled, at `hosts`, beside calling others."""
    hosts: tuple[str, ...] = ()
    """DNS names and IP addresses."""
    token_id: str = ""
    """Of the bearer token that it is made with; empty: there is none."""


@dataclass(frozen=True, slots=True)
class IssuedPair:
    """A new key and its certificate, in PEM."""

    certificate: bytes
    key: bytes
    serial: int
    not_after: int
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """For a key that whoever asked for it keeps; in PEM."""

    certificate: bytes
    serial: int
    not_after: int
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Authority:
    """Who signs. `create` and `read` make one."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    maker: KeyMaker = field(default_factory=KeyMaker)

    @classmethod
    def create(cls, trust_domain: str, now: float, maker: KeyMaker) -> Self:
        """A new key and a certificate that it signs itself."""
        key = maker.key()
        # The key's id tells an authority from its successor of the same cluster.
        name = _name(f"{trust_domain} {key_id_of(key.public_key())}")
        certificate = (
            _builder(name, name, key.public_key(), maker.serial(), now, now + AUTHORITY_DAYS * DAY_SECONDS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.SubjectAlternativeName([_uri(f"spiffe://{trust_domain}")]), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key, maker)

    @classmethod
    def read(cls, bundle: bytes, key: bytes, what: str, maker: KeyMaker) -> Self:
        """`bundle`: the certificates that are trusted; that of the key is among them. Raises PkiError."""
        private = read_private_key(key, what)
        for certificate in read_bundle(bundle, what):
            if key_id_of(certificate.public_key()) == key_id_of(private.public_key()):
                return cls(certificate, private, maker)
        raise PkiError(f"{what}: is the key of none of the authorities that are trusted; put back the ca.key of `pki init`")

    @property
    def key_id(self) -> str:
        return key_id_of(self.key.public_key())

    @property
    def certificate_pem(self) -> bytes:
        return pem_of(self.certificate)

    @property
    def key_pem(self) -> bytes:
        return key_pem_of(self.key)

    def issue(self, request: LeafRequest, now: float) -> IssuedPair:
        """A new key and its certificate. Raises PkiError."""
        key = self.maker.key()
        made = self.certify(request, key.public_key(), now)
        return IssuedPair(made.certificate, key_pem_of(key), made.serial, made.not_after)

    def certify(self, request: LeafRequest, key: ec.EllipticCurvePublicKey, now: float) -> IssuedCertificate:
        """A certificate of somebody's key, which never outlives the authority's. Raises PkiError."""
        ends = min(now + request.seconds, self.certificate.not_valid_after_utc.timestamp())
        if ends <= now:
            raise PkiError("the certificate authority has expired; begin a new one with `rayched pki rotate-ca`")
        serial = self.maker.serial()
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if request.serves else [])]
        certificate = (
            _builder(_name(request.identity.name, request.token_id), self.certificate.subject, key, serial, now, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName([_uri(str(request.identity)), *host_names(request.hosts)]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return IssuedCertificate(pem_of(certificate), serial, int(ends))


def host_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    """DNS names and IP addresses as certificates have them. Raises PkiError."""
    found: list[x509.GeneralName] = []
    for host in hosts:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(host.strip("[]"))))
        except ValueError:
            # A name whose last part is a number is an address that was mistyped.
            if not _HOST.fullmatch(host) or host.rpartition(".")[2].isdecimal():
                raise PkiError(f"{host!r}: is neither a DNS name in lower case nor an IP address") from None
            found.append(x509.DNSName(host))
    return found


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, serial: int, now: float, ends: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(_moment(now - BACKDATED_SECONDS))
        .not_valid_after(_moment(ends))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str, token_id: str = "") -> x509.Name:
    made_with = [x509.NameAttribute(NameOID.SERIAL_NUMBER, MADE_WITH + token_id)] if token_id else []
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_COMMON_NAME_MAX]), *made_with])


def _uri(text: str) -> x509.UniformResourceIdentifier:
    return x509.UniformResourceIdentifier(text)


def _moment(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC)


def key_pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """PKCS 8, without a passphrase."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
