"""Hollow nodes that fall silent: nothing is heard of them, and everything afterwards."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rayched.client import Client
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Node, NodeStatus, Pod
from rayched.v1.services_pb2 import PodStatusUpdate
from tests.server.serving import serving

pytestmark = pytest.mark.cluster

HEARTBEAT_SECONDS = 0.1
PATIENCE_SECONDS = 60.0
NODE, OTHER = "node-000", "node-001"

_numbers = itertools.count(1)


@pytest.fixture
def client(etcd: EtcdServer) -> Iterator[Client]:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/silence-{os.getpid()}-{next(_numbers)}"))
    with serving(options) as server, Client(server.address, timeout_seconds=10.0) as found:
        yield found


@contextmanager
def agents(client: Client, stop_seconds: float = 0.0) -> Iterator[HollowNodes]:
    nodes = hollow_nodes(2, 1, NodeShape())
    found = HollowNodes(client, nodes, heartbeat_seconds=HEARTBEAT_SECONDS, stop_seconds=stop_seconds)
    found.register()
    found.start()
    try:
        yield found
    finally:
        found.stop()


def submit(client: Client, name: str, node: str) -> None:
    pod = Pod()
    pod.metadata.name, pod.spec.node_name = name, node
    pod.spec.containers.add(name="main", image="web:1")
    client.submit(pod)


def pods(client: Client) -> dict[str, Pod]:
    return {found.metadata.name: found for found in client.list_all("pods").objects if isinstance(found, Pod)}


def until(holds: Callable[[], bool], failure: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, failure
        time.sleep(0.02)


def say_lost(client: Client) -> None:
    """What the cluster says of a node that it has not heard of."""
    status = NodeStatus()
    for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"):
        status.conditions.add(type=kind, status="Unknown")
    client.update_node_status(NODE, status)


def is_ready(client: Client) -> bool:
    node = client.get("nodes", NODE)
    assert isinstance(node, Node)
    return any(found.type == "Ready" and found.status == "True" for found in node.status.conditions)


def test_nothing_is_heard_of_a_silent_node_and_all_of_it_when_it_speaks_again(client: Client) -> None:
    with agents(client) as found:
        submit(client, "ending", NODE)
        until(lambda: pods(client)["ending"].status.phase == "Running", "the pod does not run")
        found.silence([NODE])
        say_lost(client)
        client.delete("pods", "ending")
        submit(client, "new", NODE)
        submit(client, "elsewhere", OTHER)
        until(lambda: pods(client)["elsewhere"].status.phase == "Running", "the other node is silent as well")
        time.sleep(3 * HEARTBEAT_SECONDS)
        assert not is_ready(client)
        assert pods(client)["new"].status.phase == "Pending"
        assert "ending" in pods(client)
        found.speak([NODE])
        until(lambda: is_ready(client), "the node does not say that it is ready")
        until(lambda: "ending" not in pods(client), "the pod that was deleted meanwhile is still there")
        until(lambda: pods(client)["new"].status.phase == "Running", "the pod that came meanwhile does not run")


def test_a_node_that_speaks_says_that_it_is_ready_whenever_the_cluster_says_otherwise(client: Client) -> None:
    with agents(client):
        say_lost(client)
        until(lambda: is_ready(client), "the node does not object")
        node = client.get("nodes", NODE)
        assert isinstance(node, Node)
        assert not [found.type for found in node.status.conditions if found.status == "Unknown"]


def test_a_pod_that_runs_says_that_it_is_ready_when_the_cluster_says_otherwise(client: Client) -> None:
    with agents(client):
        submit(client, "web", NODE)
        until(lambda: pods(client)["web"].status.phase == "Running", "the pod does not run")
        unready = PodStatusUpdate(namespace="default", name="web", uid=pods(client)["web"].metadata.uid)
        unready.status.phase = "Running"
        unready.status.conditions.add(type="Ready", status="False")
        assert client.update_pod_statuses([unready]) == (None,)
        until(
            lambda: any(one.type == "Ready" and one.status == "True" for one in pods(client)["web"].status.conditions),
            "the pod is called not ready for ever",
        )


def test_that_a_stopping_pods_object_changes_does_not_begin_its_time_anew(client: Client) -> None:
    with agents(client, stop_seconds=1.0):
        submit(client, "web", NODE)
        until(lambda: pods(client)["web"].status.phase == "Running", "the pod does not run")
        client.delete("pods", "web")
        began = time.monotonic()
        labels = itertools.count()
        while "web" in pods(client):
            assert time.monotonic() < began + 3.0, "the pod never stops"
            client.label("pods", "web", "default", add={"n": str(next(labels))}, overwrite=True)
            time.sleep(0.1)
