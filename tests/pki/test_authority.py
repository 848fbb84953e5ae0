"""What is signed, and what is not."""

from __future__ import annotations

import base64
import time

import pytest
from cryptography import x509

from rayched.access.identity import Identity, IdentityKind
from rayched.pki.authority import Authority, KeyMaker, LeafRequest
from rayched.pki.certificates import check_pair, facts_of, read_bundle, read_certificates, signer_of
from rayched.pki.errors import PkiError
from rayched.pki.issuing import leaf_request
from tests.pki.made import TRUST_DOMAIN, a_pair, an_authority, numbered

NOW = 1_800_000_000
DAY = 86_400
YEARS = 3650 * DAY
V3 = b"\xa0\x03\x02\x01\x02"


def a_request(kind: str = "user", days: int = 90) -> LeafRequest:
    return leaf_request(TRUST_DOMAIN, IdentityKind(kind), "alice", days=days)


def test_an_authority_lives_ten_years_and_signs_no_other_authority() -> None:
    made = an_authority(now=NOW).certificate
    constraints = made.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical and constraints.value.ca and constraints.value.path_length == 0
    assert made.not_valid_after_utc.timestamp() == NOW + YEARS
    assert facts_of(made).uris == (f"spiffe://{TRUST_DOMAIN}",)
    usage = made.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign and not usage.digital_signature
    assert made.public_key().curve.name == "secp256r1"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "days", "serves"),
    [
        ("replica", 90, True),
        ("node", 30, False),
        ("nodes", 30, False),
        ("user", 90, False),
        ("web", 90, True),
        ("etcd", 90, False),
    ],
)
def test_each_kind_has_its_time_its_use_and_one_uri(kind: str, days: int, serves: bool) -> None:
    authority = an_authority(now=NOW)
    pair = authority.issue(leaf_request(TRUST_DOMAIN, IdentityKind(kind), "a-1.b"), NOW)
    found = facts_of(check_pair(pair.certificate, pair.key, "tls.crt", "tls.key"))
    assert found.uris == (f"spiffe://{TRUST_DOMAIN}/{kind}/a-1.b",)
    assert (found.calls, found.serves, found.is_authority) == (True, serves, False)
    assert found.not_after == pair.not_after == NOW + days * DAY
    certificate = read_certificates(pair.certificate, "tls.crt")[0]
    assert signer_of(certificate, [authority.certificate]) is authority.certificate


def test_a_member_of_etcd_serves_at_its_hosts_and_a_client_of_it_does_not() -> None:
    authority = an_authority()
    for hosts, places in (([], ()), (["etcd-1", "etcd"], ("localhost", "etcd-1", "etcd"))):
        pair = authority.issue(leaf_request(TRUST_DOMAIN, IdentityKind.ETCD, "etcd-1", hosts), time.time())
        certificate = read_certificates(pair.certificate, "")[0]
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert tuple(names.get_values_for_type(x509.DNSName)) == places
        assert facts_of(certificate).calls and facts_of(certificate).serves is bool(hosts)


@pytest.mark.row("B32")
def test_certificates_are_valid_for_clocks_that_are_five_minutes_behind() -> None:
    pair = an_authority(now=NOW).issue(a_request(), NOW)
    assert facts_of(read_certificates(pair.certificate, "tls.crt")[0]).not_before == NOW - 300


