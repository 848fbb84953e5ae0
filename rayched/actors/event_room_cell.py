"""Whether etcd has room for Events, in a file that both processes map: the replica looks at etcd, the scheduler writes.

A byte, 0 where there is room. Cost: 0.2 µs a look.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Final, Self

NAME: Final = "event-room"
_SIZE: Final = 4096


class EventRoomCell:
    """Mapped by each of the two; whoever comes first makes it, and then there is room."""

    def __init__(self, mapping: mmap.mmap) -> None:
        self._mapping = mapping

    @classmethod
    def at(cls, directory: Path) -> Self:
        """Raises OSError, as where the file system has no room."""
        path = directory / NAME
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _SIZE)
            return cls(mmap.mmap(descriptor, _SIZE))
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        finally:
            os.close(descriptor)

    def write(self, has_room: bool) -> None:
        """For the replica alone."""
        self._mapping[0] = 0 if has_room else 1

    def read(self) -> bool:
        return not self._mapping[0]
