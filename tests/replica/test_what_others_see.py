"""What strangers and other users of the host see of a replica with certificates: ports, processes, files, logs."""

from __future__ import annotations

import http.client
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rayched.client.client import Client
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.cluster.local_pki import LocalPki
from rayched.replica.cluster.local_start import wait_until_up
from rayched.replica.ray.processes import descendants
from rayched.v1.core_pb2 import Event, Pod
from rayched.v1.services_pb2 import GetLeaderRequest
from rayched.v1.services_pb2_grpc import LeadershipStub
from tests.listening import listening
from tests.nodes.real_node import until

pytestmark = pytest.mark.cluster
NOBODY = 65534
LOOPBACK = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")
CANARY = "canary-4f1d9a"
SECONDS_MAX = 180.0
ADVERTISED = "replica-0.rayched.example:7420"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("seen")
    pki = LocalPki(directory / "pki", 1)
    options = ("--workers", "0", "--log-level", "debug", "--advertise-address", ADVERTISED)
    with LocalCluster(directory / "up", 1, unsafe_no_fsync=True, options=options, pki=pki) as found:
        with found.client() as client:
            wait_until_up(found, client, SECONDS_MAX, print)
        yield found


def tree(cluster: LocalCluster) -> list[int]:
    """The replica, what it started, and the etcd beside it."""
    pid, etcd = cluster.replicas[0].pid, cluster.etcd
    assert etcd is not None and etcd.pid is not None
    return [pid, *descendants(pid), etcd.pid]


def as_nobody(question: Callable[[], object]) -> bool:
    """Whether another user of the host, without any group, may do something."""
    child = os.fork()
    if not child:
        code = 2
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            question()
            code = 0
        except PermissionError:
            code = 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1)
    return code == 0


@pytest.mark.row("B9")
def test_it_listens_at_its_two_ports_and_at_rays_on_loopback_alone_and_etcd_at_none(cluster: LocalCluster) -> None:
    assert cluster.etcd is not None and cluster.etcd.pid is not None
    assert listening({cluster.etcd.pid}) == []
    found = listening(tree(cluster))
    assert {address for address, _ in found} <= set(LOOPBACK)
    own = {int(address.rpartition(":")[2]) for address in (cluster.addresses[0], cluster.replicas[0].http_address)}
    assert own <= {port for _, port in listening({cluster.replicas[0].pid})}


@pytest.mark.row("B10")
def test_no_secret_is_on_a_command_line_and_no_environment_is_for_others(cluster: LocalCluster) -> None:
    tokens, environments = set(), 0
    for pid in tree(cluster):
        environment = Path("/proc", str(pid), "environ")
        try:
            text = environment.read_bytes()
            assert stat.S_IMODE(environment.stat().st_mode) == 0o400
        except FileNotFoundError:
            continue  # it has ended
        if os.geteuid() == 0:
            assert not as_nobody(environment.read_bytes)
        environments += 1
        for entry in text.split(b"\0"):
            if entry.startswith(b"RAY_AUTH_TOKEN="):
                tokens.add(entry.partition(b"=")[2])
    assert tokens and environments > 4
    keys = [path.read_bytes() for path in cluster.directory.parent.rglob("*.key")]
    assert len(keys) >= 4
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            shown = command.read_bytes()
        except OSError:
            continue  # it has ended
        assert not any(secret in shown for secret in (*tokens, *keys)), command


@pytest.mark.row("B104")
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which root alone can")
def test_another_user_of_the_host_reaches_neither_etcd_nor_its_files(cluster: LocalCluster) -> None:
    assert cluster.etcd is not None
    place = Path(cluster.etcd.endpoint.removeprefix("unix:"))

    def connect() -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(place))

    connect()
    assert not as_nobody(connect)
    for path in (place.parent, *(one for one in cluster.directory.parent.rglob("*.key"))):
        assert not as_nobody(lambda path=path: os.listdir(path) if path.is_dir() else path.read_bytes())  # type: ignore[misc]


@pytest.mark.row("B63")
def test_who_has_no_certificate_is_told_that_it_lives_and_nothing_else(cluster: LocalCluster) -> None:
    [address] = cluster.addresses
    for ask in (
        lambda channel: LeadershipStub(channel).GetLeader(GetLeaderRequest(), timeout=10),
        lambda channel: health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10),
    ):
        assert cluster.tls is not None
        credentials = grpc.ssl_channel_credentials(cluster.tls.ca.read_bytes())
        for channel in (grpc.insecure_channel(address), grpc.secure_channel(address, credentials)):
            with closing(channel), pytest.raises(grpc.RpcError) as refused:
                ask(channel)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    for path in ("/livez", "/readyz"):
        status, body = http_get(cluster.replicas[0].http_address, path)
        assert (status, body.strip()) == (200, b"ok")


def http_get(address: str, path: str, host: str = "") -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection(address, timeout=10)) as connection:
        connection.request("GET", path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.mark.row("B107")
def test_metrics_and_configuration_are_not_for_who_asks_by_another_name(cluster: LocalCluster) -> None:
    """A page's name that leads to this host; that the port is loopback's is in B9."""
    for path in ("/metrics", "/configz", "/statusz"):
        assert http_get(cluster.replicas[0].http_address, path)[0] == 200
        status, body = http_get(cluster.replicas[0].http_address, path, host="page.example")
        assert status == 421 and b"rayched_" not in body


def test_the_leader_is_named_by_its_advertised_address_and_not_by_where_it_listens(cluster: LocalCluster) -> None:
    with cluster.client() as client:
        assert client.leader().address == ADVERTISED
    status = http_get(cluster.replicas[0].http_address, "/statusz")[1].decode()
    assert f"at {ADVERTISED}, epoch" in status
    assert f"API: {cluster.addresses[0]}\n" in status


@pytest.mark.row("B108")
def test_what_a_pod_says_of_itself_is_in_no_log_metric_or_event(cluster: LocalCluster) -> None:
    pod = Pod(metadata={"name": "singer", "namespace": "default"})
    pod.metadata.annotations["example.com/note"] = CANARY
    container = pod.spec.containers.add(name="main", image=f"registry.example/{CANARY}", working_dir=f"/{CANARY}")
    container.command.extend(["/bin/sh", "-c", CANARY])
    container.args.append(CANARY)
    container.env.add(name="PASSWORD", value=CANARY)
    container.resources.requests["cpu"].string = "10m"
    with cluster.client() as client:
        client.submit(pod)
        until(lambda: events(client), "the scheduler tells of a pod that fits nowhere", 60.0)
        assert CANARY.encode() in client.get("pod", "singer").SerializeToString()
        assert not any(CANARY.encode() in event.SerializeToString() for event in events(client))
    log = cluster.replicas[0].log_file.read_bytes()
    assert b"singer" in log and CANARY.encode() not in log
    for path in ("/metrics", "/statusz", "/configz"):
        assert CANARY.encode() not in http_get(cluster.replicas[0].http_address, path)[1]


def events(client: Client) -> list[Event]:
    return [one for one in client.list("events") if isinstance(one, Event) and one.involved_object.name == "singer"]
