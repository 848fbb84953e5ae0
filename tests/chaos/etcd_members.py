"""A real etcd of one or three members, whose members can be killed, paused and started again one by one.

One of a single member can also lose its history: it is wiped, or restored from a snapshot.

Members reach each other through links (proxy.py), one for each member, so that what goes to a member can be slow, silent or cut.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.replica.cluster.free_ports import free_ports
from rayched.replica.cluster.session import ClusterSession
from rayched.replica.etcd.etcd_binary import EtcdBinary, etcd_environment
from rayched.replica.ray.processes import dying_with_us
from tests.chaos.proxy import Link, Network

_READY_SECONDS_MAX = 30.0
_CALL_SECONDS = 1.0
OPERATIONS = 1_100
"""As rayched's own etcd has it."""
OPERATIONS_BY_DEFAULT = 128
"""Of an etcd that nobody has told otherwise."""


class EtcdDown(Exception):
    """No member answered in time."""


@dataclass(slots=True)
class Member:
    """One etcd; `process` changes when it is started again."""

    number: int
    client_port: int
    peer_port: int
    link: Link
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.client_port}"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None


class EtcdMembers(ClusterSession):
    """The members of one cluster. A context manager."""

    def __init__(
        self,
        directory: Path,
        count: int,
        binary: EtcdBinary,
        network: Network,
        quota_bytes: int = 0,
        operations: int = OPERATIONS,
    ) -> None:
        """`quota_bytes` 0: etcd's own default. `operations`: what a transaction may have."""
        self._directory = directory
        self.binary = binary
        self._operations = str(operations)
        self._quota = ("--quota-backend-bytes", str(quota_bytes)) if quota_bytes else ()
        ports = free_ports(2 * count)
        self.members = [
            Member(
                number,
                ports[2 * number],
                ports[2 * number + 1],
                network.link(f"peer-{number}", f"127.0.0.1:{ports[2 * number + 1]}"),
            )
            for number in range(count)
        ]

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    def open(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        for member in self.members:
            self.start(member)
        self.wait_until_ready()

    def close(self) -> None:
        for member in self.members:
            if member.process is not None and member.process.poll() is None:
                member.process.kill()
                member.process.wait()

    def start(self, member: Member) -> None:
        """Starts it on its data, where it does not run."""
        if member.running:
            return
        client, peer = f"http://127.0.0.1:{member.client_port}", f"http://127.0.0.1:{member.peer_port}"
        cluster = ",".join(f"m{one.number}=http://{one.link.address}" for one in self.members)
        arguments = [
            *("--name", f"m{member.number}", "--data-dir", str(self._data(member))),
            *("--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer),
            *("--initial-advertise-peer-urls", f"http://{member.link.address}", "--initial-cluster", cluster),
            *("--max-txn-ops", self._operations, "--logger", "zap", "--log-level", "warn"),
            *self._quota,
        ]
        with open(self._directory / f"m{member.number}.log", "ab") as log:
            member.process = subprocess.Popen(
                dying_with_us([str(self.binary.path), *arguments]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=etcd_environment(),
                start_new_session=True,
            )

    def signal(self, member: Member, number: signal.Signals) -> None:
        assert member.process is not None
        os.kill(member.process.pid, number)
        if number is signal.SIGKILL:
            member.process.wait()

    def wipe(self) -> None:
        """Kills the only member, and starts it again without any data. Raises EtcdDown."""
        self._replace(lambda data: None)

    def snapshot(self, path: Path) -> None:
        """Saves what the only member has, with etcd's own program. Raises EtcdDown."""
        self._program("etcdctl", "--endpoints", self.members[0].endpoint, "snapshot", "save", str(path))

    def restore(self, path: Path) -> None:
        """Kills the only member, and starts it again with what was saved there. Raises EtcdDown."""
        member = self.members[0]
        peer = f"http://{member.link.address}"
        name = f"m{member.number}"
        words = ("--name", name, "--initial-cluster", f"{name}={peer}", "--initial-advertise-peer-urls", peer)
        self._replace(lambda data: self._program("etcdutl", "snapshot", "restore", str(path), "--data-dir", str(data), *words))

    def _replace(self, make: Callable[[Path], None]) -> None:
        (member,) = self.members
        self.signal(member, signal.SIGKILL)
        shutil.rmtree(self._data(member))
        make(self._data(member))
        self.start(member)
        self.wait_until_ready()

    def _program(self, name: str, *words: str) -> None:
        command = [str(self.binary.path.parent / name), *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=etcd_environment())
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EtcdDown(f"{name}: {error}") from error
        if done.returncode:
            raise EtcdDown(f"{name} ended with code {done.returncode}: {done.stderr.strip()[-300:]}")

    def _data(self, member: Member) -> Path:
        return self._directory / f"m{member.number}"

    def wait_until_ready(self, seconds: float = _READY_SECONDS_MAX) -> None:
        """Returns when every member answers a linearizable read. Raises EtcdDown."""
        deadline = time.monotonic() + seconds
        for member in self.members:
            with open_channel([member.endpoint]) as channel:
                while True:
                    try:
                        rpc.KVStub(channel).Range(rpc.RangeRequest(key=b"\0", limit=1), timeout=_CALL_SECONDS)
                        break
                    except grpc.RpcError as error:
                        if time.monotonic() > deadline:
                            raise EtcdDown(f"etcd member {member.number} is not ready: {error}") from error
                        time.sleep(0.02)

    def leader(self, seconds: float = 10.0) -> Member:
        """The member that leads. Raises EtcdDown."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for member in self.members:
                with contextlib.suppress(grpc.RpcError), open_channel([member.endpoint]) as channel:
                    status = rpc.MaintenanceStub(channel).Status(rpc.StatusRequest(), timeout=_CALL_SECONDS)
                    if status.leader and status.leader == status.header.member_id:
                        return member
            time.sleep(0.05)
        raise EtcdDown("no etcd member leads")

    def followers(self) -> list[Member]:
        leader = self.leader()
        return [member for member in self.members if member is not leader]

    def revision(self) -> int:
        """The last one. Raises grpc.RpcError."""
        with open_channel(self.endpoints) as channel:
            answer = rpc.KVStub(channel).Range(rpc.RangeRequest(key=b"\0", limit=1), timeout=_READY_SECONDS_MAX)
            return int(answer.header.revision)

    def compact(self, revision: int) -> None:
        with open_channel(self.endpoints) as channel:
            rpc.KVStub(channel).Compact(rpc.CompactionRequest(revision=revision), timeout=5.0)
