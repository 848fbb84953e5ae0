"""What is available on the machine, from the texts of its files. Pure.

The working set is what could not be given back at once: without memory cgroups the same sum that kubelet takes from memory.stat
is in /proc/meminfo. Slab and other memory of the kernel are in neither, and a file that is used often counts as used.
"""

from __future__ import annotations

import os
from typing import Final

_WORKING: Final = ("AnonPages", "Cached", "Buffers", "SwapCached")


def meminfo(text: str) -> tuple[int, int]:
    """(capacity, working set) in bytes, from /proc/meminfo."""
    values = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if rest:
            values[name] = int(rest.split()[0]) << 10
    used = sum(values[name] for name in _WORKING) - values["Inactive(file)"]
    return values["MemTotal"], max(used, 0)


def working_set(memory_current: str, memory_stat: str) -> int:
    """Of one cgroup."""
    return max(int(memory_current) - _flat(memory_stat)["inactive_file"], 0)


def tasks(loadavg: str) -> int:
    """Processes and their threads, from /proc/loadavg."""
    return int(loadavg.split()[3].partition("/")[2])


def disk(found: os.statvfs_result) -> tuple[int, int, int, int]:
    """(available bytes, bytes, free inodes, inodes); a file system that has no inodes says 0 of them."""
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, found.f_ffree, found.f_files


def _flat(text: str) -> dict[str, int]:
    return {name: int(number) for name, _, number in (line.partition(" ") for line in text.splitlines()) if number}
