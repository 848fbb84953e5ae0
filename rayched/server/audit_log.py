"""The audit log of one replica: a file that is appended to before a call is answered, and turned over by size.

`append` returns when the kernel has the line; a thread asks for it to be on disk each second. So a killed process loses nothing,
and a host without power a second. Where a line cannot be written, as on a full disk, `append` raises AuditUnavailable: who
answers decides what that means. The log goes on by itself once there is room again, with the number that follows.

Files: PATH, and PATH.1 to PATH.7, the oldest last; all 0600.

Owner: one server, which closes it. `append` from any thread. Cost: some 20 us a line.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from pathlib import Path
from typing import Final

from rayched.access.audit_line import LINE_BYTES_MAX, AuditEntry, ChainEnd, end_of, line_of

FILE_BYTES_MAX: Final = 64 << 20
FILES: Final = 8
SYNC_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


class AuditUnavailable(Exception):
    """A line could not be written: one line of words."""


class AuditLogError(ValueError):
    """The file cannot be gone on with: one line that names it."""


class AuditLog:
    """See the module."""

    def __init__(self, path: Path, *, file_bytes_max: int = FILE_BYTES_MAX, files: int = FILES) -> None:
        """Goes on with what is there. Raises AuditLogError, OSError."""
        self._path = path
        self._file_bytes_max = file_bytes_max
        self._files = files
        self._lock = threading.Lock()
        self._fd, self._size, self._end = _opened(path)
        if not self._size and (last := _last_line(numbered(path, 1))) is not None:
            self._end = last
        self._is_synced = True
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._sync, name="audit-log", daemon=True)
        self._thread.start()

    @property
    def end(self) -> ChainEnd:
        """Where it stands."""
        with self._lock:
            return self._end

    def append(self, entry: AuditEntry) -> None:
        """Raises AuditUnavailable; then the log is as it was."""
        with self._lock:
            try:
                if self._size >= self._file_bytes_max:
                    self._turn_over()
                line, end = line_of(entry, self._end)
                self._write(line)
            except OSError as error:
                raise AuditUnavailable(f"{self._path}: {error.strerror or error}") from error
            self._size += len(line)
            self._end = end
            self._is_synced = False

    def close(self) -> None:
        """Idempotent. All is on disk afterwards."""
        self._closing.set()
        self._thread.join()
        with self._lock:
            if self._fd >= 0:
                self._fsync()
                os.close(self._fd)
                self._fd = -1

    def _write(self, line: bytes) -> None:
        written = 0
        try:
            while written < len(line):
                written += os.write(self._fd, line[written:])
        except OSError:
            if written:
                # A part of a line would be taken for one that was changed.
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, self._size)
            raise

    def _turn_over(self) -> None:
        self._fsync()
        for number in range(self._files - 2, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                numbered(self._path, number).replace(numbered(self._path, number + 1))
        if self._files > 1:
            self._path.replace(numbered(self._path, 1))
        else:
            self._path.unlink()
        fd = _created(self._path)
        os.close(self._fd)
        self._fd, self._size = fd, 0

    def _sync(self) -> None:
        while not self._closing.wait(SYNC_SECONDS):
            with self._lock:
                self._fsync()

    def _fsync(self) -> None:
        """With the lock. A disk that fails is told of by the next line that cannot be written."""
        if not self._is_synced:
            try:
                os.fsync(self._fd)
                self._is_synced = True
            except OSError as error:
                log.error("%s: %s", self._path, error.strerror or error)


def numbered(path: Path, number: int) -> Path:
    """0: the file that is appended to; greater numbers are older."""
    return path if number == 0 else path.with_name(f"{path.name}.{number}")


def _created(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _opened(path: Path) -> tuple[int, int, ChainEnd]:
    """Descriptor, size, and where the log stands. A last line without its end was never answered for, and goes."""
    fd = _created(path)
    try:
        if os.fstat(fd).st_mode & 0o077:
            raise AuditLogError(f"{path}: others can read or write it; chmod 600 {path}")
        size = os.fstat(fd).st_size
        tail = _tail(path)
        whole = tail.rfind(b"\n") + 1
        if whole < len(tail):
            size -= len(tail) - whole
            os.ftruncate(fd, size)
            log.warning("%s: its last line had no end, as after a loss of power; it was cut off", path)
        lines = tail[:whole].splitlines()
        end = end_of(lines[-1]) if lines else ChainEnd()
        if end is None:
            raise AuditLogError(f"{path}: its last line is none of an audit log; move the file away, or name another one")
    except BaseException:
        os.close(fd)
        raise
    return fd, size, end


def _last_line(path: Path) -> ChainEnd | None:
    lines = _tail(path).splitlines() if path.exists() else []
    return end_of(lines[-1]) if lines else None


def _tail(path: Path) -> bytes:
    """Its last line is whole in there."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 2 * LINE_BYTES_MAX))
        return file.read()
