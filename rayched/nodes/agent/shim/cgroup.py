"""The cgroup of one attempt of a container, of the second version: who is in it, and the end of all of them at a stroke."""

from __future__ import annotations

import contextlib
import os


def make(path: str) -> None:
    os.makedirs(path, exist_ok=True)


def enter(path: str) -> None:
    """This process, before anything of the container runs."""
    with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as file:
        file.write("0")


def members(path: str) -> list[int]:
    """None where it is gone."""
    try:
        with open(os.path.join(path, "cgroup.procs"), encoding="ascii") as file:
            return [int(line) for line in file]
    except OSError:
        return []


def kill(path: str) -> None:
    with contextlib.suppress(OSError), open(os.path.join(path, "cgroup.kill"), "w", encoding="ascii") as file:
        file.write("1")


def remove(path: str) -> None:
    """It, and the pod's where it was the last one of that."""
    for one in (path, os.path.dirname(path)):
        with contextlib.suppress(OSError):
            os.rmdir(one)
