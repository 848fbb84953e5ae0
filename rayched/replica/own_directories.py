"""Directories of one process that live outside its data directory: in memory for the belief cell, below /tmp for Ray's sockets.

A process that is killed cannot clear up. So each directory is locked (flock) by its owner for as long as that lives, and whoever
makes a new one removes those that nobody has locked. A process's number would not do: containers may share /tmp or /dev/shm, and
not their numbers. A directory has its final name only once it is locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
SHORT: Final = Path("/tmp")
"""Unix sockets lie below it, and their path may be no longer than 107 bytes."""
_NAME: Final = re.compile(r"\.?rayched-(\d+)-\w+")
"""With the pid for people; a dot in front until it is locked."""
_DRAFT_SECONDS_MAX: Final = 60.0

_guard: Final = threading.Lock()
_held: Final[dict[Path, int]] = {}
"""What this process has made, and the locked descriptors."""


def make_own_directory(parent: Path) -> Path:
    """A new, private directory below `parent`."""
    remove_left_behind(parent)
    draft = Path(tempfile.mkdtemp(prefix=f".rayched-{os.getpid()}-", dir=parent))
    descriptor = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    path = draft.rename(draft.with_name(draft.name[1:]))
    with _guard:
        _held[path] = descriptor
    return path


def remove_own_directory(path: Path) -> None:
    """Of this process, with all in it. Idempotent."""
    with _guard:
        descriptor = _held.pop(path, None)
    shutil.rmtree(path, ignore_errors=True)
    if descriptor is not None:
        os.close(descriptor)


def remove_own() -> None:
    """Removes what this process has made, where it has no time to do so where it was made."""
    for path in tuple(_held):
        remove_own_directory(path)


def remove_left_behind(parent: Path) -> None:
    """Removes what processes of this user left below `parent` that are no more."""
    for path in (*parent.glob("rayched-*-*"), *parent.glob(".rayched-*-*")):
        if _NAME.fullmatch(path.name) is not None:
            with _locked_of_ours(path) as is_left_behind:
                if is_left_behind:
                    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _locked_of_ours(path: Path) -> Iterator[bool]:
    """Whether it is a directory of this user that nobody else has locked; locked by us meanwhile."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # gone, a link, or another user's
        yield False
        return
    try:
        found = os.fstat(descriptor)
        # One that is just being made is not locked yet.
        is_new = path.name.startswith(".") and time.time() - found.st_mtime < _DRAFT_SECONDS_MAX
        yield found.st_uid == os.getuid() and not is_new and try_lock(descriptor)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Lock the file; False: another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
