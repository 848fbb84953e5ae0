"""What `make idle` counts of processes that wait: time of the processor, memory, and how often their threads are woken. Linux.

A look walks through the trees of processes once. What a process has used is its last value less that of the first look, or all
of it where it began later; so one that ends between two looks keeps what it had at the last one, and one that lives for less
than the time between two looks is not seen.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.processes import all_cpu_seconds, memory_sizes
from benchmarks.soak_samples import short_name
from rayched.replica.ray.processes import descendants

_COMMAND: Final = "main"
"""What `short_name` makes of `python -m rayched.cli.main COMMAND`."""
_AGENTS: Final = ("sh", "sleep")
_SCRIPTS: Final = "scripts"
"""The same of `python -m ray.scripts.scripts start`."""


def kind_of(words: Sequence[str]) -> str:
    """What a process is, by its command line: replica, gateway, guardian, raylet, SchedulerProcess, IDLE, etcd; empty of none."""
    if not words or not words[0]:
        return ""
    name = short_name(words)
    if name == _COMMAND:
        place = words.index("rayched.cli.main") if "rayched.cli.main" in words else -1
        return words[place + 1] if 0 <= place < len(words) - 1 else name
    if name == _SCRIPTS:
        return "ray start"
    return "in place of Ray's agents" if name in _AGENTS else name


@dataclass(slots=True)
class Used:
    """By one process or by several, over some time."""

    processes: int = 0
    """That were there at the end."""
    cpu_seconds: float = 0.0
    pss_bytes: int = 0
    """At the end, as are the threads."""
    threads: int = 0
    switches: int = 0
    """Times that a thread gave up a processor or had it taken away."""

    def add(self, other: Used) -> None:
        self.processes += other.processes
        self.cpu_seconds += other.cpu_seconds
        self.pss_bytes += other.pss_bytes
        self.threads += other.threads
        self.switches += other.switches


@dataclass(slots=True)
class _Seen:
    """One process, from the first look that found it to the last."""

    kind: str
    began_at: str
    """In ticks since the host was started: with the pid it names one process for good."""
    first_cpu_seconds: float
    cpu_seconds: float
    first_switches: dict[int, int]
    """By thread."""
    alive: bool = True


@dataclass(slots=True)
class ProcessWatch:
    """Looks at the trees below some processes, these included. Each look costs some 50 µs a process."""

    roots: tuple[int, ...]
    _seen: dict[tuple[int, str], _Seen] = field(default_factory=dict)
    _has_looked: bool = False

    def pids(self) -> frozenset[int]:
        """Of the processes that are there."""
        return frozenset(pid for root in self.roots for pid in (root, *descendants(root)) if _began_at(pid))

    def look(self) -> None:
        """The first one says what each process had used before."""
        for one in self._seen.values():
            one.alive = False
        for pid in self.pids():
            began_at, cpu_seconds = _began_at(pid), all_cpu_seconds(pid)
            found = self._seen.get((pid, began_at))
            if found is None:
                first = (cpu_seconds, switches_of(pid)) if not self._has_looked else (0.0, {})
                found = self._seen[pid, began_at] = _Seen("", began_at, first[0], cpu_seconds, first[1])
            # A process is forked as one thing and executes another; Ray names its workers by what they do.
            found.kind = kind_of(_words(pid)) or found.kind
            # One that has just ended shows nothing.
            found.cpu_seconds, found.alive = max(found.cpu_seconds, cpu_seconds), True
        self._has_looked = True

    def used(self) -> dict[str, Used]:
        """By kind, most of the processor's time first, since the first look; looks once more."""
        self.look()
        found: defaultdict[str, Used] = defaultdict(Used)
        for (pid, _), one in self._seen.items():
            used = Used(cpu_seconds=one.cpu_seconds - one.first_cpu_seconds)
            if one.alive:
                switches = switches_of(pid)
                used.processes, used.pss_bytes, used.threads = 1, memory_sizes(pid).get("Pss", 0), len(switches)
                used.switches = sum(count - one.first_switches.get(thread, 0) for thread, count in switches.items())
            found[one.kind].add(used)
        return dict(sorted(found.items(), key=lambda pair: (-pair[1].cpu_seconds, pair[0])))

    def threads(self) -> list[tuple[str, str, int]]:
        """Kind, name of a thread, and how often all of that name were woken since the first look; most of it first."""
        found: defaultdict[tuple[str, str], int] = defaultdict(int)
        for (pid, _), one in self._seen.items():
            for thread, count in switches_of(pid).items() if one.alive else ():
                name = _text(Path(f"/proc/{pid}/task/{thread}/comm")).strip()
                found[one.kind, name] += count - one.first_switches.get(thread, 0)
        return sorted(((*key, count) for key, count in found.items()), key=lambda row: -row[2])


def total(used: Iterable[Used]) -> Used:
    found = Used()
    for one in used:
        found.add(one)
    return found


def switches_of(pid: int) -> dict[int, int]:
    """By thread: how often it has waited for something, or for a processor, so far."""
    found = {}
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            rows = [row.partition(":") for row in _text(task / "status").splitlines()]
            counts = [int(count) for name, _, count in rows if name.endswith("voluntary_ctxt_switches")]
            if counts:
                found[int(task.name)] = sum(counts)
    return found


def busy_seconds() -> float:
    """What all processors of the host have worked so far, whoever for."""
    with open("/proc/stat") as rows:
        user, nice, system, _, _, irq, soft_irq, *_ = (int(ticks) for ticks in rows.readline().split()[1:])
    return (user + nice + system + irq + soft_irq) / os.sysconf("SC_CLK_TCK")


def _began_at(pid: int) -> str:
    """Empty for one that is gone or a zombie."""
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return fields[19] if fields and fields[0] not in "ZX" else ""


def _words(pid: int) -> list[str]:
    return _text(Path(f"/proc/{pid}/cmdline")).rstrip("\0").split("\0")


def _text(path: Path) -> str:
    """Empty where there is nothing to read any more."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
