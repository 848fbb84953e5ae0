"""The processes of `make flood` beside the cluster's own: clients that submit all at once, and one who notes what etcd shows.

Each runs in an interpreter of its own, so that neither waits for the other. Times are CLOCK_MONOTONIC, which all processes of a
host share. The onlooker has its own connection to etcd and reads what each change says of bindings and epochs, nothing else.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

import grpc

from benchmarks.load import small_pods
from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.api.kinds import POD
from rayched.client.client import Client
from rayched.store.keys import Keys, prefix_end
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import Stored

_SPAWN: Final = multiprocessing.get_context("spawn")
READY_SECONDS_MAX: Final = 60.0


class Binding(NamedTuple):
    """A pod that was seen bound."""

    seconds: float
    epoch: int


class Moment(NamedTuple):
    """From when on somebody, or nobody, waits to be bound."""

    seconds: float
    waiting: bool


@dataclass(slots=True)
class Seen:
    """What the onlooker saw, oldest first."""

    created: int = 0
    bindings: list[Binding] = field(default_factory=list)
    epochs: list[tuple[float, int]] = field(default_factory=list)
    """When each epoch was seen first."""
    moments: list[Moment] = field(default_factory=list)
    """Each binding, and each creation of a pod while no other one waited."""


@dataclass(slots=True)
class Submitted:
    """What one process of clients was answered."""

    acknowledged: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    longest_seconds: float = 0.0
    """From the first attempt of a client to the answer for all that it had to submit."""


class Clients:
    """`clients` clients in `processes` processes, each with its share of the pods; they begin together when told to."""

    def __init__(self, addresses: Sequence[str], clients: int, pods: int, processes: int, timeout_seconds: float) -> None:
        self._ends: list[Connection] = []
        self._processes = []
        for number in range(processes):
            own, other = _SPAWN.Pipe()
            shares = [(f"flood-{client}", _share(pods, clients, client)) for client in range(number, clients, processes)]
            arguments = other, tuple(addresses), shares, timeout_seconds
            process = _SPAWN.Process(target=_submit, args=arguments, daemon=True)
            process.start()
            other.close()
            self._ends.append(own)
            self._processes.append(process)
        for end in self._ends:
            if not end.poll(READY_SECONDS_MAX):
                raise TimeoutError("the clients did not start in time")
            end.recv()

    def begin(self) -> None:
        for end in self._ends:
            end.send(None)

    def wait(self) -> Submitted:
        """Until each client has an answer for each of its pods."""
        found = Submitted()
        for end in self._ends:
            one = end.recv()
            found.acknowledged += one.acknowledged
            found.refused += one.refused
            found.longest_seconds = max(found.longest_seconds, one.longest_seconds)
        return found

    def stop(self) -> None:
        for process, end in zip(self._processes, self._ends, strict=True):
            end.close()
            process.kill()
            process.join()


class Onlooker:
    """A process that watches the pods and the epoch in etcd."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._end, other = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_look, args=(other, tuple(endpoints)), daemon=True)
        self._process.start()
        other.close()
        if not self._end.poll(READY_SECONDS_MAX):
            raise TimeoutError("the onlooker did not start in time")
        self._end.recv()

    def counts(self) -> tuple[int, int]:
        """Pods created and bound so far."""
        self._end.send("counts")
        found: tuple[int, int] = self._end.recv()
        return found

    def seen(self) -> Seen:
        self._end.send("seen")
        found: Seen = self._end.recv()
        return found

    def stop(self) -> None:
        self._end.close()
        self._process.kill()
        self._process.join()


def _share(pods: int, clients: int, client: int) -> int:
    return pods // clients + (client < pods % clients)


# ---------------------------------------------------------------------------------------------------- in those processes


def _submit(end: Connection, addresses: Sequence[str], shares: Sequence[tuple[str, int]], timeout_seconds: float) -> None:
    found, guard = Submitted(), threading.Lock()
    work = [(name, [pod for pod, _ in zip(small_pods(name), range(count), strict=False)]) for name, count in shares]
    threads = [
        threading.Thread(target=_one_client, args=(addresses, pods, timeout_seconds, found, guard), daemon=True)
        for _, pods in work
    ]
    end.send("ready")
    end.recv()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    end.send(found)


def _one_client(
    addresses: Sequence[str], pods: Sequence[Pod], timeout_seconds: float, found: Submitted, guard: threading.Lock
) -> None:
    began = time.monotonic()
    with Client(addresses, timeout_seconds=timeout_seconds) as client:
        outcomes = client.submit_many(pods, timeout_seconds=timeout_seconds)
    with guard:
        found.longest_seconds = max(found.longest_seconds, time.monotonic() - began)
        for outcome in outcomes:
            if outcome.error is None:
                found.acknowledged.append(outcome.uid)
            else:
                found.refused.append(str(outcome.error))


def _look(end: Connection, endpoints: Sequence[str]) -> None:
    seen, guard, ready = Seen(), threading.Lock(), threading.Event()
    threading.Thread(target=_watch, args=(endpoints, seen, guard, ready), daemon=True).start()
    ready.wait()
    end.send("ready")
    while True:
        try:
            asked = end.recv()
        except EOFError:
            return
        with guard:
            end.send((seen.created, len(seen.bindings)) if asked == "counts" else seen)


def _watch(endpoints: Sequence[str], seen: Seen, guard: threading.Lock, ready: threading.Event) -> None:
    keys, unbound = Keys(), set[bytes]()
    for pair in changes(endpoints, keys, ready):
        with guard:
            _note(seen, unbound, pair, time.monotonic(), keys.epoch)


def changes(endpoints: Sequence[str], keys: Keys, ready: threading.Event) -> Iterator[Any]:
    """What is put under the pods and the epoch, for ever, as etcd's KeyValues; `ready` is set once nothing is missed any more.

    Begins anew where etcd was out of reach: after what was seen last of each of the two.
    """
    pods = keys.prefix(POD)
    ranges = (pods, prefix_end(pods)), (keys.epoch, b"")
    following = [0] * len(ranges)
    """The revision of etcd that is to be seen next; 0: whatever comes."""
    with open_channel(endpoints) as channel:
        while True:
            requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
            for (key, range_end), revision in zip(ranges, following, strict=True):
                create = rpc.WatchCreateRequest(key=key, range_end=range_end, start_revision=revision)
                requests.put(rpc.WatchRequest(create_request=create))
            # etcd numbers the watches of a stream in the order of their requests.
            with contextlib.suppress(grpc.RpcError):
                for answer in rpc.WatchStub(channel).Watch(iter(requests.get, None), wait_for_ready=True):
                    which = answer.watch_id
                    if answer.created:
                        following[which] = following[which] or answer.header.revision + 1
                    for event in answer.events:
                        following[which] = event.kv.mod_revision + 1
                        yield event.kv
                    if all(following):
                        ready.set()
            requests.put(None)


def _note(seen: Seen, unbound: set[bytes], pair: Any, seconds: float, epoch_key: bytes) -> None:
    if pair.key == epoch_key:
        seen.epochs.append((seconds, pair.mod_revision))
    elif pair.version == 1:
        seen.created += 1
        if not unbound:
            seen.moments.append(Moment(seconds, True))
        unbound.add(pair.key)
    elif pair.key in unbound:
        stored = Stored.FromString(pair.value)
        if stored.object.pod.spec.node_name:
            unbound.discard(pair.key)
            seen.bindings.append(Binding(seconds, stored.leader_write.epoch))
            seen.moments.append(Moment(seconds, bool(unbound)))
