"""Files that their owner alone may read: keys, and all else that lies beside them.

Each is made with its final mode in the same system call, whatever the umask says: there is no moment at which others could open
it. What replaces a file is written beside it first, so that whoever reads meets the old bytes or the new ones.

A key that is root's may be read by its group as well: a service that is not root has no other way to a key that it cannot change
(ADR 43).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rayched.pki.errors import PkiError

_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
_OTHERS: Final = 0o077
_OTHERS_OF_ROOT: Final = 0o037
"""What is root's may be read by its group."""
_ROOT: Final = 0
_BYTES_MAX: Final = 1 << 20
"""No bundle of certificates is that large."""
_LINE_BYTES_MAX: Final = 1 << 16


def make_directory(path: Path) -> None:
    """The directory with those above it. One that is there already is taken if nobody else may enter it. Raises PkiError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(_DIRECTORY_MODE)
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise PkiError(f"{path}: {error.strerror}; name a directory that can be made") from error
    if mode & _OTHERS:
        raise PkiError(f"{path}: has mode {mode:04o}, and keys are kept where nobody else may look: chmod 700 {path}")


def create(path: Path, data: bytes) -> None:
    """A new file. Raises PkiError, also where there is one."""
    with _told(path):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
        except FileExistsError:
            raise PkiError(f"{path}: is there already, and nothing is overwritten") from None


def replace(path: Path, data: bytes) -> None:
    """The file, new or in place of another one; all at once. Raises PkiError."""
    beside = path.with_name(f".{path.name}.new")
    # Left by somebody who was ended in the middle; one writer at a time (directory.py).
    with _told(path):
        beside.unlink(missing_ok=True)
        create(beside, data)
        beside.replace(path)


def read(path: Path) -> bytes:
    """Raises PkiError."""
    with _told(path), open(path, "rb") as file:
        data = file.read(_BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise PkiError(f"{path}: has more than {_BYTES_MAX} bytes; want keys or certificates in PEM")
    return data


def read_list(path: Path) -> str:
    """A list of lines that only grows, of whatever length. Raises PkiError."""
    with _told(path):
        return path.read_bytes().decode(errors="replace")


def append_line(path: Path, line: str) -> None:
    """One more line of such a list; what a crash left of one goes. It is on the disk when this returns. Raises PkiError."""
    with _told(path), open(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "r+b", buffering=0) as file:
        tail = file.seek(max(0, file.seek(0, os.SEEK_END) - _LINE_BYTES_MAX))
        whole = tail + file.read().rfind(b"\n") + 1
        if whole == tail > 0:
            raise PkiError(f"{path}: its last line has more than {_LINE_BYTES_MAX} bytes, which is no line of this list")
        file.truncate(whole)
        file.seek(whole)
        data = line.encode()
        if file.write(data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(file.fileno())


def read_private(path: Path) -> bytes:
    """A file that its owner alone may read, or one of root's that its group may. Raises PkiError with the command that helps."""
    with _told(path):
        found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    if mode & (_OTHERS_OF_ROOT if found.st_uid == _ROOT and os.geteuid() != _ROOT else _OTHERS):
        raise PkiError(f"{path}: has mode {mode:04o}, so others can read it: chmod 600 {path}")
    return read(path)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the system refuses is a PkiError that names the file."""
    try:
        yield
    except OSError as error:
        raise PkiError(f"{path}: {error.strerror}") from error
