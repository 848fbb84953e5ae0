"""CPU time and memory of a process and of the machine so far, from /proc. It blocks.

CPU of a process counts that of its children that have ended and were waited for. What nobody waited for is lost
when it ends.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rayched.nodes.agent.eviction.machine_figures import meminfo
from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.stats import resident_memory

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_IDLE: Final = (3, 4)
"""Of /proc/stat: idle, and waiting for disks."""


@dataclass(slots=True)
class ResourceUse:
    cpu_seconds: float = 0.0
    memory_bytes: int = 0

    def add(self, other: ResourceUse) -> None:
        self.cpu_seconds += other.cpu_seconds
        self.memory_bytes += other.memory_bytes


def process_use(pid: int) -> ResourceUse:
    """Of a process that has ended meanwhile none."""
    return ResourceUse(proc_table.cpu_ticks(pid) / _TICKS, resident_memory(pid))


def machine_use() -> ResourceUse:
    """The memory is its working set."""
    first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    ticks = [int(text) for text in first.split()[1:9]]
    _, working_set = meminfo(Path("/proc/meminfo").read_text(encoding="ascii"))
    return ResourceUse(sum(value for place, value in enumerate(ticks) if place not in _IDLE) / _TICKS, working_set)
