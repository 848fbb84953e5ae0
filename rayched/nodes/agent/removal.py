"""Removes directories that pods have filled, whatever they made of them: deep ones, and ones that are closed to their owner."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Final

_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """The directory with all that is in it; no link is followed. Of one that is not there nothing. Raises OSError.

    Directories below are moved up before they are emptied. So neither calls, descriptors nor names grow with their depth.
    """
    try:
        _open_up(str(path), None)
        top = os.open(path, _FLAGS)
    except FileNotFoundError:
        return
    try:
        waiting = _emptied(top, top)
        while waiting:
            name = waiting.pop()
            below = os.open(name, _FLAGS, dir_fd=top)
            try:
                waiting += _emptied(below, top)
            finally:
                os.close(below)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    path.rmdir()


def _emptied(directory: int, top: int) -> list[str]:
    """Removes the files in it and moves its directories into `top`; gives their names there."""
    found = []
    with os.scandir(directory) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in listed:
        if not is_directory:
            os.unlink(name, dir_fd=directory)
            continue
        _open_up(name, directory)
        moved = name if directory == top else uuid.uuid4().hex
        if directory != top:
            os.rename(name, moved, src_dir_fd=directory, dst_dir_fd=top)
        found.append(moved)
    return found


def _open_up(name: str, directory: int | None) -> None:
    """Root needs no permission, and shall change none of what a link may lead to."""
    if os.geteuid() != 0:
        os.chmod(name, 0o700, dir_fd=directory)
