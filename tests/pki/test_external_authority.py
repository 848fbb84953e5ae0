"""A cluster whose certificates another authority signs: its trust domain and its deny list, and nothing that is issued here."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from rayched.access.identity import IdentityKind
from rayched.pki.directory import PkiDirectory
from rayched.pki.errors import PkiError
from rayched.pki.issuing import leaf_request
from rayched.server.peers import ServerTls
from tests.cli.cluster import run_here
from tests.pki.made import BOTH, SetClock, a_pair, an_authority


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "pki"


def test_it_has_a_trust_domain_and_a_deny_list_and_signs_nothing(directory: Path, tmp_path: Path) -> None:
    theirs = an_authority("rayched-theirs")
    (tmp_path / "theirs.crt").write_bytes(theirs.certificate_pem)
    done = run_here(["pki", "init", "--dir", str(directory), "--external-ca", str(tmp_path / "theirs.crt")])
    made = PkiDirectory(directory)
    assert done.out == f"trust domain {made.trust_domain} in {directory}; {tmp_path / 'theirs.crt'} issues its certificates\n"
    assert made.is_external and made.bundle == theirs.certificate_pem and made.signer() is None
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    with pytest.raises(PkiError, match=f"another authority signs; .*spiffe://{made.trust_domain}/KIND/NAME"):
        made.issue(leaf_request(made.trust_domain, IdentityKind.USER, "alice"))
    with pytest.raises(PkiError, match="another authority signs; exchange it there"):
        made.trust_next()


def test_a_replica_takes_what_the_other_authority_issued_and_denies_by_serial_number(directory: Path, tmp_path: Path) -> None:
    theirs = an_authority("rayched-theirs")
    made = PkiDirectory.trust(directory, theirs.certificate_pem)
    pair = a_pair(theirs, [f"spiffe://{made.trust_domain}/replica/replica-0"], BOTH)
    tls = ServerTls.read(pair.write(tmp_path / "replica"), made.deny_list)
    assert tls.judge.trust_domain == made.trust_domain
    [revoked] = made.revoke(f"{pair.serial:X}")
    assert int(revoked.serial, 16) == pair.serial and made.denied() == {pair.serial}
    assert made.revoke(f"{pair.serial:x}") == [], "it is on the list"
    with pytest.raises(PkiError, match="want a serial number in hexadecimal digits"):
        made.revoke(f"spiffe://{made.trust_domain}/user/alice")


def test_what_is_no_authority_or_has_expired_is_not_trusted_and_nothing_is_overwritten(directory: Path) -> None:
    theirs, clock = an_authority(), SetClock(0.0)
    with pytest.raises(PkiError, match="is no certificate authority"):
        PkiDirectory.trust(directory, a_pair(theirs).certificate)
    with pytest.raises(PkiError, match="holds no certificates in PEM"):
        PkiDirectory.trust(directory, b"")
    clock.now = 4e9
    with pytest.raises(PkiError, match=r"--external-ca: .* has expired"):
        PkiDirectory.trust(directory, theirs.certificate_pem, clock)
    assert not directory.exists()
    PkiDirectory.create(directory)
    before = (directory / "ca.crt").read_bytes()
    with pytest.raises(PkiError, match="has a certificate authority already"):
        PkiDirectory.trust(directory, theirs.certificate_pem)
    assert (directory / "ca.crt").read_bytes() == before and not PkiDirectory(directory).is_external
