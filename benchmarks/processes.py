"""CPU time and memory of processes, as the kernel counts them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_LOOK_SECONDS: Final = 0.05
_QUIET_LOOKS: Final = 10


class Memory(NamedTuple):
    """In bytes."""

    resident: int
    """Mapped and present, pages shared with other processes included."""
    unique: int
    """What would be free if the process ended."""


def memory_of(pid: int) -> Memory:
    """At present. Raises ProcessLookupError for a process that is gone."""
    sizes = memory_sizes(pid)
    if not sizes:
        raise ProcessLookupError(f"process {pid} is gone")
    return Memory(sizes["Rss"], sizes["Private_Clean"] + sizes["Private_Dirty"])


def memory_sizes(pid: int) -> dict[str, int]:
    """In bytes, by the kernel's name: Rss, Pss (what it has to itself, and its share of what it has with others), Pss_Anon, ...;
    empty for a process that is gone."""
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: int(rest.split()[0]) << 10 for name, rest in (row.split(":", 1) for row in rows)}


def resident_bytes(pid: int) -> int:
    """As `Memory.resident`, without the walk over all pages that tells the rest; 0 for a process that is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def cpu_seconds(pid: int) -> float:
    """Time that all threads of a process have run so far, in the kernel and outside; those that have ended are left out."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        # In ticks of 10 ms, as /proc/PID/stat has it, short runs could not be told apart.
        with contextlib.suppress(FileNotFoundError):
            found += int((task / "schedstat").read_text().split()[0])
    return found / 1e9


def all_cpu_seconds(pid: int) -> float:
    """As `cpu_seconds`, with the threads that have ended; in steps of 10 ms. 0 for a process that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def is_running(pid: int) -> bool:
    """A thread of the process runs, or would if a processor were free."""
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                if (task / "stat").read_text().rpartition(")")[2].split()[0] == "R":
                    return True
    return False


def wait_until_quiet(pids: Sequence[int], seconds: float) -> bool:
    """Until none of the processes has had anything to do for a while; False where the time was over before."""
    deadline = time.monotonic() + seconds
    looks = 0
    while looks < _QUIET_LOOKS:
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
        # Now and then a thread looks around in an idle process too; two at once are work.
        looks = looks + 1 if sum(map(is_running, pids)) < 2 else 0
    return True


def peak_memory_bytes(pid: int | None = None) -> int:
    """The largest resident size of a process so far; None: of this one."""
    for row in Path(f"/proc/{pid or 'self'}/status").read_text().splitlines():
        if row.startswith("VmHWM:"):
            return int(row.split()[1]) << 10
    return 0
