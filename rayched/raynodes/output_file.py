"""What a process says, in a file of bounded size: at most twice FILE_BYTES_MAX on the disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

FILE_BYTES_MAX: Final = 8 << 20
_LINE_MAX: Final = 1_000


class OutputFile:
    """Appends to `path`; what was before lies in `path`.1."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_faulty = False
        self._tail = b""

    @property
    def last_line(self) -> str:
        """The last one that says something; at most 1,000 bytes of it. Empty: none does."""
        lines = [line.strip() for line in self._tail.decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")

    def write(self, data: bytes) -> str:
        """Why it cannot be kept, once; empty: it is, or was told of before."""
        self._tail = (self._tail + data)[-_LINE_MAX:]
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if os.fstat(file).st_size + len(data) > FILE_BYTES_MAX:
                    self._path.replace(f"{self._path}.1")
                    os.close(file)
                    file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
                os.write(file, data)
            finally:
                os.close(file)
        except OSError as error:
            was_faulty, self._is_faulty = self._is_faulty, True
            return "" if was_faulty else f"{self._path}: what the agent says is lost ({error.strerror})"
        self._is_faulty = False
        return ""
