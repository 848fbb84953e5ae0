"""What a cluster on this host keeps between two starts: the data of its etcd and its logs, in one directory.

Certificates and contexts lie elsewhere (local_pki.py), and stay when this is removed: who had access has it again.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_DATABASE: Final = Path("etcd", "member", "snap", "db")
"""etcd holds a lock on it while it runs."""


class StateInUse(Exception):
    """An etcd works on it."""


def state_directory(data_dir: Path) -> Path:
    """Where `rayched up` keeps it, below --data-dir."""
    return data_dir / "up"


def remove_state(directory: Path) -> bool:
    """Whether there was any. Raises StateInUse, and OSError where it cannot be removed."""
    if not directory.exists():
        return False
    with _unused(directory):
        shutil.rmtree(directory)
    return True


def check_unused(directory: Path) -> None:
    """For who asks somebody before it is removed; a cluster may still start meanwhile. Raises StateInUse."""
    with _unused(directory):
        pass


@contextmanager
def _unused(directory: Path) -> Iterator[None]:
    """No etcd starts on it within. Raises StateInUse."""
    database = directory / _DATABASE
    if not database.exists():
        yield
        return
    with database.open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StateInUse(f"a cluster runs on {directory}; end it first, with Ctrl-C where it was started") from error
        yield
