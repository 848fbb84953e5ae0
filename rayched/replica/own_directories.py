"""Directories of one process that live outside its data directory: in memory for the belief cell, below /tmp for Ray's sockets.

A process that is killed cannot clear up. So each name carries the pid of its owner, and whoever makes a new one removes those of
owners that are gone.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rayched.replica.processes import alive

MEMORY: Final = Path("/dev/shm")
SHORT: Final = Path("/tmp")
"""Unix sockets lie below it, and their path may be no longer than 107 bytes."""
_NAME: Final = re.compile(r"rayched-(\d+)-\w+")


def make_own_directory(parent: Path) -> Path:
    """A new, private directory below `parent`."""
    remove_left_behind(parent)
    return Path(tempfile.mkdtemp(prefix=f"rayched-{os.getpid()}-", dir=parent))


def remove_own(parents: Iterable[Path]) -> None:
    """Removes what this process has made, where it has no time to do so where it was made."""
    for parent in parents:
        for path in parent.glob(f"rayched-{os.getpid()}-*"):
            shutil.rmtree(path, ignore_errors=True)


def remove_left_behind(parent: Path) -> None:
    """Removes what processes of this user left below `parent` that are no more."""
    for path in parent.glob("rayched-*-*"):
        name = _NAME.fullmatch(path.name)
        if name is not None and not path.is_symlink() and not alive(int(name[1])) and _is_ours(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_ours(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.getuid()
    except FileNotFoundError:
        return False
