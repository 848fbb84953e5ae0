"""What `make soak` samples: memory, file descriptors and threads of processes, keys and bytes of etcd, pods, latencies. Linux.

Memory is what a process has to itself, heaps and stacks, with its share of what it shares (PSS of anonymous pages). Pages of
files are the kernel's to take back: etcd maps its whole database, and that would make its memory a picture of the disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.processes import memory_sizes
from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.replica.ray.processes import descendants
from rayched.store.io.client import StoreClient
from rayched.store.keys import Keys, prefix_end

_ANSWER_SECONDS_MAX: Final = 30.0


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process at one moment. Bytes."""

    name: str
    """What it is: replica, SchedulerActor, raylet, etcd."""
    replica: int | None
    pid: int
    memory: int
    """PSS of anonymous pages."""
    resident: int
    pss: int
    fds: int
    threads: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment of a soak. Counts are sums from the beginning; seconds since then."""

    seconds: float
    leader: int | None
    """The leading replica's number; None: nobody led."""
    kills: int
    epochs: int
    submitted: int
    refused: int
    created: int
    bound: int
    removed: int
    removed_unbound: int
    present: int
    waiting: int
    p50: float | None
    """Seconds from creation to binding, of pods bound since the last sample; None: there were none."""
    p99: float | None
    cluster_keys: int
    """What schedulers follow: pods, nodes, everything but what follows here."""
    event_keys: int
    record_keys: int
    """Of submissions."""
    other_keys: int
    in_use: int
    """Bytes of etcd."""
    file: int
    disk: int
    """All files in its directory: logs and snapshots too."""
    processes: Sequence[ProcessSample] = field(default=())

    @property
    def keys(self) -> int:
        return self.cluster_keys + self.event_keys + self.record_keys + self.other_keys

    def memory_of(self, name: str) -> int:
        """Bytes of all processes of that name."""
        return sum(one.memory for one in self.processes if one.name == name)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of_json(row: Mapping[str, Any]) -> Sample:
        """Raises TypeError, KeyError where it is none."""
        return Sample(**{**row, "processes": [ProcessSample(**one) for one in row["processes"]]})


def process_sample(pid: int, name: str, replica: int | None) -> ProcessSample | None:
    """None for a process that is gone."""
    directory = Path(f"/proc/{pid}")
    try:
        sizes = memory_sizes(pid)
        fds = len(os.listdir(directory / "fd"))
        threads = len(os.listdir(directory / "task"))
    except OSError:
        return None
    return ProcessSample(name, replica, pid, sizes["Pss_Anon"], sizes["Rss"], sizes["Pss"], fds, threads) if sizes else None


def tree_samples(pid: int, replica: int) -> list[ProcessSample]:
    """A replica's process and all below it."""
    found = [process_sample(pid, "replica", replica)]
    for below in descendants(pid):
        name = process_name(below)
        if name:
            found.append(process_sample(below, name, replica))
    return [one for one in found if one is not None]


def process_name(pid: int) -> str:
    """What Ray and the kernel call it, in short; "" for one that is gone or a zombie."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
        return short_name(words)
    return ""


def short_name(words: Sequence[str]) -> str:
    """Of a command line: Ray's title of a worker without its method, the module or script of an interpreter, or the program."""
    title = words[0]
    if title.startswith("ray::"):
        return title.removeprefix("ray::").split(".")[0].split(" ")[0].split("(")[0]
    program = title.split(" ")[0].rpartition("/")[2]
    if not program.startswith("python"):
        return program
    for number, word in enumerate(words[1:], 1):
        if word == "-m" and number + 1 < len(words):
            return words[number + 1].rpartition(".")[2]
        if word == "-c":
            return "python -c"
        if not word.startswith("-"):
            return word.rpartition("/")[2].removesuffix(".py")
    return program


@dataclass(frozen=True, slots=True)
class EtcdSample:
    cluster_keys: int
    event_keys: int
    record_keys: int
    other_keys: int
    in_use: int
    file: int
    disk: int


class EtcdGauge:
    """Counts keys and bytes; over a connection of its own each time, so that it holds none."""

    def __init__(self, endpoints: Sequence[str], directory: Path) -> None:
        self._endpoints = tuple(endpoints)
        self._directory = directory
        self._keys = Keys()

    def sample(self) -> EtcdSample:
        """Raises grpc.RpcError, StoreError."""
        keys = self._keys
        with open_channel(self._endpoints) as channel:
            count = rpc.KVStub(channel).Range

            def keys_below(prefix: bytes) -> int:
                request = rpc.RangeRequest(key=prefix, range_end=prefix_end(prefix), count_only=True)
                return int(count(request, timeout=_ANSWER_SECONDS_MAX).count)

            cluster, events = keys_below(keys.cluster_prefix), keys_below(keys.events_prefix)
            records = keys_below(keys.submissions_prefix)
            everything = keys_below(keys.root.encode() + b"/")
            status = StoreClient(channel).status()
        disk = sum(_size(path) for path in self._directory.rglob("*"))
        other = everything - cluster - events - records
        return EtcdSample(cluster, events, records, other, status.in_use_bytes, status.database_bytes, disk)


def _size(path: Path) -> int:
    """What it takes of the disk: etcd allots its log ahead."""
    try:
        found = path.stat()
    except OSError:
        return 0
    return found.st_blocks * 512 if path.is_file() else 0
