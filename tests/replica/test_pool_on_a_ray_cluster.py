"""Workers on a user's Ray cluster: spread over its nodes, as many as it has room for, and none missed where a node dies."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rayched.client.client import Client
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.testing.raylets import RayletCluster
from rayched.v1.core_pb2 import Pod
from tests.replica.clusters import BOUND_SECONDS_MAX, scheduler_status, until_true
from tests.replica.test_workers_decide_the_same import BATCH, NODES, nodes, pods

CPUS = 2
RESIZED_SECONDS_MAX = 120.0
BATCHES_MAX = 30


def new_pods(batch: int) -> list[Pod]:
    """Each asks for a column that nobody asked for before."""
    found = pods(batch)
    for number, pod in enumerate(found):
        affinity = pod.spec.affinity.node_affinity
        term = affinity.preferred_during_scheduling_ignored_during_execution.add(weight=1)
        term.preference.match_expressions.add(key=f"key-{batch}-{number}", operator="DoesNotExist")
    return found


def bind(client: Client, batch: int) -> dict[str, str]:
    """Submits a batch; all placements once it is bound."""
    assert not [outcome.error for outcome in client.submit_many(new_pods(batch)) if outcome.error]

    def bound() -> dict[str, str]:
        return {pod.metadata.name: pod.spec.node_name for pod in client.list_all("pods").objects if pod.spec.node_name}

    until_true(lambda: len(bound()) == (batch + 1) * BATCH, BOUND_SECONDS_MAX, "not all pods are bound")
    return bound()


def workers_by_node(client: Client) -> dict[str, int]:
    """Of those that run."""
    return dict(Counter(one.ray_node for one in scheduler_status(client).pool if one.ray_node))


def register(client: Client) -> None:
    scheduler_status(client)
    for node in nodes():
        client.register_node(node)
    until_true(lambda: scheduler_status(client).nodes == NODES, BOUND_SECONDS_MAX, "not all nodes are seen")


@pytest.mark.long
@pytest.mark.cluster
def test_the_pool_follows_the_ray_cluster_and_decides_as_without_it(tmp_path: Path, etcd: EtcdServer, etcd_root: str) -> None:
    same = ["--shard-always", "--seed", "7", "--node-monitor-grace-period", "24h"]
    with RayletCluster(3, CPUS) as raylets:
        options = [*same, "--workers", "auto", "--ray-address", raylets.address, "--etcd-root", f"{etcd_root}-auto"]
        replica = LocalCluster(
            tmp_path / "auto", 1, etcd_endpoints=[etcd.endpoint], options=options, environment=raylets.environment
        )
        with replica as cluster, Client(cluster.addresses, timeout_seconds=20.0) as client:

            def sized(*by_node: int) -> bool:
                return sorted(workers_by_node(client).values()) == sorted(by_node)

            register(client)
            until_true(lambda: sized(CPUS, CPUS, CPUS), RESIZED_SECONDS_MAX, "not one worker for each CPU")
            found = bind(client, 0)
            raylets.kill(2)
            found |= bind(client, 1)
            until_true(lambda: sized(CPUS, CPUS), RESIZED_SECONDS_MAX, "workers of a dead node count")
            raylets.add()
            until_true(lambda: sized(CPUS, CPUS, CPUS), RESIZED_SECONDS_MAX, "no worker on the new node")
            batches = 2
            # A busy machine may have a new worker late for its first question, and it is not asked before it has answered.
            while not all(one.evaluations for one in scheduler_status(client).pool):
                asked = [(one.name, one.evaluations, one.under_way) for one in scheduler_status(client).pool]
                assert batches < BATCHES_MAX, asked
                found |= bind(client, batches)
                batches += 1
    with (
        LocalCluster(
            tmp_path / "alone",
            1,
            etcd_endpoints=[etcd.endpoint],
            options=[*same, "--workers", "0", "--etcd-root", f"{etcd_root}-alone"],
        ) as cluster,
        Client(cluster.addresses, timeout_seconds=20.0) as client,
    ):
        register(client)
        alone: dict[str, str] = {}
        for batch in range(batches):
            alone |= bind(client, batch)
        assert alone == found
