"""A small real cluster under test, with nodes, a client and an auditor beside it; and processes that must be gone afterwards."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from rayched.audit.auditor import Auditor, Binding
from rayched.audit.follower import AuditFollower
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.cluster.local_cluster import ReplicaProcess
from rayched.replica.own_directories import MEMORY, SHORT
from rayched.replica.ray.processes import alive, descendants, end_tree
from rayched.testing.running import RunningCluster
from rayched.v1.core_pb2 import Namespace, Pod
from rayched.v1.services_pb2 import GetSchedulerStatusResponse

READY_SECONDS_MAX = 90.0
"""Five on a machine that has nothing else to do."""
BOUND_SECONDS_MAX = 30.0
GONE_SECONDS_MAX = 10.0


class SmallCluster:
    """Replicas, eight nodes, a client, and an auditor that has seen everything. A context manager."""

    def __init__(self, directory: Path, replicas: int = 1, workers: int = 0, options: Sequence[str] = ()) -> None:
        self._running = RunningCluster(
            hollow_nodes(8, 2, NodeShape({"cpu": "64", "memory": "256Gi", "pods": "500"})),
            replicas=replicas,
            workers=workers,
            directory=directory,
            options=["--no-compact", *options],
        )
        self.local, self.client = self._running.local, self._running.client
        self.follower: AuditFollower | None = None
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        self._running.__enter__()
        self.follower = AuditFollower(self.local.etcd_endpoints, Auditor()).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self.follower is not None:
            self.follower.stop()
        self._running.close()
        if kind is not None:
            for replica in self.local.replicas:
                print(f"--- end of the log of replica {replica.number}\n{replica.log_tail()}")

    def wait_for_leader(self) -> GetSchedulerStatusResponse:
        """What the leader's scheduler says of itself, once there is one."""
        return scheduler_status(self.client)

    def pid_of(self, name: str) -> int:
        """A process of the leader, by the name it has in the scheduler's status."""
        pids: list[int] = []

        def is_there() -> bool:
            pids.append(self.wait_for_leader().pids.get(name, 0))
            return bool(pids[-1])

        until_true(is_there, READY_SECONDS_MAX, f"there is no {name}")
        return pids[-1]

    def leader(self) -> ReplicaProcess:
        """Who leads, once somebody does: for a moment after a handover nobody may."""
        addresses: list[str] = []

        def is_there() -> bool:
            addresses.append(self.client.leader().address)
            return bool(addresses[-1])

        until_true(is_there, READY_SECONDS_MAX, "nobody leads")
        return self.local.replica_at(addresses[-1])

    def submit(self, count: int) -> None:
        self._submit([small_pod(f"pod-{next(self._numbers)}") for _ in range(count)])

    def submit_new_shape(self) -> None:
        """One pod whose requests nobody has had before."""
        number = next(self._numbers)
        self._submit([small_pod(f"pod-{number}", cpu=f"{1000 + number}u")])

    def _submit(self, objects: Sequence[Pod | Namespace]) -> None:
        failed = [outcome.error for outcome in self.client.submit_many(objects, timeout_seconds=20.0) if outcome.error]
        assert not failed, failed

    def create_namespaces(self, count: int) -> None:
        """Objects that a scheduler reads, and that make no difference to it."""
        self._submit([_namespace(f"space-{number}") for number in range(count)])

    def audit(self, question: Callable[[Auditor], int]) -> int:
        assert self.follower is not None
        return self.follower.ask(question)

    def first_binding_after(self, epoch: int) -> Binding:
        """The first one under a later epoch; there is one."""
        assert self.follower is not None
        return self.follower.ask(lambda auditor: next(one for one in auditor.bindings if one.epoch > epoch))

    def wait_until_all_bound(self, seconds: float = BOUND_SECONDS_MAX) -> None:
        """All that was ever submitted is bound, once, and the auditor has nothing to say against it."""
        expected = next(self._numbers)
        self._numbers = itertools.count(expected)
        until_true(
            lambda: self.audit(lambda auditor: auditor.bound_pods()) == expected,
            seconds,
            lambda: f"{self.audit(lambda auditor: auditor.bound_pods())} of {expected} pods are bound",
        )
        self.assert_sound()

    def assert_sound(self) -> None:
        assert self.follower is not None
        assert self.follower.error is None
        findings = self.follower.ask(lambda auditor: dict(auditor.findings.first))
        assert not findings, findings


def scheduler_status(client: Client) -> GetSchedulerStatusResponse:
    """What the leader's scheduler says of itself, once there is one."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            if (status := client.scheduler_status(timeout_seconds=2.0)).epoch:
                return status
        except ApiError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def small_pod(name: str, cpu: str = "10m") -> Pod:
    pod = Pod(api_version="v1", kind="Pod")
    pod.metadata.name, pod.metadata.namespace = name, "default"
    container = pod.spec.containers.add(name="main", image="registry.example/main:1")
    container.resources.requests["cpu"].string = cpu
    return pod


def _namespace(name: str) -> Namespace:
    namespace = Namespace(api_version="v1", kind="Namespace")
    namespace.metadata.name = name
    return namespace


def until_true(condition: Callable[[], bool], seconds: float, failure: str | Callable[[], str]) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, failure if isinstance(failure, str) else failure()
        time.sleep(0.02)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def left_alive(pids: Iterable[int], seconds: float = GONE_SECONDS_MAX) -> dict[int, str]:
    """Those that have not ended within the time, and what they are. A process that has ended and was not collected has ended."""
    deadline = time.monotonic() + seconds
    while left := {pid: _command(pid) for pid in pids if alive(pid)}:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.02)
    return {}


@contextmanager
def nothing_left() -> Iterator[set[int]]:
    """Ends whatever of these processes is left, also after a failure; add to the set what has to go."""
    pids: set[int] = set()
    try:
        yield pids
    finally:
        for pid in pids:
            if alive(pid):
                end_tree(pid)


def tree_of(pid: int) -> set[int]:
    return {pid, *descendants(pid)}


def own_directories(pid: int) -> list[Path]:
    """What a process has made outside its data directory."""
    return [path for parent in (MEMORY, SHORT) for path in parent.glob(f"rayched-{pid}-*")]


def _command(pid: int) -> str:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode()[:120]
    except OSError:
        return ""
