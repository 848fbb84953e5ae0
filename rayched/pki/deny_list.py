"""Which certificates are revoked, as a replica knows it: the deny list's file, read again when it has changed.

Owner: one thread.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from rayched.pki import private_files
from rayched.pki.errors import PkiError
from rayched.pki.records import read_deny_list
from rayched.pki.tls_files import Stamp, stamp_of

_log = logging.getLogger(__name__)


class DenyList:
    """In memory; `look` compares it with the file."""

    def __init__(self, path: Path | None) -> None:
        """None: nothing is denied. Raises PkiError where the file cannot be read."""
        self._path: Final = path
        self._seen: Stamp = () if path is None else stamp_of(path)
        self._serials: frozenset[int] = frozenset() if path is None else _read(path)

    def __contains__(self, serial: int) -> bool:
        return serial in self._serials

    def look(self) -> None:
        """A file that is gone or cannot be read denies what it did before; the log says so once."""
        if self._path is None or (stamp := stamp_of(self._path)) == self._seen:
            return
        self._seen = stamp
        try:
            self._serials = _read(self._path)
        except PkiError as error:
            _log.error("the deny list stays as it was: %s", error)


def _read(path: Path) -> frozenset[int]:
    return read_deny_list(private_files.read_list(path), str(path))
