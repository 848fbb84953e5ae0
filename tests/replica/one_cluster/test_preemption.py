"""Preemption from the client's side: real etcd, Ray and gRPC, and agents that let pods end in their time."""

from __future__ import annotations

import pytest

from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PriorityClass
from tests.replica.clusters import SmallCluster, small_pod, until_true

NODES = 4
STOP_SECONDS = 1.0


def pool_pod(name: str, cpu: str, priority_class: str = "") -> Pod:
    pod = small_pod(name, cpu)
    pod.spec.node_selector["pool"] = "full"
    pod.spec.priority_class_name = priority_class
    return pod


def pods_of(client: Client) -> dict[str, Pod]:
    """Of this test, by name."""
    found = [pod for pod in client.list_all("pods").objects if isinstance(pod, Pod)]
    return {pod.metadata.name: pod for pod in found if pod.spec.node_selector.get("pool") == "full"}


@pytest.mark.row("K9.7", "K9.8", "K9.9")
@pytest.mark.cluster
def test_pods_on_full_nodes_give_way_gracefully_and_only_to_higher_ones(cluster: SmallCluster) -> None:
    nodes = hollow_nodes(NODES, 0, NodeShape({"cpu": "4", "memory": "16Gi", "pods": "50"}), prefix="full")
    for node in nodes:
        node.metadata.labels["pool"] = "full"
    client = cluster.client
    urgent = PriorityClass(api_version="scheduling.k8s.io/v1", kind="PriorityClass", value=1000)
    urgent.metadata.name = "urgent"
    client.submit(urgent)
    agents = HollowNodes(client, nodes, stop_seconds=STOP_SECONDS)
    agents.register()
    agents.start()
    try:
        low = [pool_pod(f"low-{number}", "1") for number in range(4 * NODES)]
        assert not [outcome.error for outcome in client.submit_many(low) if outcome.error]
        until_true(lambda: _running(client) == 4 * NODES, 30.0, "the nodes are not full")
        for number in range(NODES):
            client.submit(pool_pod(f"high-{number}", "3", "urgent"))
        until_true(lambda: len(_nominated(client)) == NODES, 20.0, "not all are nominated")
        ending = [pod for pod in pods_of(client).values() if pod.metadata.HasField("deletion_timestamp")]
        assert all(pod.metadata.name.startswith("low-") for pod in ending)
        until_true(lambda: _bound_high(client) == NODES, 40.0, lambda: f"{_bound_high(client)} of {NODES} are bound")
        left = [name for name in pods_of(client) if name.startswith("low-")]
        assert len(left) == NODES
        cluster.assert_sound()
    finally:
        agents.stop()


def _running(client: Client) -> int:
    return sum(pod.status.phase == "Running" for pod in pods_of(client).values())


def _nominated(client: Client) -> list[str]:
    """Nodes of pods that wait or have come."""
    try:
        pods = pods_of(client)
    except ApiError:
        return []
    high = [pod for name, pod in pods.items() if name.startswith("high-")]
    return [node for pod in high if (node := pod.status.nominated_node_name or pod.spec.node_name)]


def _bound_high(client: Client) -> int:
    return sum(bool(pod.spec.node_name) for name, pod in pods_of(client).items() if name.startswith("high-"))