def test_replicas_are_reached_at_their_hosts_and_at_this_one() -> None:
    pair = an_authority().issue(
        leaf_request(TRUST_DOMAIN, IdentityKind.REPLICA, "r-0", ["r-0.example", "10.0.0.11", "localhost"]), time.time()
    )
    names = read_certificates(pair.certificate, "")[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "r-0.example"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1", "10.0.0.11"]


def test_no_certificate_outlives_its_authority() -> None:
    authority = an_authority(now=NOW)
    assert authority.issue(a_request(days=400), NOW + YEARS - 10).not_after == NOW + YEARS
    with pytest.raises(PkiError, match="authority has expired"):
        authority.issue(a_request(), NOW + YEARS)


def test_serial_numbers_and_trust_domains_come_from_the_randomness_given() -> None:
    made = [Authority.create("rayched-00000000", NOW, numbered("a")).certificate.serial_number for _ in range(2)]
    assert made[0] == made[1]
    assert made[0] != Authority.create("rayched-00000000", NOW, numbered("b")).certificate.serial_number
    assert numbered("a").trust_domain() == numbered("a").trust_domain() != numbered("b").trust_domain()
    assert KeyMaker(token=lambda size: b"\xff" * size).serial().bit_length() == 159
    assert KeyMaker(token=bytes).serial() == 1


@pytest.mark.parametrize(
    "host", ["Upper.example", "under_score", "-a", "a..b", "", "a" * 64, "*.example", "10.0.0.300", "http://a"]
)
def test_a_host_that_is_neither_name_nor_address_is_refused(host: str) -> None:
    with pytest.raises(PkiError, match="is neither a DNS name in lower case nor an IP address"):
        leaf_request(TRUST_DOMAIN, IdentityKind.REPLICA, "r-0", [host])


@pytest.mark.parametrize("name", ["", "Alice", "a_b", "a/b", "a" * 254, "ä", "a b", "a%2fb", ".", "a."])
def test_a_name_that_is_no_dns_subdomain_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        leaf_request(TRUST_DOMAIN, IdentityKind.USER, name)


@pytest.mark.row("B8")
def test_a_key_that_is_not_that_of_its_certificate_is_told_with_both_files() -> None:
    authority = an_authority()
    one, another = authority.issue(a_request(), time.time()), authority.issue(a_request(), time.time())
    with pytest.raises(PkiError, match=r"new/tls\.key: is not the key of the certificate in old/tls\.crt"):
        check_pair(one.certificate, another.key, "old/tls.crt", "new/tls.key")


def test_an_authority_is_read_with_its_own_key_alone() -> None:
    mine, other = an_authority(), an_authority()
    both = other.certificate_pem + mine.certificate_pem
    assert Authority.read(both, mine.key_pem, "ca.key", KeyMaker()).certificate == mine.certificate
    with pytest.raises(PkiError, match=r"ca\.key: is the key of none of the authorities"):
        Authority.read(other.certificate_pem, mine.key_pem, "ca.key", KeyMaker())


@pytest.mark.parametrize("text", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_or_key_is_told_by_its_file(text: bytes) -> None:
    authority = an_authority()
    with pytest.raises(PkiError, match=r"ca\.crt: holds no certificates in PEM"):
        read_bundle(text, "ca.crt")
    with pytest.raises(PkiError, match=r"tls\.key: holds no private key in PEM"):
        check_pair(a_pair(authority).certificate, text, "tls.crt", "tls.key")


def test_a_certificate_of_a_version_that_there_is_not_is_told_by_its_file() -> None:
    """cryptography has an error of its own for these, which is no ValueError."""
    whole = base64.b64decode(b"".join(an_authority().certificate_pem.strip().split(b"\n")[1:-1]))
    assert whole.count(V3) == 1
    body = base64.encodebytes(whole.replace(V3, V3[:-1] + b"\x07"))
    with pytest.raises(PkiError, match=r"ca\.crt: holds no certificates in PEM \(7 is not a valid X509 version\)"):
        read_bundle(b"-----BEGIN CERTIFICATE-----\n" + body + b"-----END CERTIFICATE-----\n", "ca.crt")


def test_a_bundle_has_authorities_alone() -> None:
    pair = a_pair(an_authority(), [f"spiffe://{TRUST_DOMAIN}/user/a"])
    with pytest.raises(PkiError, match=r"ca\.crt: CN=somebody is no certificate authority"):
        read_bundle(pair.ca + pair.certificate, "ca.crt")


def test_a_forged_signature_is_nobodys() -> None:
    authority, forger = an_authority(), an_authority()
    pair = a_pair(authority, signed_by=forger.key)
    assert signer_of(read_certificates(pair.certificate, "")[0], [authority.certificate, forger.certificate]) is None


def test_identities_are_the_uri() -> None:
    assert str(Identity(TRUST_DOMAIN, IdentityKind.USER, "alice")) == f"spiffe://{TRUST_DOMAIN}/user/alice"
