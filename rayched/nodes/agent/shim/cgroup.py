"""The cgroup of one attempt of a container, of the second version: who is in it, and the end of all of them at a stroke."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Final

_CONTROLLERS: Final = "+cpu +memory +pids"
_OPTIONAL: Final = frozenset({"memory.swap.max", "memory.oom.group"})
"""Files that kernels without swap accounting, or older ones, do not have."""

Limits = Mapping[str, str]
"""What is written, by the name of the file."""


def make(path: str, limits: Limits | None = None, of_pod: Limits | None = None) -> None:
    """The container's cgroup, and its pod's above it. `limits` None: there are no controllers here. Raises OSError."""
    pod = os.path.dirname(path)
    os.makedirs(pod, exist_ok=True)
    if limits is not None:
        _write(pod, "cgroup.subtree_control", _CONTROLLERS)
        _limit(pod, of_pod or {})
    os.makedirs(path, exist_ok=True)
    _limit(path, limits or {})


def _limit(path: str, limits: Limits) -> None:
    for name, value in limits.items():
        try:
            _write(path, name, value)
        except OSError:
            if name not in _OPTIONAL:
                raise


def _write(path: str, name: str, value: str) -> None:
    with open(os.path.join(path, name), "w", encoding="ascii") as file:
        file.write(value)


def out_of_memory_kills(path: str) -> int:
    """Processes in it that the kernel has killed as they had more memory than their limit; 0: nobody counts them."""
    try:
        with open(os.path.join(path, "memory.events"), encoding="ascii") as file:
            counts = dict(line.split() for line in file)
    except OSError:
        return 0
    return int(counts.get("oom_kill", 0))


def enter(path: str) -> None:
    """This process, before anything of the container runs."""
    with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as file:
        file.write("0")


def members(path: str) -> list[int]:
    """Also of what was made below it; none where it is gone. The kernel writes 0 for a process that this one cannot see, and
    who kills 0 kills itself."""
    found: list[int] = []
    for one, _, _ in os.walk(path):
        with contextlib.suppress(OSError), open(os.path.join(one, "cgroup.procs"), encoding="ascii") as file:
            found += filter(None, map(int, file))
    return found


def kill(path: str) -> None:
    with contextlib.suppress(OSError), open(os.path.join(path, "cgroup.kill"), "w", encoding="ascii") as file:
        file.write("1")


def remove(path: str) -> None:
    """It with what was made below it, and the pod's where it was the last one of that."""
    for one in (*(below for below, _, _ in os.walk(path, topdown=False)), os.path.dirname(path)):
        with contextlib.suppress(OSError):
            os.rmdir(one)
