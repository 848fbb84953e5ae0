"""Real replicas whose etcd is wiped, or is their own and killed: they come back by themselves, or are not ready."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from rayched.api.kinds import AnyObject
from rayched.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.cluster.free_ports import free_port
from rayched.replica.cluster.local_cluster import LocalCluster, ReplicaProcess
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.replica.ray.processes import end_tree
from rayched.v1.core_pb2 import Pod
from tests.replica.clusters import READY_SECONDS_MAX, small_pod, until_true

pytestmark = pytest.mark.cluster

NODES = hollow_nodes(2, 1, NodeShape({"cpu": "8", "memory": "32Gi", "pods": "50"}))


def is_ready(replica: ReplicaProcess) -> bool:
    try:
        with urllib.request.urlopen(f"http://{replica.http_address}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def is_bound(client: Client, name: str) -> bool:
    try:
        pod = client.get("pods", name)
        return isinstance(pod, Pod) and bool(pod.spec.node_name)
    except ApiError:
        return False


def accepted(client: Client, *objects: AnyObject) -> bool:
    return all(outcome.error is None for outcome in client.submit_many(objects, timeout_seconds=10.0))


def test_replicas_whose_etcd_was_wiped_bind_again_without_anybodys_help(tmp_path: Path) -> None:
    data = tmp_path / "etcd-data"
    with (
        EtcdServer(data, unsafe_no_fsync=True) as etcd,
        LocalCluster(tmp_path / "up", 2, etcd_endpoints=(etcd.endpoint,), options=["--workers", "0"]) as cluster,
        Client(cluster.addresses) as client,
    ):
        until_true(lambda: all(map(is_ready, cluster.replicas)), READY_SECONDS_MAX, "a replica is not ready")
        assert accepted(client, *NODES, small_pod("before"))
        until_true(lambda: is_bound(client, "before"), READY_SECONDS_MAX, "no pod is bound")
        etcd.stop()
        shutil.rmtree(data)
        etcd.start()
        until_true(lambda: accepted(client, *NODES, small_pod("after")), READY_SECONDS_MAX, "nothing is accepted")
        until_true(lambda: is_bound(client, "after"), READY_SECONDS_MAX, "no pod is bound")
        until_true(lambda: all(map(is_ready, cluster.replicas)), READY_SECONDS_MAX, "a replica is not ready")
        assert [pod.metadata.name for pod in client.list("pods")] == ["after"]


def test_a_replica_starts_its_own_etcd_anew_and_ends_where_that_is_of_no_use(tmp_path: Path) -> None:
    address, http_address = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    words = [
        "replica",
        "--listen",
        address,
        "--http-address",
        http_address,
        "--data-dir",
        str(tmp_path),
        "--workers",
        "0",
        "--insecure-loopback",
    ]
    replica = ReplicaProcess(0, address, http_address, tmp_path / "log", [sys.executable, "-m", "rayched.cli.main", *words])
    replica.start()
    try:
        until_true(lambda: is_ready(replica), READY_SECONDS_MAX, replica.log_tail)
        with Client([address]) as client:
            assert accepted(client, *NODES, small_pod("before"))
            until_true(lambda: is_bound(client, "before"), READY_SECONDS_MAX, "no pod is bound")
            os.kill(int((tmp_path / "etcd.lock").read_text()), signal.SIGKILL)
            until_true(lambda: accepted(client, small_pod("after")), READY_SECONDS_MAX, "nothing is accepted")
            until_true(lambda: is_bound(client, "after"), READY_SECONDS_MAX, "no pod is bound")
            assert is_bound(client, "before")
        until_true(lambda: is_ready(replica), READY_SECONDS_MAX, "it does not become ready again")
        (tmp_path / "etcd.version").write_text("etcd Version: 99.0.0\n")
        os.kill(int((tmp_path / "etcd.lock").read_text()), signal.SIGKILL)
        assert replica.wait(READY_SECONDS_MAX) == 1
        assert "giving up: no etcd after 5 attempts" in replica.log_file.read_text()
    finally:
        if replica.running:
            end_tree(replica.pid)
            replica.process.wait()  # type: ignore[union-attr]
