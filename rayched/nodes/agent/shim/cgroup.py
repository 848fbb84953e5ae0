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
    """Also of what was made below it; none where it is gone."""
    found: list[int] = []
    for one, _, _ in os.walk(path):
        with contextlib.suppress(OSError), open(os.path.join(one, "cgroup.procs"), encoding="ascii") as file:
            found += map(int, file)
    return found


def kill(path: str) -> None:
    with contextlib.suppress(OSError), open(os.path.join(path, "cgroup.kill"), "w", encoding="ascii") as file:
        file.write("1")


def remove(path: str) -> None:
    """It with what was made below it, and the pod's where it was the last one of that."""
    for one in (*(below for below, _, _ in os.walk(path, topdown=False)), os.path.dirname(path)):
        with contextlib.suppress(OSError):
            os.rmdir(one)
