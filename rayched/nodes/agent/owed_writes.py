"""Writes of a pod that wait for a disk that is full: what has to stop does stop, and is written down once there is room."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

_RETRY_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


class OwedWrites:
    """Into one directory; what is owed ends with it. `later` calls back so many seconds from now."""

    def __init__(self, directory: Path, later: Callable[[float, Callable[[], None]], None]) -> None:
        self._directory = directory
        self._later = later
        self._owed: dict[str, Callable[[], None]] = {}

    def write(self, what: str, write: Callable[[], None]) -> None:
        """Now or, where the disk refuses it, later; of the same thing only the latest counts."""
        try:
            write()
        except OSError as error:
            log.warning("%s: its %s waits for the disk: %s", self._directory, what, error)
            if not self._owed:
                self._later(_RETRY_SECONDS, self._again)
            self._owed[what] = write
        else:
            self._owed.pop(what, None)

    def _again(self) -> None:
        owed, self._owed = self._owed, {}
        for what, write in owed.items():
            if self._directory.exists():
                self.write(what, write)
