"""The log of one attempt of a container: lines of stdout and stderr in CRI format, rotated by size.

    2026-11-23T06:39:40.123456789Z stdout F text

F ends a line; P is a part of one longer than 16 KiB. `<attempt>.log` is written; `.log.1` to `.log.4` are older. So a container
takes at most five times the size of one file.
"""

from __future__ import annotations

import os
import time
from typing import Final

SIZE_MAX: Final = 10 << 20
FILES_MAX: Final = 5
_LINE_MAX: Final = 16 << 10


class LogFile:
    """Append-only. `write` takes whatever a pipe gave; `close` ends an unfinished line. What the disk refuses is dropped."""

    def __init__(self, path: str, size_max: int = SIZE_MAX) -> None:
        self._path = path
        self._size_max = size_max
        self._begun: dict[str, bytes] = {}
        self._is_torn = False
        self._fd = self._open(path)
        self._size = os.fstat(self._fd).st_size

    def write(self, stream: str, data: bytes) -> None:
        lines = (self._begun.pop(stream, b"") + data).split(b"\n")
        rest = lines.pop()
        stamp = _stamp(time.time_ns())
        name = stream.encode()
        pieces: list[bytes] = []
        for line in lines:
            while len(line) > _LINE_MAX:
                pieces += (stamp, name, b" P ", line[:_LINE_MAX], b"\n")
                line = line[_LINE_MAX:]
            pieces += (stamp, name, b" F ", line, b"\n")
        while len(rest) > _LINE_MAX:
            pieces += (stamp, name, b" P ", rest[:_LINE_MAX], b"\n")
            rest = rest[_LINE_MAX:]
        if rest:
            self._begun[stream] = rest
        if pieces:
            self._append(b"".join(pieces))

    def close(self) -> None:
        stamp = _stamp(time.time_ns())
        for stream, rest in self._begun.items():
            self._append(b"".join((stamp, stream.encode(), b" F ", rest, b"\n")))
        self._begun.clear()
        os.close(self._fd)

    def _append(self, data: bytes) -> None:
        view = memoryview(b"\n" + data if self._is_torn else data)
        try:
            if self._size and self._size + len(data) > self._size_max:
                self._rotate()
            while view:
                written = os.write(self._fd, view)
                self._size += written
                view = view[written:]
                self._is_torn = bool(view)
        except OSError:
            # Better a gap in the log than an end of the container: a full disk may have room again.
            return

    def _rotate(self) -> None:
        # Made first: where there is no room for it, all stay as they are.
        fresh = self._open(f"{self._path}.new")
        for number in range(FILES_MAX - 1, 0, -1):
            older = self._path if number == 1 else f"{self._path}.{number - 1}"
            if os.path.exists(older):
                os.replace(older, f"{self._path}.{number}")
        os.replace(f"{self._path}.new", self._path)
        os.close(self._fd)
        self._fd = fresh
        self._size = 0

    def _open(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)


def _stamp(nanoseconds: int) -> bytes:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{rest:09d}Z ", time.gmtime(seconds)).encode()
