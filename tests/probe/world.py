"""What a probe is made against: one replica with certificates and the usual limits, and what can be seen of it from outside."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc

from benchmarks.processes import resident_bytes
from rayched.client.client import Client
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.ray.processes import descendants
from tests.fuzz.callers import Callers

SECONDS_MAX: Final = 30.0
_BETWEEN_SECONDS: Final = 0.05


@dataclass(frozen=True)
class ProbeWorld:
    """Used by one attack after the other."""

    cluster: LocalCluster
    callers: Callers
    admin: Client
    directory: Path

    @property
    def pid(self) -> int:
        return self.cluster.replicas[0].pid

    @property
    def address(self) -> str:
        return self.cluster.addresses[0]

    @property
    def http_address(self) -> str:
        return self.cluster.replicas[0].http_address

    def tree(self) -> list[int]:
        """The replica and what it started."""
        return [self.pid, *descendants(self.pid)]

    def ask(self, role: str, call: str, request: Any, channel: grpc.Channel | None = None) -> tuple[str, bytes]:
        """Code, and the answer, or what was said in its place."""
        return ask(channel or self.callers.channels[role], call, request)

    def log_lines(self) -> int:
        return self.cluster.replicas[0].log_file.read_bytes().count(b"\n")


def ask(channel: grpc.Channel, call: str, request: Any) -> tuple[str, bytes]:
    """Code, and the answer, or what was said in its place."""
    try:
        return "OK", channel.unary_unary(path_of(call))(request.SerializeToString(), timeout=SECONDS_MAX)
    except grpc.RpcError as error:
        return str(error.code().name), str(error.details()).encode()


def path_of(call: str) -> str:
    """Of "Submission.Submit"."""
    return f"/rayched.v1.{call.replace('.', '/')}"


@dataclass
class Honest:
    """Another client's wait for an answer that everybody gets, and the replica's memory meanwhile; seconds and bytes."""

    longest: float = 0.0
    peak: int = 0
    failures: list[str] = field(default_factory=list)


@contextlib.contextmanager
def beside(world: ProbeWorld) -> Iterator[Honest]:
    """While inside, somebody asks who leads, again and again, on a connection of their own."""
    found, stopped = Honest(), threading.Event()

    def run() -> None:
        with world.callers.client("operator", timeout_seconds=SECONDS_MAX) as client:
            while not stopped.wait(_BETWEEN_SECONDS):
                began = time.monotonic()
                try:
                    client.leader()
                except Exception as error:
                    found.failures.append(str(error))
                found.longest = max(found.longest, time.monotonic() - began)
                found.peak = max(found.peak, resident_bytes(world.pid))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        stopped.set()
        thread.join()
