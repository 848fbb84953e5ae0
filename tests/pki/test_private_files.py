"""Keys are for their owner alone, from the first moment on."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.pki import private_files
from rayched.pki.errors import PkiError


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_files_and_directories_are_for_their_owner_alone_whatever_the_umask(tmp_path: Path, no_umask: None) -> None:
    place = tmp_path / "pki"
    private_files.make_directory(place)
    private_files.create(place / "new", b"1")
    private_files.replace(place / "replaced", b"1")
    private_files.replace(place / "replaced", b"2")
    assert mode_of(place) == 0o700
    assert {mode_of(path) for path in place.iterdir()} == {0o600}
    assert private_files.read(place / "replaced") == b"2"
    assert sorted(path.name for path in place.iterdir()) == ["new", "replaced"]


def test_nothing_is_overwritten_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("there", "link"):
        with pytest.raises(PkiError, match=f"{name}: is there already"):
            private_files.create(tmp_path / name, b"new")
    assert (tmp_path / "there").read_bytes() == b"old"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o601])
def test_a_key_that_others_can_read_is_refused_with_the_command_that_helps(tmp_path: Path, mode: int) -> None:
    key = tmp_path / "tls.key"
    key.write_bytes(b"secret")
    key.chmod(mode)
    with pytest.raises(PkiError, match=f"tls.key: has mode 0{mode:o}, .*chmod 600 {key}"):
        private_files.read_private(key)
    key.chmod(0o600)
    assert private_files.read_private(key) == b"secret"
    key.chmod(0o400)
    assert private_files.read_private(key) == b"secret"


def test_a_directory_that_others_may_enter_is_not_taken(tmp_path: Path) -> None:
    place = tmp_path / "open"
    place.mkdir(mode=0o755)
    with pytest.raises(PkiError, match=f"has mode 0755, .*chmod 700 {place}"):
        private_files.make_directory(place)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    for read in (private_files.read, private_files.read_private):
        with pytest.raises(PkiError, match="missing: No such file"):
            read(tmp_path / "missing")
    (tmp_path / "large").write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(PkiError, match="large: has more than 1048576 bytes"):
        private_files.read(tmp_path / "large")
