"""Certificates for keys that stay with their holder: a request shows the key alone, and what was asked for alone is taken."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from rayched.access.identity import Identity, IdentityKind
from rayched.pki.certificates import facts_of, read_certificates
from rayched.pki.directory import PkiDirectory, read_certificate
from rayched.pki.errors import PkiError
from rayched.pki.held_certificate import HeldCertificate
from rayched.pki.issuing import leaf_request
from rayched.pki.signing_requests import requested_key, signing_request
from tests.pki.made import SetClock

NOW, DAY = 1_800_000_000.0, 86_400


@pytest.fixture
def clock() -> SetClock:
    return SetClock(NOW)


@pytest.fixture
def made(tmp_path: Path, clock: SetClock) -> PkiDirectory:
    return PkiDirectory.create(tmp_path / "pki", clock)


@pytest.fixture
def held(tmp_path: Path, clock: SetClock) -> HeldCertificate:
    return HeldCertificate(tmp_path / "far" / "node-1.tls", clock)


def identity(made: PkiDirectory, name: str = "node-1") -> Identity:
    return Identity(made.trust_domain, IdentityKind.NODE, name)


def certified(made: PkiDirectory, request: bytes, name: str = "node-1") -> bytes:
    return made.certify(leaf_request(made.trust_domain, IdentityKind.NODE, name), request)


def test_a_key_stays_where_it_was_made_and_its_certificate_is_that_of_the_node(
    made: PkiDirectory, held: HeldCertificate, tmp_path: Path
) -> None:
    assert held.is_due()
    certificate = certified(made, held.request())
    held.take(certificate, made.bundle, identity(made))
    assert not held.is_due()
    facts = facts_of(read_certificate(held.files.key.parent))
    assert facts.uris == (str(identity(made)),) and facts.calls and not facts.serves
    assert {stat.S_IMODE(path.stat().st_mode) for path in held.files.key.parent.iterdir()} == {0o600}
    key = held.files.key.read_bytes()
    assert not [path for path in (tmp_path / "pki").rglob("*") if path.is_file() and key in path.read_bytes()]
    [record] = made.in_use()
    assert (record.uri, int(record.serial, 16)) == (str(identity(made)), facts.serial)
    assert made.revoke(record.uri) == [record]


def test_a_new_one_is_due_when_a_third_of_the_time_is_left_or_the_files_are_lost(
    made: PkiDirectory, held: HeldCertificate, clock: SetClock
) -> None:
    held.take(certified(made, held.request()), made.bundle, identity(made))
    first = held.files.key.read_bytes()
    clock.now = NOW + 20 * DAY - 600
    assert not held.is_due()
    clock.now = NOW + 20 * DAY + 600
    assert held.is_due()
    held.take(certified(made, held.request()), made.bundle, identity(made))
    assert not held.is_due() and held.files.key.read_bytes() != first
    assert len(made.in_use()) == 1, "the new one replaces the old"
    held.files.key.unlink()
    assert held.is_due()


def test_what_was_not_asked_for_is_not_taken(made: PkiDirectory, held: HeldCertificate) -> None:
    wanted = identity(made)
    with pytest.raises(PkiError, match="nothing was asked for"):
        held.take(b"", made.bundle, wanted)
    other = certified(made, signing_request(ec.generate_private_key(ec.SECP256R1())))
    request = held.request()
    with pytest.raises(PkiError, match="the certificate that came"):
        held.take(other, made.bundle, wanted)
    with pytest.raises(PkiError, match=f"is of {identity(made, 'node-2')}, want {wanted}"):
        held.take(certified(made, request, "node-2"), made.bundle, wanted)
    with pytest.raises(PkiError, match="the authorities that came"):
        held.take(certified(made, request), b"", wanted)
    assert not held.files.key.parent.exists()
    held.take(certified(made, request), made.bundle, wanted)


def test_what_a_request_says_of_itself_means_nothing(made: PkiDirectory) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    admin = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"spiffe://{made.trust_domain}/user/admin")])
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "admin")]))
        .add_extension(admin, critical=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    [certificate] = read_certificates(certified(made, request.public_bytes(Encoding.PEM)), "")
    facts = facts_of(certificate)
    assert facts.uris == (str(identity(made)),) and not facts.is_authority
    assert certificate.subject.rfc4514_string() == "CN=node-1"


def test_a_request_without_the_proof_of_its_key_or_with_another_kind_of_key_is_refused(made: PkiDirectory) -> None:
    good = signing_request(ec.generate_private_key(ec.SECP256R1()))
    der = x509.load_pem_x509_csr(good).public_bytes(Encoding.DER)
    forged = x509.load_der_x509_csr(der[:-3] + bytes([der[-3] ^ 1]) + der[-2:]).public_bytes(Encoding.PEM)
    weak = rsa.generate_private_key(65537, 2048)
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    for request, fault in (
        (forged, "its signature is not that of its key"),
        (builder.sign(weak, hashes.SHA256()).public_bytes(Encoding.PEM), "want a key of the curve P-256"),
        (signing_request(ec.generate_private_key(ec.SECP384R1())), "want a key of the curve P-256"),
        (b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", "is no request for a certificate"),
        (bytes(10_000), "has 10000 bytes, and 8192 is the most"),
    ):
        with pytest.raises(PkiError, match=fault):
            requested_key(request, "the request")
        with pytest.raises(PkiError, match=fault):
            certified(made, request)
    assert made.issued() == [], "a serial number is used for what is signed alone"


def test_an_authority_signs_within_its_own_trust_domain_alone(made: PkiDirectory) -> None:
    request = signing_request(ec.generate_private_key(ec.SECP256R1()))
    with pytest.raises(PkiError, match="is of another trust domain"):
        made.certify(leaf_request("rayched-0a1b2c3d", IdentityKind.NODE, "node-1"), request)
