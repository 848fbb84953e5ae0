"""The audit log of one replica as a file that is appended to and turned over by size, or as lines on the standard output.

`append` returns when the kernel has the lines; a thread asks for them to be on disk each second. So a killed process loses
nothing, and a host without power a second. Where lines cannot be written, as on a full disk, `append` raises AuditUnavailable:
who answers decides what that means. The log goes on by itself once there is room again, with the number that follows.

Files: PATH, and PATH.1 to PATH.7, the oldest last; PATH.new while they are turned over; PATH.lock, which keeps a second process
away; all 0600.

Owner: an AuditWriter (audit_writer.py), which closes it. `append` from any thread; it may wait for the disk. Cost: some
20 us a line.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
from collections.abc import Sequence
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


class AuditLogTaken(AuditLogError):
    """Another process writes the file."""


class AuditLog:
    """See the module."""

    def __init__(self, path: Path, *, file_bytes_max: int = FILE_BYTES_MAX, files: int = FILES) -> None:
        """Goes on with what is there. Raises AuditLogError, OSError."""
        self._path = path
        self._file_bytes_max = file_bytes_max
        self._files = files
        self._lock = threading.Lock()
        self._owned = _locked(path)
        try:
            self._fd, self._size, self._end = _opened(path)
            if not self._size and (last := _last_line(numbered(path, 1))) is not None:
                self._end = last
        except BaseException:
            os.close(self._owned)
            raise
        self._is_synced = True
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._sync, name="audit-log", daemon=True)
        self._thread.start()

    @property
    def end(self) -> ChainEnd:
        """Where it stands."""
        with self._lock:
            return self._end

    def append(self, *entries: AuditEntry) -> None:
        """All of them, or none: then AuditUnavailable is raised, and the log is as it was."""
        with self._lock:
            try:
                if self._size >= self._file_bytes_max:
                    self._turn_over()
                lines, end = lines_of(entries, self._end)
                self._write(lines)
            except OSError as error:
                raise AuditUnavailable(f"{self._path}: {error.strerror or error}") from error
            self._size += len(lines)
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
                os.close(self._owned)
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
        """Where this fails in the middle, the next try goes on from there: no file is moved twice. Raises OSError."""
        self._fsync()
        # First, as there may be no descriptor or no room for it, and then nothing is to be moved.
        begun = self._path.with_name(f"{self._path.name}.new")
        begun.unlink(missing_ok=True)
        fd = _created(begun)
        try:
            free = next(
                (number for number in range(self._files - 1) if not numbered(self._path, number).exists()), self._files - 1
            )
            for number in range(free, 0, -1):
                numbered(self._path, number - 1).replace(numbered(self._path, number))
            begun.replace(self._path)
        except BaseException:
            os.close(fd)
            raise
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


class StandardOutput:
    """An audit log for whoever collects what a process writes: `append` waits while nobody reads. Owner: one thread."""

    def __init__(self, descriptor: int = 1) -> None:
        # Of its own, as others may close or replace theirs.
        self._fd = os.dup(descriptor)
        self._end = ChainEnd()
        self._begun = 0
        """Bytes that are out of what could not be written as a whole."""

    def append(self, *entries: AuditEntry) -> None:
        """Raises AuditUnavailable; then the same entries are to be appended again, and go on where they ended."""
        lines, end = lines_of(entries, self._end)
        try:
            while self._begun < len(lines):
                self._begun += os.write(self._fd, lines[self._begun :])
        except OSError as error:
            raise AuditUnavailable(f"the standard output: {error.strerror or error}") from error
        self._begun, self._end = 0, end

    def close(self) -> None:
        os.close(self._fd)


def lines_of(entries: Sequence[AuditEntry], end: ChainEnd) -> tuple[bytes, ChainEnd]:
    """The next lines, and where the log stands then."""
    lines = []
    for entry in entries:
        line, end = line_of(entry, end)
        lines.append(line)
    return b"".join(lines), end


def numbered(path: Path, number: int) -> Path:
    """0: the file that is appended to; greater numbers are older."""
    return path if number == 0 else path.with_name(f"{path.name}.{number}")


def _locked(path: Path) -> int:
    """Keeps all others away for as long as the descriptor is open. Raises AuditLogError, OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path.with_name(f"{path.name}.lock"), flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise AuditLogTaken(f"{path}: another replica writes it; name another file") from None
    return fd


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
