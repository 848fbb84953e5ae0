"""Three files: the authorities that are trusted, a certificate and its key. Needs nothing but the standard library."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

CA_FILE: Final = "ca.crt"
CERTIFICATE_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"

Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where one side's TLS material is."""

    ca: Path
    certificate: Path
    key: Path

    @classmethod
    def within(cls, directory: Path) -> Self:
        """As `rayched pki issue` names them."""
        return cls(directory / CA_FILE, directory / CERTIFICATE_FILE, directory / KEY_FILE)

    def stamp(self) -> Stamp:
        """Differs when a file was replaced or written to."""
        return stamp_of(self.ca, self.certificate, self.key)


def stamp_of(*paths: Path) -> Stamp:
    """Of each file inode, size and time of change; None where it is not there."""
    return tuple(map(_stamp, paths))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
