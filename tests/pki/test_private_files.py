"""Keys are for their owner alone, from the first moment on."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.pki import private_files
from rayched.pki.errors import PkiError

NOBODY = 65534


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


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """That others may look into, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to root, which root alone can")
@pytest.mark.parametrize("mode", [0o440, 0o640, 0o400, 0o660, 0o644, 0o641])
def test_a_service_reads_a_key_of_roots_that_its_group_alone_may_read(open_directory: Path, mode: int) -> None:
    """As Kubernetes mounts a Secret, and as a unit of systemd without a user of its own is given a key."""
    key = open_directory / "tls.key"
    key.write_bytes(b"secret")
    key.chmod(mode)
    assert judged_as_nobody(key) is (mode in (0o440, 0o640, 0o400))
    os.chown(key, NOBODY, 0)
    assert judged_as_nobody(key) is (mode == 0o400)
    if mode & 0o077:
        os.chown(key, 0, 0)
        with pytest.raises(PkiError, match="chmod 600"):
            private_files.read_private(key)


def judged_as_nobody(key: Path) -> bool:
    """Whether a process that is not root takes its mode; it may read by root's group here, as fsGroup lets it."""
    child = os.fork()
    if not child:
        code = 2
        try:
            os.setgid(0)
            os.seteuid(NOBODY)
            private_files.read_private(key)
            code = 0
        except PkiError as error:
            # Permission denied: root's alone. Its mode was taken.
            code = 0 if "Permission denied" in str(error) else 1 if "chmod 600" in str(error) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 1)
    return code == 0


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
