"""Certificates as no `rayched pki issue` makes them, and clocks and randomness that a test sets."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rayched.pki import private_files
from rayched.pki.authority import Authority, KeyMaker
from rayched.pki.directory import PkiDirectory
from rayched.pki.tls_files import TlsFiles

CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
BOTH = (CLIENT, SERVER)
TRUST_DOMAIN = "rayched-0a1b2c3d"
HOUR = 3600.0


class SetClock:
    """Seconds since 1970, as a test sets them."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def numbered(seed: str = "") -> KeyMaker:
    """Tokens that are the same in each run; keys are never."""
    numbers = itertools.count()
    return KeyMaker(token=lambda size: hashlib.shake_256(f"{seed}{next(numbers)}".encode()).digest(size))


def an_authority(trust_domain: str = TRUST_DOMAIN, now: float | None = None) -> Authority:
    return Authority.create(trust_domain, time.time() if now is None else now, KeyMaker())


def directory_of(authority: Authority, path: Path, clock: Callable[[], float] = time.time) -> PkiDirectory:
    """What `rayched pki init` would have left of this authority."""
    private_files.make_directory(path)
    found = (
        ("trust-domain", f"{TRUST_DOMAIN}\n".encode()),
        ("issued", b""),
        ("revoked", b""),
        ("ca.crt", authority.certificate_pem),
    )
    for name, data in (*found, ("ca.key", authority.key_pem)):
        private_files.create(path / name, data)
    return PkiDirectory(path, clock)


@dataclass(frozen=True)
class Pair:
    certificate: bytes
    key: bytes
    ca: bytes
    serial: int

    def write(self, directory: Path) -> TlsFiles:
        """Three files, each for its owner alone."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = TlsFiles.within(directory)
        for path, data in ((files.ca, self.ca), (files.certificate, self.certificate), (files.key, self.key)):
            path.touch(0o600)
            path.write_bytes(data)
        return files


def a_pair(
    authority: Authority,
    uris: Sequence[str] = (),
    usages: Sequence[x509.ObjectIdentifier] = BOTH,
    *,
    begins: float = -HOUR,
    ends: float = HOUR,
    hosts: Sequence[str] = ("localhost", "127.0.0.1"),
    is_authority: bool = False,
    signed_by: ec.EllipticCurvePrivateKey | None = None,
    trusts: Authority | None = None,
) -> Pair:
    """`begins` and `ends`: seconds from now. `signed_by`: in place of the authority's key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), time.time()
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris]
    for host in hosts:
        names.append(x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host))
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody")]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_moment(now + begins))
        .not_valid_after(_moment(now + ends))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(list(usages)), critical=False)
    certificate = builder.sign(signed_by or authority.key, hashes.SHA256())
    return Pair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        (trusts or authority).certificate_pem,
        certificate.serial_number,
    )


def _moment(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
