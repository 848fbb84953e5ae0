"""What the node and its pods use, from /proc and the file systems. It blocks, and belongs into a thread of its own.

Memory of processes is first Σ(RssAnon + RssShmem), which counts what forked workers share once for each of them. Where that would
decide something, `exact` asks for proportional shares, which take longer. Where the kernel counts memory by cgroup, a container's
is the working set of its own.

Bounded mode: the node is smaller than the machine, and what counts is the agent, its shims and its pods alone; so several nodes
can share a host.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rayched.nodes.agent.eviction.machine_figures import disk, meminfo, tasks, working_set
from rayched.nodes.agent.eviction.ranking import DiskUsage
from rayched.nodes.agent.eviction.signals import Signal, SignalObservation
from rayched.nodes.agent.shim import proc_table

_ROUGH: Final = (b"RssAnon", b"RssShmem")
_EXACT: Final = (b"Pss_Anon", b"Pss_Shmem")
_BLOCK: Final = 512


@dataclass(frozen=True, slots=True)
class NodeBounds:
    """Of bounded mode: bytes, tasks, bytes. None: what the machine has."""

    memory: int | None = None
    pids: int | None = None
    disk: int | None = None


@dataclass(frozen=True, slots=True)
class PodPlace:
    """Where to look for a pod. `shim` None: it has none."""

    uid: str
    directory: Path
    logs: Path
    shim: int | None


@dataclass(slots=True)
class PodFigures:
    """What one pod uses. Bytes by container; of `disk` and `inodes` the whole pod."""

    memory: dict[str, int] = field(default_factory=dict)
    tasks: int = 0
    disk: DiskUsage = field(default_factory=DiskUsage)
    inodes: DiskUsage = field(default_factory=DiskUsage)
    volumes: dict[str, int] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    """Working directory and logs by container."""
    shim_memory: int = 0


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """One look at all of it."""

    seen: Mapping[Signal, SignalObservation]
    pods: Mapping[str, PodFigures]


class NodeStats:
    """Looks at one node."""

    def __init__(self, root: Path, bounds: NodeBounds, allocatable_memory: int, cgroups: Path | None = None) -> None:
        """`allocatable_memory`: what pods may have together, without the threshold. `cgroups`: where they have those that count
        memory; None: nowhere."""
        self._root = root
        self._cgroups = cgroups
        self._bounds = bounds
        self._allocatable_memory = allocatable_memory
        self._pods: Mapping[str, PodFigures] = {}
        self._disk: Mapping[Signal, SignalObservation] = {}
        """Both of the last look."""

    def look(self, places: Iterable[PodPlace], at: float, *, exact: bool = False, files: bool = True) -> NodeFigures:
        """`files` False: disk is as at the last look, observed then; the files of pods that were not there are counted all the
        same."""
        known = {} if files else self._pods
        self._pods = pods = {place.uid: self._pod(place, known.get(place.uid), exact=exact) for place in places}
        if files:
            self._disk = self.disk(pods.values(), at)
        used = sum(sum(pod.memory.values()) for pod in pods.values())
        seen = {
            Signal.MEMORY: self._memory(used + sum(pod.shim_memory for pod in pods.values()), at),
            Signal.ALLOCATABLE_MEMORY: _observed(self._allocatable_memory, used, at),
            Signal.PID: self._pids(sum(pod.tasks for pod in pods.values()), at),
            **self._disk,
        }
        return NodeFigures(seen, pods)

    def disk(self, pods: Iterable[PodFigures], at: float) -> dict[Signal, SignalObservation]:
        available, capacity, inodes_free, inodes = disk(os.statvfs(self._root))
        if self._bounds.disk is not None:
            used = sum(pod.disk.volumes + pod.disk.logs + pod.disk.writable for pod in pods)
            available, capacity = max(self._bounds.disk - used, 0), self._bounds.disk
        found = {signal: SignalObservation(available, capacity, at) for signal in (Signal.NODE_FS, Signal.IMAGE_FS)}
        if inodes:
            found[Signal.NODE_FS_INODES] = SignalObservation(inodes_free, inodes, at)
            found[Signal.IMAGE_FS_INODES] = found[Signal.NODE_FS_INODES]
        return found

    def _memory(self, used: int, at: float) -> SignalObservation:
        if self._bounds.memory is not None:
            return _observed(self._bounds.memory, used + _memory_of(os.getpid(), _ROUGH), at)
        capacity, working_set = meminfo(Path("/proc/meminfo").read_text(encoding="ascii"))
        return _observed(capacity, working_set, at)

    def _pids(self, used: int, at: float) -> SignalObservation:
        if self._bounds.pids is not None:
            return _observed(self._bounds.pids, used, at)
        most = min(int(Path(f"/proc/sys/kernel/{name}").read_text()) for name in ("pid_max", "threads-max"))
        return _observed(most, tasks(Path("/proc/loadavg").read_text()), at)

    def _pod(self, place: PodPlace, known: PodFigures | None, *, exact: bool) -> PodFigures:
        """`known`: what it has on disk; None: that is counted."""
        found = PodFigures()
        names = _EXACT if exact else _ROUGH
        if place.shim is not None:
            found.shim_memory = _memory_of(place.shim, _ROUGH)
            for pid in proc_table.tree_of(place.shim)[1:]:
                found.tasks += _tasks_of(pid)
                name = proc_table.environment_of(pid).get(proc_table.CONTAINER_VARIABLE, "")
                found.memory[name] = found.memory.get(name, 0) + _memory_of(pid, names)
        if self._cgroups is not None:
            found.memory |= _counted(self._cgroups / place.uid)
        if known is None:
            self._files(place, found)
        else:
            found.disk, found.inodes, found.volumes, found.files = known.disk, known.inodes, known.volumes, known.files
        return found

    def _files(self, place: PodPlace, found: PodFigures) -> None:
        sizes = {"volumes": [0, 0], "logs": [0, 0], "writable": [0, 0]}
        for kind, directories in (
            ("volumes", _children(place.directory / "volumes")),
            ("writable", _children(place.directory / "containers")),
            ("logs", _children(place.logs)),
        ):
            for directory in directories:
                n_bytes, n_files = _walked(directory)
                sizes[kind][0] += n_bytes
                sizes[kind][1] += n_files
                named = found.volumes if kind == "volumes" else found.files
                named[directory.name] = named.get(directory.name, 0) + n_bytes
        found.disk = DiskUsage(**{kind: size[0] for kind, size in sizes.items()})
        found.inodes = DiskUsage(**{kind: size[1] for kind, size in sizes.items()})


def _observed(capacity: int, used: int, at: float) -> SignalObservation:
    return SignalObservation(max(capacity - used, 0), capacity, at)


def resident_memory(pid: int) -> int:
    """Bytes of its own and of what it shares in memory; of a process that has ended none."""
    return _memory_of(pid, _ROUGH)


def _memory_of(pid: int, names: Sequence[bytes]) -> int:
    """Bytes; of a process that has ended meanwhile none."""
    try:
        with open(f"/proc/{pid}/{'smaps_rollup' if names is _EXACT else 'status'}", "rb") as file:
            text = file.read()
    except OSError:
        return 0
    return sum(_kib(text, name) for name in names) << 10


def _kib(text: bytes, name: bytes) -> int:
    """Of the line with that name; 0: there is none, as of a zombie."""
    at = text.find(b"\n" + name + b":")
    return int(text[at + len(name) + 2 : text.index(b"kB", at)]) if at >= 0 else 0


def _counted(pod: Path) -> dict[str, int]:
    """Working sets by container, from the cgroups of a pod; of what is gone meanwhile none."""
    found: dict[str, int] = {}
    for one in _children(pod):
        container = one.name.rpartition("-")[0]
        try:
            current, stat = (one / "memory.current").read_text(), (one / "memory.stat").read_text()
        except OSError:
            continue
        found[container] = found.get(container, 0) + working_set(current, stat)
    return found


def _tasks_of(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def _children(directory: Path) -> list[Path]:
    try:
        with os.scandir(directory) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _walked(directory: Path) -> tuple[int, int]:
    """(bytes on disk, files and directories); what goes meanwhile, and what cannot be read, counts for nothing."""
    n_bytes = n_files = 0
    waiting = [str(directory)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    n_bytes += found.st_blocks * _BLOCK
                    n_files += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue
    return n_bytes, n_files
