"""`make audit` finds what it is for: each kind of fault is put before it once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.hardening import advisories, secrets_in_tree, written_files
from tests.hardening.__main__ import LOCK, ROOT, main, strangers, tracked
from tests.hardening.locks import PinnedPackage, bill_of_materials, disagreements, read_lock

DIGEST = "a" * 64


def a_lock(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "some.lock"
    path.write_text(text)
    return path


def test_a_lock_pins_one_version_by_hashes(tmp_path: Path) -> None:
    hashes = f" \\\n    --hash=sha256:{DIGEST}"
    good = f"# made by a tool\nSome_Name==1.2.3 ; python_version >= '3.11'{hashes}{hashes}\n"
    found = read_lock(a_lock(tmp_path, good))
    assert found.faults == () and found.packages == (PinnedPackage("some-name", "1.2.3", (DIGEST, DIGEST), "some.lock"),)
    for text, fault in (
        ("name==1.0\n", "some.lock:1: name==1.0: has no hashes"),
        (f"name==1.0 --hash=md5:{'a' * 32}\n", "has no hashes of SHA-256, or others too"),
        (f"\nname>=1.0 --hash=sha256:{DIGEST}\n", "some.lock:2: pins nothing: name>=1.0"),
        (f"git+https://example.org/x --hash=sha256:{DIGEST}\n", "pins nothing"),
        ("", "pins no package"),
    ):
        assert any(fault in line for line in read_lock(a_lock(tmp_path, text)).faults), text


def test_locks_that_differ_are_told() -> None:
    whole = [PinnedPackage("a", "1", (DIGEST,), "whole")]
    assert disagreements([PinnedPackage("a", "1", (DIGEST,), "part")], whole) == []
    [other] = disagreements([PinnedPackage("a", "2", (DIGEST,), "part")], whole)
    [hashes] = disagreements([PinnedPackage("a", "1", ("b" * 64,), "part")], whole)
    assert "a==2 is not what" in other and "has hashes that" in hashes


def test_a_known_hole_is_told_and_an_accepted_one_with_its_reason() -> None:
    text = """
    [[hole]]
    id = "CVE-1"
    package = "A_b"
    fixed = "1.10"
    what = "opens a door"
    [[hole]]
    id = "CVE-2"
    package = "a-b"
    fixed = ""
    what = "opens another"
    accepted = "nobody is there"
    """
    holes = advisories.read_holes(text)
    for version, is_open in (("1.9.9", True), ("1.10", False), ("1.10.0", False), ("2", False)):
        faults, accepted = advisories.open_holes([PinnedPackage("a-b", version, (), "lock")], holes)
        assert faults == ([f"lock: a-b=={version}: CVE-1: opens a door; fixed in 1.10"] if is_open else [])
        assert accepted == [f"lock: a-b=={version}: CVE-2: opens another; accepted: nobody is there"]
    with pytest.raises(ValueError, match="CVE-3: want id, package, fixed, what"):
        advisories.read_holes('[[hole]]\nid = "CVE-3"\nfixed = ""\n')


def test_each_hole_of_the_table_is_of_a_package_that_is_pinned() -> None:
    pinned = {one.name for one in read_lock(ROOT / LOCK).packages}
    holes = advisories.read_holes()
    assert {hole.package for hole in holes} <= pinned
    assert len({(hole.id, hole.package) for hole in holes}) == len(holes) > 15


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN EC " + "PRIVATE KEY-----\n" + "QUJD" * 20 + "\n",
        "token: rt_" + "a1B2c3D4" + "_" + "x" * 43,
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "ghp_" + "a" * 36,
        "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + "abcdefghijkl",
        'API_SECRET = "' + "0f3a9c5e7b21d486" * 3 + '"',
    ],
)
def test_a_secret_is_found_and_not_shown(tmp_path: Path, text: str) -> None:
    (tmp_path / "file.txt").write_text(f"first\n{text}\n")
    [line] = secrets_in_tree.in_files(tmp_path, ["file.txt"])
    assert line.startswith("file.txt:2: ") and text.strip().split("\n")[-1][-20:] not in line


def test_words_are_no_secrets_and_files_of_keys_are(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text('token_file = "the-file-that-has-the-token-in-it"\npassword = "short"\n')
    (tmp_path / "tls.key").write_text("")
    assert secrets_in_tree.in_files(tmp_path, ["words.py", "tls.key"]) == ["tls.key: is a file of keys or passwords"]


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("os.open(p, os.O_WRONLY | os.O_CREAT, 0o644)", "makes a file of mode 0644, which others can use"),
        ("os.open(p, os.O_WRONLY | os.O_CREAT)", "makes a file, and does not say with which mode"),
        ("os.open(p, os.O_CREAT, mode_of(p))", "whose mode is mode_of(p), which cannot be seen here"),
        ("path.chmod(0o755)", "changes a mode of mode 0755"),
        ("os.umask(0)", "changes the umask"),
        ("path.write_bytes(key)", "writes by the umask, in a room that handles keys"),
        ("os.open(p, os.O_CREAT, 0o600)", ""),
        ("os.open(p, os.O_RDONLY)", ""),
        ("path.chmod(0o700)", ""),
    ],
)
def test_what_others_could_read_is_found_by_its_syntax(source: str, fault: str) -> None:
    found = [words for _, words in written_files.in_source("rayched/pki/some.py", source)]
    assert [fault in words for words in found] == ([True] if fault else [])


def test_an_entry_of_what_is_allowed_that_is_used_no_more_is_told(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "a.py").write_text("p.chmod(0o755)\n")
    assert written_files.faults(tmp_path, ("room",), {"room/a.py: p.chmod": "why not"}) == []
    [first, second] = written_files.faults(tmp_path, ("room",), {"room/b.py: q.chmod": "gone"})
    assert "room/a.py:1" in first and "there is no such call any more" in second


def test_files_that_others_may_write_are_told(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "a").chmod(0o664)
    (tmp_path / "b").touch(0o644)
    assert written_files.modes(tmp_path, ["a", "b"]) == ["a: may be written by others than its owner (mode 0664)"]


def test_packages_that_the_lock_does_not_pin_are_told() -> None:
    whole = read_lock(ROOT / LOCK).packages
    assert strangers(whole) == []
    [line] = strangers([one for one in whole if one.name != "grpcio"])
    assert line.startswith("grpcio==")


def test_the_tree_passes_and_its_bill_of_materials_is_that_of_an_installation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--sbom", str(tmp_path / "sbom.json")]) == 0, capsys.readouterr().out
    bill = json.loads((tmp_path / "sbom.json").read_text())
    names = {one["name"] for one in bill["components"]}
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert names >= {"grpcio", "cryptography", "ray"} and not names & {"pytest", "mypy", "ruff"}
    assert all(one["hashes"] and one["purl"].startswith("pkg:pypi/") for one in bill["components"])
    assert len(tracked()) > 500
    assert bill_of_materials([], "1")["components"] == []
