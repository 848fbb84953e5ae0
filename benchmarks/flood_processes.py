"""The processes of `make flood` beside the cluster's own: clients that submit all at once, and one who notes what etcd shows.

Each runs in an interpreter of its own, so that neither waits for the other. Times are CLOCK_MONOTONIC, which all processes of a
host share. The onlooker has its own connection to etcd and reads what each change says of bindings and epochs, nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from benchmarks.asked_processes import READY_SECONDS_MAX, SPAWN, AskedProcess, look
from benchmarks.load import small_pods
from rayched.client.client import Client
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import Stored


class Binding(NamedTuple):
    """A pod that was seen bound."""

    seconds: float
    epoch: int
    waited_seconds: float = 0.0
    """Since its creation was seen."""


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
            own, other = SPAWN.Pipe()
            shares = [(f"flood-{client}", _share(pods, clients, client)) for client in range(number, clients, processes)]
            arguments = other, tuple(addresses), shares, timeout_seconds
            process = SPAWN.Process(target=_submit, args=arguments, daemon=True)
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


class Onlooker(AskedProcess):
    """A process that watches the pods and the epoch in etcd."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        super().__init__(_look, tuple(endpoints))

    def counts(self) -> tuple[int, int]:
        """Pods created and bound so far."""
        found: tuple[int, int] = self.ask("counts")
        return found

    def seen(self) -> Seen:
        found: Seen = self.ask("seen")
        return found


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
    seen, unbound = Seen(), dict[bytes, float]()

    def told(asked: str) -> tuple[int, int] | Seen:
        return (seen.created, len(seen.bindings)) if asked == "counts" else seen

    look(end, endpoints, lambda pair, keys: _note(seen, unbound, pair, time.monotonic(), keys.epoch), told)


def _note(seen: Seen, unbound: dict[bytes, float], pair: Any, seconds: float, epoch_key: bytes) -> None:
    if pair.key == epoch_key:
        seen.epochs.append((seconds, pair.mod_revision))
    elif pair.version == 1:
        seen.created += 1
        if not unbound:
            seen.moments.append(Moment(seconds, True))
        unbound[pair.key] = seconds
    elif pair.key in unbound:
        stored = Stored.FromString(pair.value)
        if stored.object.pod.spec.node_name:
            since = unbound.pop(pair.key)
            seen.bindings.append(Binding(seconds, stored.leader_write.epoch, seconds - since))
            seen.moments.append(Moment(seconds, bool(unbound)))
