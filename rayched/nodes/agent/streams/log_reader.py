"""Reads the log of one attempt from place to place, whatever rotation does meanwhile (the format: shim/log_file.py).

A place is a file and an offset in it. A file keeps its inode when rotation renames it, and an inode may be used again once its
file was removed; so the time of the first entry, which no two files of a log share, belongs to a place as well. No file stays
open between two reads: who reads slowly keeps no removed file on the disk.

Files are looked at from the newest to the oldest. Rotation moves them the same way, so none is missed.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rayched.nodes.agent.shim.log_file import FILES_MAX

STAMP_BYTES: Final = 30
_TAG: Final = STAMP_BYTES + 8
_TEXT: Final = _TAG + 2
_PART_BYTES: Final = 128 << 10
"""More than an entry can have, and with times, half of what a message may have."""


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Behind the entries read so far. File 0: before the first entry, when there was no file yet."""

    file: int = 0
    begin: bytes = b""
    offset: int = 0


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    inode: int
    size: int


class LogReader:
    """It blocks."""

    def __init__(self, path: Path, place: LogPlace | None = None) -> None:
        self._path = str(path)
        self.place = place or LogPlace()
        self.lost = False
        """Entries behind the place were removed before they were read; whoever has told that resets it."""

    def begin_at_tail(self, lines: int) -> None:
        """Goes to where the last so many complete lines begin."""
        while not self._found_tail(lines):
            pass

    def bytes_left(self) -> int:
        """From the place to the present end, in bytes of files."""
        files = self._files()
        at = next((number for number, one in enumerate(files) if one.inode == self.place.file), None)
        done = self.place.offset if at is not None else 0
        return sum(one.size for one in files[at or 0 :]) - done

    def read(self) -> bytes:
        """Whole entries, 128 KiB at most, and goes on behind them; empty: there are no more for now."""
        while True:
            files = self._files()
            if not files:
                self.lost = self.lost or bool(self.place.file)
                return b""
            at = next((number for number, one in enumerate(files) if one.inode == self.place.file), None)
            if at is None:
                self._begin_again(files)
                continue
            try:
                fd = os.open(files[at].path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                if os.fstat(fd).st_ino != self.place.file:
                    continue
                begin = os.pread(fd, STAMP_BYTES, 0)
                if self.place.begin and begin != self.place.begin:
                    self._begin_again(files)
                    continue
                data = os.pread(fd, _PART_BYTES, self.place.offset)
            finally:
                os.close(fd)
            # What has no end in so many bytes is no entry.
            size = len(data) if len(data) == _PART_BYTES and b"\n" not in data else data.rfind(b"\n") + 1
            if size:
                self.place = LogPlace(self.place.file, begin, self.place.offset + size)
                return data[:size]
            # Files were looked at before this one was read to its end: with a later one there, nothing more comes to it.
            if at + 1 == len(files) or not files[at + 1].size:
                return b""
            self.place = LogPlace(files[at + 1].inode)

    def _begin_again(self, files: list[_File]) -> None:
        """The file of the place is gone: with what is left."""
        self.lost = self.lost or bool(self.place.file)
        self.place = LogPlace(files[0].inode)

    def _files(self) -> list[_File]:
        """Oldest first."""
        found: dict[int, _File] = {}
        for number in range(FILES_MAX):
            path = f"{self._path}.{number}" if number else self._path
            try:
                status = os.stat(path)
            except FileNotFoundError:
                continue
            found.setdefault(status.st_ino, _File(path, status.st_ino, status.st_size))
        return list(reversed(found.values()))

    def _found_tail(self, lines: int) -> bool:
        """False: files were renamed meanwhile."""
        left = lines
        files = self._files()
        for one in reversed(files):
            if not one.size:
                continue
            try:
                fd = os.open(one.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
            try:
                if os.fstat(fd).st_ino != one.inode:
                    return False
                with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as content:
                    end, left = _lines_back(content, left)
                    if end:
                        self.place = LogPlace(one.inode, content[:STAMP_BYTES], end)
                        return True
            finally:
                os.close(fd)
        self.place = LogPlace(files[0].inode) if files else LogPlace()
        return True


def _lines_back(content: mmap.mmap, left: int) -> tuple[int, int]:
    """Where the last `left` lines begin, 0 where there are fewer, and how many more of them are to be found elsewhere."""
    end = content.rfind(b"\n") + 1
    while end:
        start = content.rfind(b"\n", 0, end - 1) + 1
        if content[start + _TAG : start + _TAG + 1] == b"F":
            if not left:
                return end, 0
            left -= 1
        end = start
    return 0, left


class LogText:
    """Makes of entries what the container wrote."""

    def __init__(self, since: bytes, *, timestamps: bool, in_line: bool = False) -> None:
        """`since`: entries before that time are left out; as entries have it, empty: none."""
        self._since = since
        self._timestamps = timestamps
        self.in_line = in_line
        """The last entry was a part of a line."""

    def of(self, entries: bytes) -> bytes:
        found: list[bytes] = []
        for entry in entries.split(b"\n"):
            # What a full disk tore is no entry.
            if entry[_TAG - 1 : _TAG] != b" " or entry[_TAG + 1 : _TEXT] != b" " or entry < self._since:
                continue
            if self._timestamps and not self.in_line:
                found.append(entry[: STAMP_BYTES + 1])
            found.append(entry[_TEXT:])
            self.in_line = entry[_TAG : _TAG + 1] == b"P"
            if not self.in_line:
                found.append(b"\n")
        return b"".join(found)
