"""How many workers share the evaluations never shows in a decision, and they are really asked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rayched.client.client import Client
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.v1.core_pb2 import Node, Pod
from tests.replica.clusters import BOUND_SECONDS_MAX, scheduler_status, small_pod, until_true

NODES = 40
BATCHES = 3
BATCH = 30


def nodes() -> list[Node]:
    """Of four sizes, so that scores differ; many alike, so that ties are drawn."""
    sizes = [NodeShape({"cpu": str(4 + 4 * size), "memory": f"{8 * size + 8}Gi", "pods": "110"}) for size in range(4)]
    return [node for size in range(4) for node in hollow_nodes(NODES // 4, 3, sizes[size], f"size-{size}")]


def pods(batch: int) -> list[Pod]:
    """Of ever new shapes; every third one prefers solid-state disks."""
    found = []
    for number in range(BATCH):
        pod = small_pod(f"pod-{batch}-{number}", cpu=f"{50 + 10 * (number % 7) + batch}m")
        pod.spec.containers[0].resources.requests["memory"].string = f"{32 * (1 + number % 5)}Mi"
        if number % 3 == 0:
            affinity = pod.spec.affinity.node_affinity
            term = affinity.preferred_during_scheduling_ignored_during_execution.add(weight=10)
            term.preference.match_expressions.add(key="disktype", operator="In", values=["ssd"])
        found.append(pod)
    return found


def placements(directory: Path, endpoint: str, root: str, workers: int) -> tuple[dict[str, str], int]:
    """Which pod a replica with so many workers binds to which node, and how many shards its workers evaluated."""
    options = ["--workers", str(workers), "--shard-always", "--seed", "7", "--etcd-root", root]
    with (
        LocalCluster(directory, 1, etcd_endpoints=[endpoint], options=options) as cluster,
        Client(cluster.addresses, timeout_seconds=20.0) as client,
    ):
        scheduler_status(client)
        for node in nodes():
            client.register_node(node)
        until_true(lambda: scheduler_status(client).nodes == NODES, BOUND_SECONDS_MAX, "not all nodes are seen")

        def bound() -> dict[str, str]:
            return {pod.metadata.name: pod.spec.node_name for pod in client.list_all("pods").objects if pod.spec.node_name}

        for batch in range(BATCHES):
            assert not [outcome.error for outcome in client.submit_many(pods(batch)) if outcome.error]
            expected = (batch + 1) * BATCH
            until_true(lambda expected=expected: len(bound()) == expected, BOUND_SECONDS_MAX, "not all pods are bound")
        status = scheduler_status(client)
        assert status.workers == workers
        return bound(), status.worker_evaluations


@pytest.mark.long
@pytest.mark.cluster
def test_the_decisions_are_the_same_with_no_one_and_four_workers(tmp_path: Path, etcd: EtcdServer, etcd_root: str) -> None:
    def run(workers: int) -> tuple[dict[str, str], int]:
        return placements(tmp_path / str(workers), etcd.endpoint, f"{etcd_root}-{workers}", workers)

    # Each is a cluster of its own and dies with the thread that started it.
    with ThreadPoolExecutor() as threads:
        found = dict(zip((0, 1, 4), threads.map(run, (0, 1, 4)), strict=True))
    local, by_one, by_four = (found[workers][0] for workers in (0, 1, 4))
    assert len(local) == BATCHES * BATCH
    assert len(set(local.values())) > 4
    assert by_one == local
    assert by_four == local
    assert found[0][1] == 0
    assert found[1][1] >= BATCHES
    assert found[4][1] >= 4 * BATCHES
