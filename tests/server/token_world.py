"""Two replicas with certificates and a port for tokens, over one real etcd; and who calls them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from leader.etcd_shim import rpc
from rayched.access.bindings import RoleBinding, read_binding
from rayched.client import ApiError, Client
from rayched.pki.authority import Authority
from rayched.pki.client_token import TokenFiles
from rayched.pki.online_signer import OnlineSigner
from rayched.pki.tls_files import TlsFiles
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.audit_log import AuditLog
from rayched.server.audit_writer import AuditWriter
from rayched.server.edge.limits import CallerLimits, EdgeLimits
from rayched.server.peers import ServerTls
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.access_pb2 import IssueTokenResponse
from rayched.v1.access_pb2 import RoleBinding as RoleBindingMessage
from tests.pki.made import CLIENT, TRUST_DOMAIN, Pair, SetClock, a_pair, an_authority, directory_of
from tests.server.objects import a_namespace, a_pod
from tests.server.serving import Serving, serving, until
from tests.server.test_access import Etcd

REFUSED = "want a bearer token of this cluster that is not expired or revoked; `rayched token create` makes one"
Code = grpc.StatusCode


def uri(name: str) -> str:
    return f"spiffe://{TRUST_DOMAIN}/user/{name}"


def granted(name: str, role: str, *namespaces: str) -> RoleBinding:
    return read_binding(RoleBindingMessage(subject=uri(name), role=role, namespaces=namespaces))


class TokenWorld:
    """Two replicas, an administrator, and alice, who may read what is in team-a."""

    def __init__(self, store: Etcd, directory: Path, authority: Authority, clock: SetClock, servers: list[Serving]) -> None:
        self.store, self.directory, self.authority, self.clock, self.servers = store, directory, authority, clock, servers
        self._clients: list[Client] = []
        self._files = 0

    def certified(self, name: str, server: int = 0) -> Client:
        return self.paired(a_pair(self.authority, [uri(name)], [CLIENT]), server)

    def paired(self, pair: Pair, server: int = 0) -> Client:
        files = pair.write(self.directory / f"client-{len(self._clients)}")
        return self.client(self.servers[server].address, files)

    def shown(self, token: str, server: int = 0) -> Client:
        """A client that shows the token at the port for tokens."""
        return self.client(self.servers[server].server.token_address, self.files(token))

    def files(self, token: str) -> TokenFiles:
        self._files += 1
        ca, path = self.directory / "ca.crt", self.directory / f"{self._files}.token"
        ca.write_bytes(self.authority.certificate_pem)
        path.touch(0o600)
        path.write_text(f"{token}\n")
        return TokenFiles(ca, path)

    def client(self, address: str, files: TlsFiles | TokenFiles) -> Client:
        self._clients.append(Client(address, tls=files, timeout_seconds=30.0))
        return self._clients[-1]

    def issue(self, maker: str, subject: str = "", **more: Any) -> IssueTokenResponse:
        """In force at both replicas."""
        issued = self.certified(maker).issue_token(subject, **more)
        for number in range(len(self.servers)):
            until(lambda one=number: self.knows(issued.token.id, one), 30.0)  # type: ignore[misc]
        return issued

    @contextlib.contextmanager
    def watch(self, client: Client) -> Iterator[Iterator[Any]]:
        """Events of pods in team-a, from a stream that is open and says nothing."""
        with client.watch("pods", namespace="team-a", patience_seconds=1.0) as stream:
            events, names = iter(stream), set[str]()
            # The present state comes from a list; what follows, from the stream.
            next(events)
            name = f"told-{time.monotonic_ns()}"
            self.certified("admin").submit(a_pod(name, namespace="team-a"))
            while name not in names:
                names.add(next(events).object.metadata.name)
            yield events

    def knows(self, id: str, server: int) -> bool:
        running = self.servers[server].server._running
        assert running is not None
        return id in running.guard.tokens._by_id

    def stored(self) -> bytes:
        """All that etcd has of who may what."""
        prefix = self.store.keys.access_prefix
        answer = self.store._kv.Range(rpc.RangeRequest(key=prefix, range_end=prefix[:-1] + b"0"))
        return b"\n".join(pair.key + b" " + pair.value for pair in answer.kvs)

    def close(self) -> None:
        for client in self._clients:
            client.close()


@pytest.fixture
def token_world(etcd: EtcdServer, etcd_root: str, tmp_path: Path) -> Iterator[TokenWorld]:
    """For the tests that import it."""
    clock, authority, store = SetClock(time.time()), an_authority(), Etcd(etcd, Keys(etcd_root))
    writer = AuditWriter(AuditLog(tmp_path / "audit.jsonl"), "replica-0")
    with contextlib.ExitStack() as owned:
        owned.callback(store.close)
        owned.callback(writer.close)
        signer = OnlineSigner(directory_of(authority, tmp_path / "authority"))
        servers = []
        for number in range(2):
            pair = a_pair(authority, [f"spiffe://{TRUST_DOMAIN}/replica/replica-{number}"])
            options = ServerOptions(
                "127.0.0.1:0",
                [etcd.endpoint],
                Keys(etcd_root),
                tls=ServerTls.read(pair.write(tmp_path / f"replica-{number}"), None, clock),
                token_listen_address="127.0.0.1:0",
                edge=EdgeLimits(loopback=CallerLimits()),
                audit=writer if number == 0 else None,
                signer=signer,
            )
            servers.append(owned.enter_context(serving(options, f"replica-{number}", useful=False)))
        found = TokenWorld(store, tmp_path, authority, clock, servers)
        owned.callback(found.close)
        admin = found.certified("admin")
        until(lambda: served(admin), 30.0)
        for one in (granted("alice", "viewer", "team-a"), granted("ada", "admin")):
            admin.grant(one.to_message())
        for name in ("team-a", "team-b"):
            admin.submit(a_namespace(name))
        admin.submit(a_pod("web", namespace="team-a"))
        for number in range(2):
            until(lambda one=number: served(found.certified("alice", one)), 30.0)  # type: ignore[misc]
        yield found


def served(client: Client) -> bool:
    try:
        client.can_i("Submission.List", "Pod", "team-a")
        list(client.list("pods", namespace="team-a"))
    except ApiError:
        return False
    return True


def refused(work: Callable[[], Any]) -> ApiError:
    with pytest.raises(ApiError) as raised:
        work()
    return raised.value


def code_of(work: Callable[[], Any]) -> grpc.StatusCode | None:
    """What a call is refused with; None: it is not, yet."""
    try:
        work()
    except ApiError as error:
        return error.code
    return None


def is_refused(client: Client) -> None:
    failure = refused(client.who_am_i)
    assert (failure.code, failure.message) == (Code.UNAUTHENTICATED, REFUSED)
