"""Three hosts of a network with one etcd member and one replica each, all of them with certificates.

Members and replicas are reached by the addresses of their hosts alone: what happens to a host's interface happens to both.
Everything is ended, by pid, by who leaves the `with`.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc

from benchmarks.network_namespaces import HostNetwork
from leader.channel import SecureEndpoints, one_of, open_channel
from leader.etcd_shim import rpc
from leader.tls_channel import EtcdTls
from rayched.access.identity import Identity, IdentityKind
from rayched.cli.cluster.rehearsal import RehearsalFailed
from rayched.pki.directory import PkiDirectory
from rayched.pki.issuing import leaf_request
from rayched.pki.tls_files import TlsFiles
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.cluster.local_pki import LocalPki
from rayched.replica.cluster.session import ClusterSession
from rayched.replica.etcd.etcd_binary import etcd_environment, find_etcd
from rayched.replica.ray.processes import dying_with_us

_API_PORT, _CLIENT_PORT, _PEER_PORT = 7420, 2379, 2380
_SERVER_NAME: Final = "etcd.hosts"
_CLIENT: Final = "rayched"
_READY_SECONDS_MAX: Final = 30.0
_CALL_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.05


@dataclass(slots=True)
class HostMember:
    """The etcd member on one host."""

    host: str
    address: str
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def endpoint(self) -> str:
        return f"https://{self.address}:{_CLIENT_PORT}"

    @property
    def peer(self) -> str:
        return f"https://{self.address}:{_PEER_PORT}"


class HostEtcd(ClusterSession):
    """One member on each of these hosts. A context manager."""

    def __init__(self, directory: Path, network: HostNetwork, hosts: Sequence[str]) -> None:
        self._directory, self._network = directory, network
        self.members = [HostMember(host, network.address(host)) for host in hosts]
        directory.mkdir(parents=True, exist_ok=True)
        self._pki = PkiDirectory.create(directory / "pki")
        files = self._issued(_CLIENT)
        tls = EtcdTls(str(files.ca), str(files.certificate), str(files.key), _SERVER_NAME)
        self.endpoints = SecureEndpoints([member.endpoint for member in self.members], tls)

    def open(self) -> None:
        for member in self.members:
            self._start(member)
        self._wait_until_ready()

    def close(self) -> None:
        for member in self.members:
            if member.process is not None and member.process.poll() is None:
                member.process.kill()
                member.process.wait()

    def flags(self) -> list[str]:
        """For a replica."""
        tls = self.endpoints.tls
        files = ["--etcd-cafile", tls.ca, "--etcd-certfile", tls.certificate, "--etcd-keyfile", tls.key]
        return [*files, "--etcd-server-name", tls.server_name]

    def apart_from(self, host: str) -> tuple[str, ...]:
        """One endpoint that is not on this host."""
        return one_of(self.endpoints, next(member.endpoint for member in self.members if member.host != host))

    def leader(self) -> HostMember:
        """The member that leads. Raises RehearsalFailed."""
        ids = self._until(self._ids, "no etcd member leads")
        return next(member for member, (own, leading) in zip(self.members, ids, strict=True) if own == leading)

    def lead_at(self, host: str, *, not_there: bool = False) -> None:
        """Has the member on this host lead, or another one. Raises RehearsalFailed."""

        def moved() -> bool:
            leader = self.leader()
            if (leader.host != host) == not_there:
                return True
            ids = self._ids() or []
            wanted = next((ids[place][0] for place, one in enumerate(self.members) if (one.host != host) == not_there and ids), 0)
            with contextlib.suppress(grpc.RpcError), open_channel(one_of(self.endpoints, leader.endpoint)) as channel:
                rpc.MaintenanceStub(channel).MoveLeader(rpc.MoveLeaderRequest(targetID=wanted), timeout=_READY_SECONDS_MAX)
            return False

        self._until(moved, f"etcd's lead does not pass to where it is wanted ({'not ' if not_there else ''}{host})")

    def _ids(self) -> list[tuple[int, int]] | None:
        """Of each member its own id and that of the one that it takes for the leader; None where they do not agree."""
        found: list[tuple[int, int]] = []
        for member in self.members:
            with contextlib.suppress(grpc.RpcError), open_channel(one_of(self.endpoints, member.endpoint)) as channel:
                status = rpc.MaintenanceStub(channel).Status(rpc.StatusRequest(), timeout=_CALL_SECONDS)
                found.append((int(status.header.member_id), int(status.leader)))
        leading = {leader for _, leader in found}
        is_agreed = len(found) == len(self.members) and len(leading) == 1 and leading <= {own for own, _ in found}
        return found if is_agreed else None

    def _until(self, look: Callable[[], Any], otherwise: str) -> Any:
        deadline = time.monotonic() + _READY_SECONDS_MAX
        while not (found := look()):
            if time.monotonic() > deadline:
                raise RehearsalFailed(f"{otherwise} within {_READY_SECONDS_MAX:.0f} s; etcd's logs are in {self._directory}")
            time.sleep(_LOOK_SECONDS)
        return found

    def _wait_until_ready(self) -> None:
        self._until(self._ids, "the etcd members do not agree on a leader")

    def _issued(self, name: str, hosts: Sequence[str] = ()) -> TlsFiles:
        identity = Identity(self._pki.trust_domain, IdentityKind.ETCD, name)
        self._pki.issue(leaf_request(identity.trust_domain, identity.kind, name, hosts))
        return TlsFiles.within(self._pki.place_of(identity))

    def _start(self, member: HostMember) -> None:
        files = self._issued(member.host, [member.address, _SERVER_NAME])
        certificate, key, ca = str(files.certificate), str(files.key), str(files.ca)
        arguments = [
            *("--name", member.host, "--data-dir", str(self._directory / member.host)),
            *("--listen-client-urls", member.endpoint, "--advertise-client-urls", member.endpoint),
            *("--listen-peer-urls", member.peer, "--initial-advertise-peer-urls", member.peer),
            *("--initial-cluster", ",".join(f"{one.host}={one.peer}" for one in self.members)),
            *("--cert-file", certificate, "--key-file", key, "--client-cert-auth", "--trusted-ca-file", ca),
            *("--peer-cert-file", certificate, "--peer-key-file", key, "--peer-client-cert-auth", "--peer-trusted-ca-file", ca),
            *("--enable-grpc-gateway=false", "--max-txn-ops", "1100", "--logger", "zap", "--log-level", "warn"),
        ]
        with open(self._directory / f"{member.host}.log", "ab") as log:
            member.process = subprocess.Popen(
                dying_with_us(self._network.command(member.host, [str(find_etcd().path), *arguments])),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=etcd_environment(),
                start_new_session=True,
            )


class HostCluster(LocalCluster):
    """A replica on each host, in its network."""

    def __init__(self, directory: Path, network: HostNetwork, etcd: HostEtcd, options: Sequence[str] = ()) -> None:
        self._network = network
        self._hosts = [member.host for member in etcd.members]
        self._secure_endpoints = etcd.endpoints
        addresses = [network.address(host) for host in self._hosts]
        super().__init__(
            directory,
            len(self._hosts),
            first_port=_API_PORT,
            first_http_port=0,
            etcd_endpoints=etcd.endpoints,
            options=[*etcd.flags(), *options],
            pki=LocalPki(directory / "pki", len(self._hosts), hosts=addresses),
        )
        self._addresses = [f"{address}:{_API_PORT}" for address in addresses]

    @property
    def etcd_endpoints(self) -> tuple[str, ...]:
        return self._secure_endpoints

    def host_of(self, address: str) -> str:
        """Where the replica is whose API is at this address. Raises RehearsalFailed."""
        for host, known in zip(self._hosts, self._addresses, strict=True):
            if known == address:
                return host
        raise RehearsalFailed(f"no replica of this cluster listens at {address}; there are {', '.join(self._addresses)}")

    def _command(self, number: int, address: str, http_address: str) -> list[str]:
        return self._network.command(self._hosts[number], super()._command(number, address, http_address))
