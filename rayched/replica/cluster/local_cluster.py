"""A cluster on this host: one etcd and several replicas as processes of their own, all owned by whoever starts it.

`rayched up` and `rayched demo`, the benchmarks and the tests run on it. Each replica is `rayched replica` with its own port, data
directory and log file, and is told to stop when its owner is gone (parent-death signal), as etcd is: start it from a thread that
lives as long as the cluster shall.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rayched.client.client import Client
from rayched.pki.tls_files import TlsFiles
from rayched.replica.cluster.free_ports import free_ports
from rayched.replica.etcd.etcd_keeper import EtcdKeeper
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.replica.ray.processes import dying_with_us, end_tree
from rayched.replica.settings import NO_ADDRESS

if TYPE_CHECKING:
    from rayched.replica.cluster.local_pki import LocalPki

_STOP_SECONDS_MAX = 8.0
"""A replica takes at most 5 s to leave by itself."""
_LOG_TAIL_LINES = 8
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
"""A process that gets one of these failed; by others somebody ends it on purpose, to see what the rest does."""


class ReplicaFailed(Exception):
    """A replica's process ended, or did not become ready; with the end of its log."""


@dataclass(slots=True)
class ReplicaProcess:
    """One replica; `pid` changes when it is started again."""

    number: int
    address: str
    http_address: str
    """Where its health, metrics and status are."""
    log_file: Path
    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables beside those of the owner."""
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def pid(self) -> int:
        if self.process is None:
            raise ReplicaFailed(f"replica {self.number} is not running")
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(
                dying_with_us(self.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Its own session: a Ctrl-C in the terminal is the owner's, and would count as the first of two signals here.
                start_new_session=True,
                env={**os.environ, **self.environment},
            )

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float) -> int:
        """Exit code. Raises subprocess.TimeoutExpired."""
        if self.process is None:
            return 0
        return self.process.wait(seconds)

    def log_tail(self) -> str:
        lines = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        return "\n".join(lines[-_LOG_TAIL_LINES:])


class LocalCluster:
    """An etcd, unless endpoints are given, and `replicas` replicas. A context manager that leaves nothing behind."""

    def __init__(
        self,
        directory: Path,
        replicas: int = 3,
        *,
        first_port: int | None = None,
        first_http_port: int | None = None,
        first_gateway_port: int = 0,
        etcd_endpoints: Sequence[str] = (),
        unsafe_no_fsync: bool = False,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        pki: LocalPki | None = None,
    ) -> None:
        """`pki`: certificates of the replicas and of who uses them; None: there is no TLS.

        `first_port`: the replicas take it and those after it; None: free ports. `options`: further flags for each replica.

        `first_http_port`: the same of their HTTP endpoints; 0: they have none. `environment`: variables for the replicas.

        `first_gateway_port`: the same of the gateways beside them; 0: there are none, else `pki` was made with gateways.
        """
        self._directory = directory
        self._keeper: EtcdKeeper | None = None
        self._etcd = None if etcd_endpoints else EtcdServer(directory / "etcd", unsafe_no_fsync=unsafe_no_fsync, warn=None)
        self._etcd_endpoints = tuple(etcd_endpoints)
        self._options = tuple(options)
        self._pki = pki
        self._environment = dict(environment or {})
        free = iter(free_ports(2 * replicas))
        ports = [next(free) if first_port is None else first_port + i for i in range(replicas)]
        self._addresses = [f"127.0.0.1:{port}" for port in ports]
        http_ports = [next(free) if first_http_port is None else first_http_port + i for i in range(replicas)]
        self._http_addresses = [NO_ADDRESS if first_http_port == 0 else f"127.0.0.1:{port}" for port in http_ports]
        gateway_ports = range(first_gateway_port, first_gateway_port + replicas) if first_gateway_port else ()
        self.gateways = tuple(f"127.0.0.1:{port}" for port in gateway_ports)
        """Where the Kubernetes API is."""
        self.replicas: list[ReplicaProcess] = []

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def etcd(self) -> EtcdServer | None:
        """The etcd of its own, if it has one."""
        return self._etcd

    @property
    def etcd_endpoints(self) -> tuple[str, ...]:
        return self._etcd_endpoints

    @property
    def directory(self) -> Path:
        """Where data and logs are."""
        return self._directory

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the replicas' APIs listen."""
        return tuple(self._addresses)

    @property
    def tls(self) -> TlsFiles | None:
        """The certificate of who started it; None: there are none."""
        return None if self._pki is None else self._pki.admin

    def client(self, *, timeout_seconds: float = 10.0) -> Client:
        """Of the replicas, with that certificate."""
        return Client(self.addresses, timeout_seconds=timeout_seconds, tls=self.tls, insecure=self.tls is None)

    def start(self) -> None:
        """Starts etcd and waits for it, then the replicas without waiting. Raises EtcdServerError."""
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._etcd is not None:
            self._keeper = EtcdKeeper(self._etcd)
            self._keeper.start()
            self._etcd_endpoints = (self._etcd.endpoint,)
        for number, (address, http_address) in enumerate(zip(self._addresses, self._http_addresses, strict=True)):
            command = self._command(number, address, http_address)
            replica = ReplicaProcess(
                number, address, http_address, self._directory / f"replica-{number}.log", command, self._environment
            )
            replica.start()
            self.replicas.append(replica)

    def replica_at(self, address: str) -> ReplicaProcess:
        """The replica whose API listens there; raises KeyError."""
        for replica in self.replicas:
            if replica.address == address:
                return replica
        raise KeyError(f"no replica of this cluster listens at {address}")

    def check(self) -> None:
        """Raises ReplicaFailed where a replica has ended by itself, or etcd has and does not start again."""
        if self._keeper is not None and self._keeper.gave_up:
            raise ReplicaFailed(f"{self._keeper.problem()}")
        for replica in self.replicas:
            code = 0 if replica.running or replica.process is None else replica.process.returncode
            if code > 0 or -code in _CRASHES:
                how = f"exit code {code}" if code > 0 else f"signal {-code}"
                raise ReplicaFailed(
                    f"replica {replica.number} ({replica.address}) ended with {how}; "
                    f"its log {replica.log_file} ends with:\n{replica.log_tail()}"
                )

    def stop(self) -> None:
        """SIGTERM to the replicas, SIGKILL to what is left after their time, then etcd. Idempotent."""
        running = [replica for replica in self.replicas if replica.running]
        for replica in running:
            with contextlib.suppress(ProcessLookupError):
                replica.signal(signal.SIGCONT)
                replica.signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS_MAX
        for replica in running:
            try:
                replica.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                end_tree(replica.pid)
                replica.wait(_STOP_SECONDS_MAX)
        if self._keeper is not None:
            self._keeper.stop()

    def _command(self, number: int, address: str, http_address: str) -> list[str]:
        return [
            *(sys.executable, "-m", "rayched.cli.main", "replica", "--listen", address, "--http-address", http_address),
            *("--etcd-endpoints", ",".join(self._etcd_endpoints), "--data-dir", str(self._directory / f"replica-{number}")),
            *(["--insecure-loopback"] if self._pki is None else self._pki.flags(number)),
            *self._gateway(number),
            *self._options,
        ]

    def _gateway(self, number: int) -> list[str]:
        if not self.gateways:
            return []
        flags = [] if self._pki is None else self._pki.gateway_flags(number)
        return ["--gateway-address", self.gateways[number], *flags]
