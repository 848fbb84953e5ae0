"""Pods that name their nodes against pods that are scheduled, in real processes: no binding exceeds what a node has left."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from rayched.audit.auditor import Auditor
from rayched.client.client import Client
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.v1.core_pb2 import Pod
from tests.replica.clusters import SmallCluster, small_pod, until_true

NODES, CPUS, ROUNDS, OWN, SCHEDULED, THREADS = 4, 4, 30, 16, 24, 8


def a_round(number: int) -> tuple[list[Pod], list[Pod]]:
    """Pods that name nodes of this round, and pods that want one of them: together more than they have."""
    own, scheduled = (
        [small_pod(f"{kind}-{number}-{i}", "500m") for i in range(n)] for kind, n in (("own", OWN), ("any", SCHEDULED))
    )
    for i, pod in enumerate(own):
        pod.spec.node_name = f"round-{number}-{i % NODES:03d}"
    for pod in scheduled:
        pod.spec.node_selector["round"] = str(number)
    return own, scheduled


@pytest.mark.cluster
def test_no_binding_exceeds_a_node_on_which_pods_are_put_at_the_same_time(cluster: SmallCluster) -> None:
    shape = NodeShape({"cpu": str(CPUS), "memory": "64Gi", "pods": "100"})
    nodes = []
    for number in range(ROUNDS):
        found = hollow_nodes(NODES, 0, shape, prefix=f"round-{number}")
        for node in found:
            node.metadata.labels["round"] = str(number)
        nodes += found
    named = {node.metadata.name for node in nodes}
    assert {pod.spec.node_name for number in range(ROUNDS) for pod in a_round(number)[0]} == named
    for node in nodes:
        cluster.client.register_node(node)
    random = Random(1)
    for number in range(ROUNDS):
        _race(cluster.client, random, *a_round(number))
    # Each pod that fits is bound, and each node is full.
    until_true(lambda: cluster.audit(_n_placed) >= ROUNDS * NODES * CPUS * 2, 30.0, lambda: f"{cluster.audit(_n_placed)}")
    cluster.assert_sound()


def _race(client: Client, random: Random, own: list[Pod], scheduled: list[Pod]) -> None:
    pods = own + scheduled
    random.shuffle(pods)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(client.submit, pods))


def _n_placed(auditor: Auditor) -> int:
    """Of this test."""
    found = (pod for pod in auditor.pods.values() if pod.metadata.name.startswith(("own-", "any-")))
    return sum(bool(pod.spec.node_name) for pod in found)
