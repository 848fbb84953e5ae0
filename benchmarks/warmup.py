"""`make warmup`: how soon a new leader decides, and what its scheduler takes of the memory, on a cluster that is full of pods.

etcd is filled with nodes and bound pods, then two replicas start on it, and pods are submitted at a steady rate. Then, some
times,

* the leading replica is told to stop, and the other one, whose scheduler stands warm, takes over;
* the leader's SchedulerActor is killed. In a small cluster its replica's spare process takes its place and reads the cluster;
  where that would take long, the replica stands down and the other one takes over.

What is measured is the time from the new epoch, as a watch on etcd shows it, to the first binding under it: what is left to be
done at a takeover. `whole pause` begins at the signal.

Memory is told of the leader's SchedulerActor: resident, and unique to the process (USS), beside those of the spare process, which
has loaded all modules, runs under Ray as the other does, and holds no cluster. Exit code 1 where a bound is exceeded.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from benchmarks import shapes
from benchmarks.load import SteadyLoad, small_pods
from benchmarks.measured import MIB
from benchmarks.processes import Memory, memory_of
from leader.channel import open_channel
from rayched.api import kinds
from rayched.api.kinds import AnyObject
from rayched.cli.cluster.rehearsal import scratch_directory
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.replica.cluster.local_cluster import LocalCluster, ReplicaFailed
from rayched.replica.cluster.local_start import wait_until_up
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.store.codec import encode
from rayched.store.entries import Entry
from rayched.store.io.client import StoreClient
from rayched.store.io.watcher import Watcher
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Changed, Delivery
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import Stored

TAKEOVER_SECONDS_MAX: Final = 0.3
SCHEDULER_MIB_MAX: Final = 400.0
_RATE: Final = 200.0
_WAIT_SECONDS_MAX: Final = 300.0
_WRITES_AT_ONCE: Final = 128
_MEASURED: Final = frozenset(("scheduler", "queue", "spare", "replica"))
"""Processes whose memory is told."""
STANDBY: Final = "standby"
KILLED: Final = "killed scheduler"
_NO_HEARTBEATS: Final = ("--node-monitor-grace-period", "24h")


R = TypeVar("R")


class NoBinding(Exception):
    """Nothing was bound in time: one line."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """Seconds."""

    kind: str
    after_epoch: float
    """From the new epoch to the first binding under it."""
    pause: float
    """From the signal to that binding."""


class EpochWatch:
    """When each epoch and the first binding under it were seen, by the monotonic clock."""

    def __init__(self, endpoint: str, keys: Keys) -> None:
        self._keys = keys
        self._channel = open_channel((endpoint,))
        self._changed = threading.Condition()
        self.epoch = 0
        self._began: dict[int, float] = {}
        self._bound: dict[int, float] = {}
        self._watcher = Watcher(self._channel, keys.cluster_prefix, self._watched)
        self._watcher.start()

    def first_binding_after(self, epoch: int) -> tuple[float, float]:
        """When the next epoch that bound something began, and when it bound. Raises NoBinding."""
        with self._changed:
            if not self._changed.wait_for(lambda: any(one > epoch for one in self._bound), _WAIT_SECONDS_MAX):
                raise NoBinding(f"no pod was bound under an epoch after {epoch} for {_WAIT_SECONDS_MAX:.0f} s")
            found = min(one for one in self._bound if one > epoch)
            return self._began[found], self._bound[found]

    def stop(self) -> None:
        self._watcher.stop()
        self._channel.close()

    def _watched(self, delivery: Delivery) -> None:
        if not isinstance(delivery, Changed):
            return
        now = time.monotonic()
        with self._changed:
            for change in delivery.changes:
                if not isinstance(change, Entry):
                    continue
                if change.key == self._keys.epoch:
                    self.epoch = change.mod_revision
                    self._began.setdefault(self.epoch, now)
                elif self.epoch and self.epoch not in self._bound and change.mod_revision != change.create_revision:
                    stored = Stored.FromString(change.value)
                    if stored.object.pod.spec.node_name and stored.leader_write.epoch == self.epoch:
                        self._bound[self.epoch] = now
                        self._changed.notify_all()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make warmup", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--stops", type=int, default=3, help="of the leading replica")
    parser.add_argument("--kills", type=int, default=3, help="of the leader's scheduler")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args(arguments)
    try:
        figures = run(options.nodes, options.pods, options.stops, options.kills)
    except (NoBinding, ReplicaFailed, ApiError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    text = json.dumps(figures)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n")
    for missed in figures["wrong"]:
        print(f"error: {missed}", file=sys.stderr)
    return 1 if figures["wrong"] else 0


def run(nodes: int, pods: int, stops: int, kills: int) -> dict[str, Any]:
    """The figures of one cluster. Raises NoBinding, ReplicaFailed, ApiError."""
    keys = Keys()
    with scratch_directory("warmup") as directory, _filled_etcd(directory, keys, nodes, pods) as endpoint:
        options = list(_NO_HEARTBEATS)
        with LocalCluster(directory, 2, etcd_endpoints=(endpoint,), options=options) as cluster:
            client = Client(cluster.addresses, timeout_seconds=30.0)
            watch = EpochWatch(endpoint, keys)
            load: SteadyLoad | None = None
            try:
                _wait_until_warm(cluster, client)
                load = SteadyLoad(client, small_pods("steady"), _RATE, batch=2).start()
                takeovers = [_takeover(cluster, client, watch, kind) for kind in [STANDBY] * stops + [KILLED] * kills]
                _wait_until_warm(cluster, client)
                memory = _memory(client)
            finally:
                if load is not None:
                    load.stop()
                watch.stop()
                client.close()
    return _figures(nodes, pods, takeovers, memory)


def _figures(nodes: int, pods: int, takeovers: Sequence[Takeover], memory: dict[str, Memory]) -> dict[str, Any]:
    found: dict[str, Any] = {"nodes": nodes, "bound_pods": pods}
    for kind in dict.fromkeys(one.kind for one in takeovers):
        these = [one for one in takeovers if one.kind == kind]
        name = kind.replace(" ", "_")
        found[f"{name}_seconds_after_epoch"] = [round(one.after_epoch, 3) for one in these]
        found[f"{name}_seconds_whole_pause"] = [round(one.pause, 3) for one in these]
    found["memory_mib"] = {
        name: {"resident": round(one.resident / MIB, 1), "unique": round(one.unique / MIB, 1)} for name, one in memory.items()
    }
    wrong = []
    for kind in dict.fromkeys(one.kind for one in takeovers):
        median = statistics.median(one.after_epoch for one in takeovers if one.kind == kind)
        if median > TAKEOVER_SECONDS_MAX:
            wrong.append(f"{kind}: the first binding came {median:.2f} s after the epoch, {TAKEOVER_SECONDS_MAX} are allowed")
    resident = memory["scheduler"].resident / MIB
    if resident > SCHEDULER_MIB_MAX:
        wrong.append(f"the scheduler takes {resident:.0f} MiB, {SCHEDULER_MIB_MAX:.0f} are allowed")
    return found | {"wrong": wrong}


def _takeover(cluster: LocalCluster, client: Client, watch: EpochWatch, kind: str) -> Takeover:
    """One fault on the leader, all replicas being warm."""
    _wait_until_warm(cluster, client)
    led = _asked(client.leader)
    pids = _pids(client, _MEASURED if kind == KILLED else frozenset())
    leader = cluster.replica_at(led.address)
    since = time.monotonic()
    if kind == STANDBY:
        leader.signal(signal.SIGTERM)
    else:
        os.kill(pids["scheduler"], signal.SIGKILL)
    began, bound = watch.first_binding_after(led.epoch)
    if kind == STANDBY:
        leader.wait(_WAIT_SECONDS_MAX)
        leader.start()
    return Takeover(kind, bound - began, bound - since)


def _wait_until_warm(cluster: LocalCluster, client: Client) -> None:
    """Both replicas have read the cluster: longer than for an empty one. Raises ReplicaFailed."""
    wait_until_up(cluster, client, _WAIT_SECONDS_MAX)


def _memory(client: Client) -> dict[str, Memory]:
    """Of the leader's processes, once there is a spare one."""
    pids = _pids(client, _MEASURED)
    return {name: memory_of(pids[name]) for name in sorted(_MEASURED)}


