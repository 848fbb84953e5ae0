"""CPU time and memory of processes, as the kernel counts them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple


class Memory(NamedTuple):
    """In bytes."""

    resident: int
    """Mapped and present, pages shared with other processes included."""
    unique: int
    """What would be free if the process ended."""


def memory_of(pid: int) -> Memory:
    """At present."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {name: int(rest.split()[0]) << 10 for name, rest in (row.split(":", 1) for row in rows)}
    return Memory(sizes["Rss"], sizes["Private_Clean"] + sizes["Private_Dirty"])


def cpu_seconds(pid: int) -> float:
    """Time that all threads of a process have run so far, in the kernel and outside; those that have ended are left out."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        # In ticks of 10 ms, as /proc/PID/stat has it, short runs could not be told apart.
        with contextlib.suppress(FileNotFoundError):
            found += int((task / "schedstat").read_text().split()[0])
    return found / 1e9


def peak_memory_bytes(pid: int | None = None) -> int:
    """The largest resident size of a process so far; None: of this one."""
    for row in Path(f"/proc/{pid or 'self'}/status").read_text().splitlines():
        if row.startswith("VmHWM:"):
            return int(row.split()[1]) << 10
    return 0
