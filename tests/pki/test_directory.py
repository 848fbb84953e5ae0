"""What `rayched pki` keeps: what was issued and revoked, and the exchange of an authority."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.access.identity import IdentityKind
from rayched.pki.authority import LeafRequest
from rayched.pki.certificates import check_pair, facts_of, read_certificates, signer_of
from rayched.pki.deny_list import DenyList
from rayched.pki.directory import PkiDirectory, read_certificate
from rayched.pki.errors import PkiError
from rayched.pki.issuing import leaf_request
from rayched.pki.records import IssueRecord
from tests.pki.made import SetClock, numbered

NOW = 1_800_000_000.0
DAY = 86_400


@pytest.fixture
def clock() -> SetClock:
    return SetClock(NOW)


@pytest.fixture
def made(tmp_path: Path, clock: SetClock) -> PkiDirectory:
    return PkiDirectory.create(tmp_path / "pki", clock, numbered())


def wanted(made: PkiDirectory, name: str = "alice", kind: IdentityKind = IdentityKind.USER) -> LeafRequest:
    return leaf_request(made.trust_domain, kind, name)


def everything_below(path: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in path.rglob("*") if one.is_file()}


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.row("B5")
def test_all_files_are_for_their_owner_alone(tmp_path: Path, no_umask: None) -> None:
    made = PkiDirectory.create(tmp_path / "pki")
    for kind in IdentityKind:
        made.issue(wanted(made, "a", kind))
    made.revoke(f"spiffe://{made.trust_domain}/user/a")
    made.trust_next()
    paths = list((tmp_path / "pki").rglob("*"))
    assert len(paths) > 3 * len(IdentityKind)
    for path in (tmp_path / "pki", *paths):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.row("B7")
def test_a_second_authority_in_one_directory_is_refused_and_changes_nothing(made: PkiDirectory) -> None:
    before = everything_below(made.path)
    with pytest.raises(PkiError, match="has a certificate authority already"):
        PkiDirectory.create(made.path)
    (made.path / "ca.crt").unlink()
    with pytest.raises(PkiError, match="has a certificate authority already"):
        PkiDirectory.create(made.path)
    assert everything_below(made.path) == {name: data for name, data in before.items() if not name.endswith("/ca.crt")}


def test_a_trust_domain_is_eight_hexadecimal_digits(made: PkiDirectory) -> None:
    prefix, _, digits = made.trust_domain.partition("-")
    assert prefix == "rayched" and len(digits) == 8 and int(digits, 16) >= 0
    assert PkiDirectory(made.path).trust_domain == made.trust_domain


def test_what_is_issued_is_recorded_and_written_where_it_says(made: PkiDirectory, tmp_path: Path) -> None:
    first = made.issue(wanted(made))
    second = made.issue(wanted(made, "node-17", IdentityKind.NODE), tmp_path / "elsewhere")
    assert made.issued() == [first, second]
    assert first.directory == str(made.path / "user" / "alice")
    assert (first.issued_at, first.not_after) == (NOW, NOW + 90 * DAY)
    assert second.not_after == NOW + 30 * DAY
    for record in (first, second):
        found = read_certificate(Path(record.directory))
        assert f"{found.serial_number:x}" == record.serial.lstrip("0")
        assert facts_of(found).uris == (record.uri,)
        assert (Path(record.directory) / "ca.crt").read_bytes() == made.bundle
    assert first.serial != second.serial


def test_a_new_certificate_takes_the_place_of_the_old_one_and_of_nobody_elses(made: PkiDirectory) -> None:
    first, second = made.issue(wanted(made)), made.issue(wanted(made))
    assert made.issued() == [first, second]
    assert made.in_use() == [second]
    with pytest.raises(PkiError, match=r"has a certificate of spiffe://.*/user/alice; name another directory"):
        made.issue(wanted(made, "bob"), Path(second.directory))
    assert made.issued() == [first, second]


@pytest.mark.parametrize("left", ["no key", "another key"])
def test_a_pair_that_does_not_fit_is_replaced_by_a_new_one(made: PkiDirectory, left: str) -> None:
    first, other = made.issue(wanted(made)), made.issue(wanted(made, "bob"))
    key = Path(first.directory) / "tls.key"
    key.unlink()
    if left == "another key":
        shutil.copy(Path(other.directory) / "tls.key", key)
    second = made.issue(wanted(made))
    assert f"{read_certificate(Path(first.directory)).serial_number:x}" == second.serial.lstrip("0")


def test_another_trust_domains_certificates_are_not_issued(made: PkiDirectory) -> None:
    with pytest.raises(PkiError, match="is of another trust domain"):
        made.issue(leaf_request("rayched-ffffffff", IdentityKind.USER, "alice"))
    assert made.issued() == []


def test_without_the_authoritys_key_nothing_is_issued_until_it_is_back(made: PkiDirectory, tmp_path: Path) -> None:
    shutil.move(made.path / "ca.key", tmp_path / "ca.key")
    assert made.signer() is None
    with pytest.raises(PkiError, match=r"ca\.key: is not there, so nothing can be signed"):
        made.issue(wanted(made))
    shutil.move(tmp_path / "ca.key", made.path / "ca.key")
    assert made.issue(wanted(made)).authority == made.signer()


@pytest.mark.row("B6")
def test_an_authoritys_key_that_others_can_read_signs_nothing(made: PkiDirectory) -> None:
    (made.path / "ca.key").chmod(0o644)
    with pytest.raises(PkiError, match=rf"ca\.key: has mode 0644, .*chmod 600 {made.path / 'ca.key'}"):
        made.issue(wanted(made))


def test_revocation_is_by_serial_number_or_of_all_of_a_uri(made: PkiDirectory) -> None:
    alice, again, bob = made.issue(wanted(made)), made.issue(wanted(made)), made.issue(wanted(made, "bob"))
    assert made.revoke(bob.serial.upper()) == [bob]
    assert made.denied() == {int(bob.serial, 16)}
    assert made.revoke(alice.uri) == [alice, again]
    assert made.denied() == {int(one.serial, 16) for one in (alice, again, bob)}
    assert made.revoke(alice.uri) == []
    assert made.in_use() == []
    renewed = made.issue(wanted(made))
    assert made.in_use() == [renewed]


@pytest.mark.parametrize("text", ["spiffe://rayched-00000000/user/nobody", "00ff", "", "alice", "spiffe://"])
def test_what_was_never_issued_cannot_be_revoked(made: PkiDirectory, text: str) -> None:
    made.issue(wanted(made))
    with pytest.raises(PkiError, match="no certificate of this serial number or URI was issued here"):
        made.revoke(text)
    assert made.denied() == frozenset()


def test_expired_certificates_are_not_in_use(made: PkiDirectory, clock: SetClock) -> None:
    record = made.issue(wanted(made))
    clock.now = record.not_after - 1
    assert made.in_use() == [record]
    clock.now = record.not_after
    assert made.in_use() == []


class TestExchange:
    """Of the authority, in three steps (B29 without the load)."""

    def signer_of(self, record: IssueRecord, made: PkiDirectory) -> str:
        place = Path(record.directory)
        found = signer_of(read_certificate(place), read_certificates(made.bundle, ""))
        assert found is not None
        return facts_of(found).key_id

    def test_at_each_step_what_is_in_use_is_trusted_by_all(self, made: PkiDirectory) -> None:
        old = made.signer()
        record = made.issue(wanted(made))
        assert made.trust_next() == []
        assert made.signer() == old
        assert (Path(record.directory) / "ca.crt").read_bytes() == made.bundle
        assert len(made.authorities()) == 2

        made.sign_with_next()
        assert made.signer() not in (None, old)
        assert self.signer_of(record, made) == old
        renewed = made.issue(wanted(made))
        assert self.signer_of(renewed, made) == made.signer() == renewed.authority

        made.forget_old()
        assert [one.key_id for one in made.authorities()] == [made.signer()]
        assert (Path(record.directory) / "ca.crt").read_bytes() == made.bundle
        assert made.signer() != old

    def test_no_step_comes_before_the_one_before_it(self, made: PkiDirectory) -> None:
        with pytest.raises(PkiError, match="first step is `rayched pki rotate-ca trust-both`"):
            made.sign_with_next()
        with pytest.raises(PkiError, match="before this comes `rayched pki rotate-ca sign-new`"):
            made.forget_old()
        made.trust_next()
        with pytest.raises(PkiError, match="next step is `rayched pki rotate-ca sign-new`"):
            made.trust_next()
        with pytest.raises(PkiError, match="before this comes `rayched pki rotate-ca sign-new`"):
            made.forget_old()

    def test_the_new_authority_does_not_sign_while_somebody_may_not_trust_it(self, made: PkiDirectory, tmp_path: Path) -> None:
        record = made.issue(wanted(made))
        shutil.move(record.directory, tmp_path / "taken-away")
        assert made.trust_next() == [record]
        with pytest.raises(PkiError, match=r"user/alice may not trust the new certificate authority yet"):
            made.sign_with_next()
        old = made.signer()
        made.sign_with_next(force=True)
        assert made.signer() != old

    def test_the_old_authority_is_trusted_while_somebody_has_its_certificate(self, made: PkiDirectory, clock: SetClock) -> None:
        for name in ("alice", "bob", "carol"):
            made.issue(wanted(made, name))
        made.trust_next()
        made.sign_with_next()
        made.issue(wanted(made, "alice"))
        made.revoke(f"spiffe://{made.trust_domain}/user/bob")
        with pytest.raises(PkiError, match=r"^spiffe://[^ ]*/user/carol have certificates of the old"):
            made.forget_old()
        assert len(made.authorities()) == 2
        clock.now += 90 * DAY
        made.forget_old()
        assert len(made.authorities()) == 1

    def test_a_first_step_that_was_cut_off_is_done_again(self, made: PkiDirectory) -> None:
        (made.path / "next-ca.key").write_bytes(b"half")
        made.trust_next()
        made.sign_with_next()
        record = made.issue(wanted(made))
        check_pair(*((Path(record.directory) / name).read_bytes() for name in ("tls.crt", "tls.key")), "", "")
        assert record.authority == made.signer()


def test_records_that_cannot_be_read_are_told_by_file_and_line(made: PkiDirectory) -> None:
    made.issue(wanted(made))
    with open(made.path / "issued", "a") as file:
        file.write("nonsense\n")
    with pytest.raises(PkiError, match=r"issued, line 2: is no record of a certificate"):
        made.issued()
    made.deny_list.write_text("# head\nzz spiffe://x\n")
    with pytest.raises(PkiError, match=r"revoked, line 2: begins with 'zz', want a serial number"):
        made.denied()


MEBIBYTE = 1 << 20


def test_the_lists_may_be_longer_than_any_certificate(made: PkiDirectory) -> None:
    first = made.issue(wanted(made))
    line = (made.path / "issued").read_text()
    with open(made.path / "issued", "a") as file:
        file.write(line * (MEBIBYTE // len(line)))
    with open(made.deny_list, "a") as file:
        file.write("# what was denied long ago\n" * (MEBIBYTE // 20))
    last = made.issue(wanted(made, "bob"))
    assert made.issued()[-1] == last and made.in_use() == [first, last]
    assert made.revoke(last.uri) == [last]
    assert int(last.serial, 16) in made.denied() and int(last.serial, 16) in DenyList(made.deny_list)


def test_a_record_is_added_at_the_end_and_nothing_before_it_is_written_again(made: PkiDirectory) -> None:
    made.issue(wanted(made))
    path = made.path / "issued"
    before, number = path.read_bytes(), path.stat().st_ino
    second = made.issue(wanted(made, "bob"))
    assert path.read_bytes() == before + second.line().encode() and path.stat().st_ino == number


def test_what_a_crash_left_of_a_record_hides_no_other_one(made: PkiDirectory) -> None:
    first = made.issue(wanted(made))
    with open(made.path / "issued", "a") as file:
        file.write(first.line()[:40])
    assert made.issued() == [first]
    second = made.issue(wanted(made, "bob"))
    assert made.issued() == [first, second]
    assert (made.path / "issued").read_text() == first.line() + second.line()


def test_where_there_is_no_authority_the_command_that_makes_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(PkiError, match=r"has no ca\.crt; `rayched pki init` makes"):
        PkiDirectory(tmp_path)
