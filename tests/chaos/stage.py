"""Where faults are played: real replicas, a real etcd, hollow nodes, load, watchers, and an auditor that has seen everything.

Between each replica and each etcd member, and between the clients and each replica, lies a link (proxy.py). The auditor has
direct connections of its own. Leaving the `with` ends everything, by pid.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from benchmarks.processes import resident_bytes
from rayched.audit.auditor import Auditor, LateWrite, PodChange
from rayched.audit.follower import AuditFollower
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.cluster.local_cluster import LocalCluster, ReplicaProcess
from rayched.replica.cluster.local_pki import LocalPki
from rayched.replica.cluster.local_start import stands_for_election
from rayched.replica.etcd.etcd_binary import EtcdBinary
from rayched.replica.ray.processes import alive, descendants
from rayched.v1.services_pb2 import GetSchedulerStatusResponse
from tests.chaos.etcd_members import OPERATIONS, EtcdMembers
from tests.chaos.planted.sitecustomize import VARIABLE
from tests.chaos.proxy import Link, Network
from tests.chaos.secured import ExchangedCertificates

PLANTED = Path(__file__).parent / "planted"
READY_SECONDS_MAX = 120.0
_SETTLED_SECONDS = 4.0
"""A process of a replica that is older has begun its work: on a busy machine they take two or three to start."""
_LOOK_SECONDS = 0.02
_HEAD_START_SECONDS = 0.3
_SLOW_SECONDS = 0.1
_LOAD_CLIENTS = 6
NODES = 24
_ZONES = 3
Answer = TypeVar("Answer")
_REFUSALS = re.compile(r"the store refused writes of an epoch that was over: (.*)")


class StageFailed(Exception):
    """The play cannot go on: one line."""


class LinkedCluster(LocalCluster):
    """Replicas whose way to etcd, and to whom others reach, goes through links."""

    def __init__(
        self,
        directory: Path,
        ways: Sequence[Sequence[str]],
        broken_rules: Sequence[str],
        options: Sequence[str],
        pki: LocalPki | None = None,
    ) -> None:
        super().__init__(directory, len(ways), etcd_endpoints=ways[0], options=options, pki=pki)
        self._ways = ways
        self._broken_rules = broken_rules

    def _command(self, number: int, address: str, http_address: str) -> list[str]:
        python, *rest = super()._command(number, address, http_address)
        place = rest.index("--etcd-endpoints") + 1
        rest[place] = ",".join(self._ways[number])
        if not self._broken_rules:
            return [python, *rest]
        path = os.pathsep.join(filter(None, (str(PLANTED), os.environ.get("PYTHONPATH", ""))))
        # Same pid: env replaces itself by the command.
        return ["/usr/bin/env", f"PYTHONPATH={path}", f"{VARIABLE}={','.join(self._broken_rules)}", python, *rest]


class Stage:
    """A context manager."""

    def __init__(
        self,
        directory: Path,
        binary: EtcdBinary,
        *,
        replicas: int = 3,
        members: int = 3,
        workers: int = 1,
        cpu: str = "64",
        broken_rules: Sequence[str] = (),
        options: Sequence[str] = ("--no-compact",),
        quota_bytes: int = 0,
        operations: int = OPERATIONS,
        secured: ExchangedCertificates | None = None,
    ) -> None:
        """`options`: further flags for each replica; where they compact, the auditor has to keep up. `quota_bytes`: etcd's, as
        are the `operations` that a transaction may have. `secured`: certificates; None: there are none."""
        self.directory = directory
        self.network = Network()
        self._owned = ExitStack()
        self._binary, self._members, self._replicas = binary, members, replicas
        self._cpu = cpu
        self._broken_rules = tuple(broken_rules)
        self._options = ("--workers", str(workers), *options)
        self._limits = quota_bytes, operations
        self._secured = secured
        self._listeners: list[Callable[[PodChange], object]] = []
        self.auditor = Auditor(on_pod_change=self._pod_changed)
        self._dead: list[ReplicaProcess] = []
        self._paused: list[int] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _start(self) -> None:
        owned = self._owned
        owned.enter_context(self.network)
        self.etcd = owned.enter_context(
            EtcdMembers(self.directory / "etcd", self._members, self._binary, self.network, *self._limits)
        )
        ways = [
            [self.network.link(f"etcd-{number}-{member.number}", member.endpoint).address for member in self.etcd.members]
            for number in range(self._replicas)
        ]
        self.follower = AuditFollower(self.etcd.endpoints, self.auditor).start()
        owned.callback(self._end_audit)
        self.cluster = self._new_cluster(ways)
        owned.callback(self.cluster.stop)
        owned.callback(self.resume)
        self.cluster.start()
        self.client = Client(self.cluster.addresses, timeout_seconds=30.0)
        owned.callback(self.client.close)
        fronts = [self.network.link(f"api-{number}", address).address for number, address in enumerate(self.cluster.addresses)]
        self.load_clients = [Client(fronts, timeout_seconds=30.0) for _ in range(_LOAD_CLIENTS)]
        """A client stays with a replica until it fails there. They begin one by one, so that each replica has some."""
        for number, client in enumerate(self.load_clients):
            _prefer(client, fronts[number % len(fronts)])
        self._fronts = fronts
        for client in self.load_clients:
            owned.callback(client.close)
        self.wait_until_standing(self._replicas)
        nodes = hollow_nodes(NODES, _ZONES, NodeShape({"cpu": self._cpu, "memory": "256Gi", "pods": "500"}))
        self._agents = HollowNodes(self.client, nodes)
        self._agents.register()
        self._agents.start()
        owned.callback(self._agents.stop)

    def _new_cluster(self, ways: Sequence[Sequence[str]]) -> LinkedCluster:
        pki = None if self._secured is None else self._secured.pki
        return LinkedCluster(self.directory, ways, self._broken_rules, self._options, pki)

    def close(self) -> None:
        self._owned.close()

    def change_history(self, change: Callable[[], object]) -> Auditor:
        """An auditor that follows etcd from its first revision on takes over after the change; the former one is given back."""
        self.follower.stop()
        before = self.auditor
        change()
        self.auditor = Auditor(on_pod_change=self._pod_changed)
        self.follower = AuditFollower(self.etcd.endpoints, self.auditor).start()
        return before

    def _end_audit(self) -> None:
        self.follower.stop()

    def register_nodes(self) -> None:
        """As at the start. Raises ApiError."""
        self._agents.register()

    # ---------------------------------------------------------------------------------------------------------------- state

    def ask(self, question: Callable[[Auditor], Answer]) -> Answer:
        return self.follower.ask(question)

    def listen(self, listener: Callable[[PodChange], object]) -> int:
        """Tells of all that the auditor sees happen to pods from the revision on that is returned."""

        def begin(auditor: Auditor) -> int:
            self._listeners.append(listener)
            return auditor.revision + 1

        return self.ask(begin)

    def _pod_changed(self, change: PodChange) -> None:
        for listener in self._listeners:
            listener(change)

    @property
    def agents_failure(self) -> str | None:
        return None if self._agents.failure is None else str(self._agents.failure)

    def status(self, seconds: float = 20.0) -> GetSchedulerStatusResponse:
        """What the leader's scheduler says of itself, once there is one. Raises StageFailed.

        One that still believes in an epoch that is over is none.
        """
        deadline = time.monotonic() + seconds
        found = "it answers, but under an epoch that is over"
        while True:
            try:
                status = self.client.scheduler_status(timeout_seconds=1.0)
                if status.epoch and status.epoch >= self.ask(lambda auditor: auditor.epoch):
                    return status
            except ApiError as error:
                found = str(error)
            if time.monotonic() > deadline:
                raise StageFailed(f"no scheduler leads for {seconds:.0f} s: {found}")
            time.sleep(_LOOK_SECONDS)

    def leader(self) -> ReplicaProcess:
        """The replica whose scheduler leads."""
        pid = self.status().pids["replica"]
        return next(replica for replica in self.cluster.replicas if replica.process is not None and replica.process.pid == pid)

    def standbys(self) -> list[ReplicaProcess]:
        leader = self.leader()
        return [replica for replica in self.cluster.replicas if replica is not leader and replica.running]

    def wait_until_standing(self, count: int, seconds: float = READY_SECONDS_MAX) -> None:
        """Returns when so many replicas take part in the election and one of them schedules. Raises StageFailed."""
        deadline = time.monotonic() + seconds
        self.status(seconds)
        while sum(stands_for_election(address, 1.0, self.cluster.tls) for address in self.cluster.addresses) < count:
            if time.monotonic() > deadline:
                raise StageFailed(
                    f"fewer than {count} replicas stand for election after {seconds:.0f} s; logs in {self.directory}"
                )
            time.sleep(0.1)

    def wait_until_settled(self, seconds: float = READY_SECONDS_MAX) -> None:
        """Returns when all replicas stand for election and no process of theirs has started lately. Raises StageFailed."""
        deadline = time.monotonic() + seconds
        self.wait_until_standing(self._replicas, seconds)
        while (age := min(map(_age_seconds, self.pids()))) < _SETTLED_SECONDS:
            if time.monotonic() > deadline:
                raise StageFailed(f"replicas still start processes after {seconds:.0f} s, the last one {age:.1f} s ago")
            time.sleep(0.1)

    def pids(self) -> list[int]:
        """Of the replicas and all below them."""
        return [pid for replica in self.cluster.replicas if replica.running for pid in (replica.pid, *descendants(replica.pid))]

    def wait_for_bindings(self, seconds: float, count: int = 1) -> bool:
        """Whether so many more pods were bound within the time."""
        wanted = self.ask(lambda auditor: len(auditor.bindings)) + count
        return self.follower.wait_for(lambda auditor: len(auditor.bindings) >= wanted, seconds)

    def refused_writes(self) -> dict[str, int]:
        """Writes that the store refused because their epoch was over, by what they were for, as all replicas counted them."""
        counts: dict[str, int] = {}
        for replica in self.cluster.replicas:
            text = replica.log_file.read_text(errors="replace") if replica.log_file.exists() else ""
            for line in _REFUSALS.findall(text):
                for part in line.split(", "):
                    op, _, count = part.rpartition(" ")
                    counts[op] = counts.get(op, 0) + int(count)
        return counts

    def late_writes(self) -> list[LateWrite]:
        """Leaders' writes that links held and handed over later."""
        return [write for link in self.network.links.values() for write in list(link.late)]

    def refusals(self) -> int:
        """Of these, those that only the guard can have refused, as the auditor counts them."""
        late = self.late_writes()
        return self.ask(lambda auditor: auditor.refused(late))

    def memory_bytes(self) -> dict[str, int]:
        """Resident memory of each replica's tree, and of etcd."""
        trees = {f"replica-{one.number}": one.pid for one in self.cluster.replicas if one.running}
        found = {name: sum(map(resident_bytes, (pid, *descendants(pid)))) for name, pid in trees.items()}
        members = [one.process.pid for one in self.etcd.members if one.process is not None and one.running]
        found["etcd"] = sum(map(resident_bytes, members))
        return found

    # ---------------------------------------------------------------------------------------------------------------- faults

    def kill(self, replica: ReplicaProcess, *, tree: bool = False, number: signal.Signals = signal.SIGKILL) -> None:
        below = descendants(replica.pid) if tree else []
        replica.signal(number)
        self._dead.append(replica)
        self.kill_pids(below)

    def kill_pids(self, pids: Sequence[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def etcd_links(self, replica: ReplicaProcess) -> list[Link]:
        """Those between this replica and etcd."""
        return [link for name, link in self.network.links.items() if name.startswith(f"etcd-{replica.number}-")]

    def slow_down_all_but(self, replica: ReplicaProcess) -> None:
        """Gives the others a slow way to etcd, so that who takes over does not bind at once."""
        for link in (link for other in self.cluster.replicas if other is not replica for link in self.etcd_links(other)):
            link.delay_seconds = _SLOW_SECONDS

    def load_prefers(self, replicas: Sequence[ReplicaProcess]) -> None:
        """The load asks these replicas from now on."""
        for number, client in enumerate(self.load_clients):
            _prefer(client, self._fronts[replicas[number % len(replicas)].number])

    def pause(self, pids: Sequence[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                self._paused.append(pid)

    def resume(self) -> None:
        """All that is paused goes on; what was paused last goes on first.

        Where the belief check is broken the replica itself goes on a little later than its actors. It would end a scheduler that
        does not cease to lead, and that one is to write first.
        """
        paused, self._paused = self._paused[::-1], []
        for number, pid in enumerate(paused):
            if self._broken_rules and number and number == len(paused) - 1:
                time.sleep(_HEAD_START_SECONDS)
            if alive(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def heal(self) -> None:
        """Everything that was hurt is whole again, or on its way to be."""
        self.network.heal()
        self.resume()
        for member in self.etcd.members:
            self.etcd.start(member)
        dead = {
            replica.number: replica
            for replica in (*self._dead, *self.cluster.replicas)
            if replica in self._dead or not replica.running
        }
        for replica in dead.values():
            replica.wait(20.0)
            replica.start()
        self._dead.clear()


def _prefer(client: Client, address: str) -> None:
    client._transport.endpoints.prefer(address)


def _age_seconds(pid: int) -> float:
    """Since it was started; one that has ended is as old as may be."""
    try:
        started = int(Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return float("inf")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
