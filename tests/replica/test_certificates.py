"""Real replicas with certificates, also while these and the authority are exchanged under load."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
import pytest

from leader.channel import SecureEndpoints, open_channel
from rayched.access.identity import IdentityKind
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.pki.directory import PkiDirectory
from rayched.pki.issuing import leaf_request
from rayched.pki.tls_files import TlsFiles
from rayched.replica.cluster.local_cluster import LocalCluster, ReplicaProcess
from rayched.replica.cluster.local_pki import LocalPki
from rayched.replica.cluster.local_start import wait_until_up
from rayched.store.errors import StoreDenied
from rayched.store.io.client import StoreClient
from rayched.v1.core_pb2 import Pod
from tests.etcd_tls import a_client_of_etcd, enable_users, etcd_over_tls, etcd_tls
from tests.pki.made import an_authority
from tests.server.serving import until

pytestmark = pytest.mark.cluster


class Load:
    """Calls from threads of their own, and what failed of them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stop = threading.Event()
        self.failures: list[ApiError] = []
        self.calls = 0
        self._threads = [threading.Thread(target=self._run) for _ in range(2)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self._call(time.monotonic() + 30.0)

    def _call(self, until: float) -> None:
        try:
            self._client.list("nodes", timeout_seconds=5.0)
            self._client.scheduler_status(timeout_seconds=5.0)
            self.calls += 1
        except ApiError as error:
            # A busy leader may not answer the replica that passes a question on; whoever is told to try again does so.
            if error.code is grpc.StatusCode.UNAVAILABLE and time.monotonic() < until:
                self._call(until)
            else:
                self.failures.append(error)


def issued(made: PkiDirectory) -> None:
    """New certificates of all in the place of the old ones."""
    for kind, name in (("replica", "replica-0"), ("replica", "replica-1"), ("user", "admin"), ("nodes", "local")):
        made.issue(leaf_request(made.trust_domain, IdentityKind(kind), name))


@contextlib.contextmanager
def running(
    directory: Path, made: PkiDirectory, options: Sequence[str] = (), etcd_endpoints: Sequence[str] = ()
) -> Iterator[tuple[LocalCluster, Client]]:
    """Two replicas; a context lists them, which all clients find by their addresses. `made` is theirs."""
    pki = LocalPki(made.path, 2)
    cluster = LocalCluster(
        directory,
        replicas=2,
        unsafe_no_fsync=not etcd_endpoints,
        etcd_endpoints=etcd_endpoints,
        options=["--workers", "0", *options],
        pki=pki,
    )
    with cluster, pki.context(cluster.addresses), Client(timeout_seconds=30.0) as client:
        wait_until_up(cluster, client)
        yield cluster, client


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def made(tmp_path: Path) -> PkiDirectory:
    return PkiDirectory.create(tmp_path / "pki")


def a_pod(name: str) -> Pod:
    pod = Pod(api_version="v1", kind="Pod")
    pod.metadata.name, pod.metadata.namespace = name, "default"
    pod.spec.containers.add(name="main", image="registry.example/a:1")
    return pod


@pytest.mark.row("B27", "B29")
def test_a_cluster_works_and_goes_on_while_certificates_and_authority_are_exchanged(tmp_path: Path, made: PkiDirectory) -> None:
    # With the long lease, which a busy machine does not end.
    with running(tmp_path / "cluster", made, ["--election-profile", "kube"]) as (cluster, client):
        agents = HollowNodes(client, hollow_nodes(4, 2, NodeShape()), heartbeat_seconds=1.0)
        agents.register()
        agents.start()
        try:
            client.submit(a_pod("before"))
            assert client.wait_bound("before")[0].spec.node_name
            leader = client.leader()
            standby = next(address for address in cluster.addresses if address != leader.address)
            with Client([standby], timeout_seconds=20.0) as asker:
                assert asker.scheduler_status().epoch == leader.epoch
            with Load(client) as load:
                issued(made)
                time.sleep(3.0)
                made.trust_next()
                time.sleep(3.0)
                made.sign_with_next()
                issued(made)
                time.sleep(3.0)
                made.forget_old()
                time.sleep(3.0)
            assert load.failures == []
            assert load.calls > 0
            client.submit(a_pod("after"))
            assert client.wait_bound("after")[0].spec.node_name
            now = client.leader()
            assert (now.holder, now.epoch) == (leader.holder, leader.epoch)
            made.revoke(f"spiffe://{made.trust_domain}/user/admin")
            until(lambda: refused(client))
            assert agents.wait(10.0), "agents with a certificate that is revoked do not go on"
        finally:
            agents.stop()


def refused(client: Client) -> bool:
    try:
        client.leader(timeout_seconds=2.0)
    except ApiError as error:
        return error.code.name == "UNAUTHENTICATED"
    return False


@pytest.mark.row("B25", "B27", "B107")
def test_a_cluster_works_over_an_etcd_that_wants_certificates(tmp_path: Path, made: PkiDirectory) -> None:
    """Of the channels to etcd."""
    authority = an_authority()
    files = a_client_of_etcd(authority, tmp_path / "etcd-client")
    flags = ["--etcd-cafile", str(files.ca), "--etcd-certfile", str(files.certificate), "--etcd-keyfile", str(files.key)]
    flags += ["--http-address", "0.0.0.0:0"]
    (tmp_path / "etcd").mkdir()
    with (
        etcd_over_tls(tmp_path / "etcd", authority) as endpoint,
        running(tmp_path / "cluster", made, flags, [endpoint]) as (cluster, client),
    ):
        for node in hollow_nodes(2, 1, NodeShape()):
            client.register_node(node)
        leader = client.leader()
        for number in range(3):
            a_client_of_etcd(authority, tmp_path / "etcd-client")
            client.submit(a_pod(f"p{number}"))
            assert client.wait_bound(f"p{number}")[0].spec.node_name
            time.sleep(2.0)
        now = client.leader()
        assert (now.holder, now.epoch) == (leader.holder, leader.epoch)
        for replica in cluster.replicas:
            assert cluster.tls is not None
            assert b"rayched_certificate_expiry_seconds" in scraped(replica, cluster.tls)


@pytest.mark.row("B25", "B112")
def test_a_cluster_works_over_an_etcd_in_which_it_may_use_its_own_keys_alone(tmp_path: Path, made: PkiDirectory) -> None:
    """Also where its leader is killed: guardians and followers end terms as the same user."""
    authority = an_authority()
    files = a_client_of_etcd(authority, tmp_path / "etcd-client")
    flags = ["--etcd-cafile", str(files.ca), "--etcd-certfile", str(files.certificate), "--etcd-keyfile", str(files.key)]
    (tmp_path / "etcd").mkdir()
    with etcd_over_tls(tmp_path / "etcd", authority) as endpoint:
        enable_users(endpoint, files)
        with open_channel(SecureEndpoints([endpoint], etcd_tls(files))) as channel, pytest.raises(StoreDenied):
            StoreClient(channel).revision()
        with running(tmp_path / "cluster", made, [*flags, "--no-compact"], [endpoint]) as (cluster, client):
            for node in hollow_nodes(2, 1, NodeShape()):
                client.register_node(node)
            client.submit(a_pod("before"))
            assert client.wait_bound("before")[0].spec.node_name
            leader = client.leader()
            (address,) = [one for one in cluster.addresses if one == leader.address]
            os.kill(cluster.replicas[cluster.addresses.index(address)].pid, signal.SIGKILL)
            until(lambda: client.leader().epoch > leader.epoch)
            client.submit(a_pod("after"))
            assert client.wait_bound("after")[0].spec.node_name
            client.delete("pods", "before")
            logs = "".join(replica.log_file.read_text() for replica in cluster.replicas)
            assert "PERMISSION_DENIED" not in logs and "permission denied" not in logs


def scraped(replica: ReplicaProcess, files: TlsFiles) -> bytes:
    """What its HTTP endpoint, which is not on loopback alone, says over TLS to whoever has a role, and to nobody else."""
    found = re.search(r"health, metrics and status are at https://0\.0\.0\.0:(\d+)$", replica.log_file.read_text(), re.MULTILINE)
    assert found is not None
    with pytest.raises((OSError, http.client.HTTPException)):
        urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/metrics", timeout=10)
    context = ssl.create_default_context(cafile=str(files.ca))
    for path, status in (("livez", 200), ("readyz", 200), ("readyz?verbose", 401), ("metrics", 401), ("configz", 401)):
        assert status_of(f"https://127.0.0.1:{found[1]}/{path}", context) == status, path
    context.load_cert_chain(files.certificate, files.key)
    with urllib.request.urlopen(f"https://127.0.0.1:{found[1]}/metrics", timeout=10, context=context) as answer:
        body: bytes = answer.read()
    return body


def status_of(url: str, context: ssl.SSLContext) -> int:
    try:
        with urllib.request.urlopen(url, timeout=10, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