def _pids(client: Client, wanted: Set[str]) -> dict[str, int]:
    """Of the leader's processes, once these are there. Raises NoBinding."""
    deadline = time.monotonic() + _WAIT_SECONDS_MAX
    while not (pids := dict(_asked(client.scheduler_status).pids)).keys() >= wanted:
        if time.monotonic() > deadline:
            raise NoBinding(f"of {sorted(wanted)} there are only {sorted(wanted & pids.keys())} after {_WAIT_SECONDS_MAX:.0f} s")
        time.sleep(0.1)
    return pids


def _asked(question: Callable[[], R]) -> R:
    """The answer, once somebody leads. Raises ApiError."""
    deadline = time.monotonic() + _WAIT_SECONDS_MAX
    while True:
        try:
            return question()
        except ApiError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


@contextmanager
def _filled_etcd(directory: Path, keys: Keys, nodes: int, pods: int) -> Iterator[str]:
    """An etcd with so many nodes, and so many pods on them in turn."""
    etcd = EtcdServer(directory / "etcd")
    etcd.start()
    try:
        with open_channel((etcd.endpoint,)) as channel:
            store = StoreClient(channel)
            batch: list[tuple[bytes, bytes]] = []
            for item in _objects(nodes, pods):
                kind = kinds.of_message(item)
                batch.append((keys.object_key(kind, item.metadata.namespace, item.metadata.name), encode(kinds.wrap(item))))
                if len(batch) == _WRITES_AT_ONCE:
                    store.put_many(batch)
                    batch.clear()
            if batch:
                store.put_many(batch)
        yield etcd.endpoint
    finally:
        etcd.stop()


def _objects(nodes: int, pods: int) -> Iterator[AnyObject]:
    for place, node in enumerate(shapes.nodes_of_three_zones(nodes)):
        node.metadata.uid = f"node-{place}"
        yield node
    template = shapes.template("default", "default")
    for number in range(pods):
        pod = Pod()
        pod.CopyFrom(template)
        shapes.named(pod, f"bound-{number}")
        pod.spec.node_name, pod.status.phase = f"node-{number % nodes}", "Running"
        yield pod


if __name__ == "__main__":
    sys.exit(main())
