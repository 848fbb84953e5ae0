"""A lost node while the leader dies: real replicas, a real scheduler, hollow agents; an auditor watches.

The node falls silent, gets its taints, its leader is killed before the time of its pods is over. The next leader evicts them when
it is, and neither earlier nor never; the node comes back and takes pods again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.audit.auditor import Auditor
from rayched.audit.follower import AuditFollower
from rayched.client.client import Client
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import HOSTNAME_LABEL, NodeShape, hollow_nodes
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.cluster.local_start import stands_for_election
from rayched.v1.core_pb2 import Node, Pod
from tests.replica.clusters import kill, left_alive, nothing_left, scheduler_status, small_pod, tree_of, until_true

LOST, OTHER = "node-000", "node-001"
TOLERATED_SECONDS = 5
PATIENCE_SECONDS = 60.0
START_SECONDS_MAX = 60.0
OPTIONS = (
    *("--workers", "0", "--no-compact", "--node-monitor-period", "200ms", "--node-monitor-grace-period", "1500ms"),
    *("--node-eviction-rate", "10", "--termination-margin", "1s"),
    *("--default-unreachable-toleration-seconds", str(TOLERATED_SECONDS)),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory: Path = tmp_path_factory.mktemp("lost-nodes")
    with nothing_left() as pids, LocalCluster(directory, 2, unsafe_no_fsync=True, options=OPTIONS) as found:
        with Client(found.addresses, timeout_seconds=20.0) as client:
            scheduler_status(client)
            until_true(
                lambda: all(stands_for_election(address, 2.0) for address in found.addresses),
                START_SECONDS_MAX,
                "not both stand for election",
            )
        pids |= {pid for replica in found.replicas for pid in tree_of(replica.pid)}
        yield found


def no_execute(client: Client, name: str) -> list[int]:
    """When the node's NoExecute taints were set."""
    node = client.get("nodes", name)
    assert isinstance(node, Node)
    return [taint.time_added.seconds for taint in node.spec.taints if taint.effect == "NoExecute"]


def pods(client: Client) -> dict[str, Pod]:
    return {pod.metadata.name: pod for pod in client.list_all("pods").objects if isinstance(pod, Pod)}


def submit(client: Client, name: str, node: str) -> None:
    pod = small_pod(name)
    pod.spec.node_selector[HOSTNAME_LABEL] = node
    pod.spec.termination_grace_period_seconds = 1
    client.submit(pod)


@pytest.mark.row("K5.4", "K9.9")
@pytest.mark.cluster
def test_the_pods_of_a_lost_node_leave_in_time_though_the_leader_dies_and_the_node_may_come_back(cluster: LocalCluster) -> None:
    nodes = hollow_nodes(3, 1, NodeShape())
    follower = AuditFollower(cluster.etcd_endpoints, Auditor()).start()
    with Client(cluster.addresses, timeout_seconds=20.0) as client:
        agents = HollowNodes(client, nodes, heartbeat_seconds=0.3)
        agents.register()
        agents.start()
        try:
            for name, node in (("here", LOST), ("there", OTHER)):
                submit(client, name, node)
            until_true(
                lambda: all(pod.status.phase == "Running" for pod in pods(client).values()), PATIENCE_SECONDS, "pods do not run"
            )
            agents.silence([LOST])
            until_true(lambda: bool(no_execute(client, LOST)), PATIENCE_SECONDS, "the lost node is not tainted")
            (since,) = no_execute(client, LOST)
            epoch = client.leader().epoch
            leader = cluster.replica_at(client.leader().address)
            tree = tree_of(leader.pid)
            kill(leader.pid)
            until_true(lambda: (found := client.leader()).holder != "" and found.epoch > epoch, PATIENCE_SECONDS, "no leader")
            assert not pods(client)["here"].metadata.HasField("deletion_timestamp") or time.time() >= since + TOLERATED_SECONDS
            until_true(
                lambda: (pod := pods(client).get("here")) is None or pod.metadata.HasField("deletion_timestamp"),
                PATIENCE_SECONDS,
                "the new leader has forgotten the pod of the lost node",
            )
            assert time.time() >= since + TOLERATED_SECONDS
            until_true(lambda: "here" not in pods(client), PATIENCE_SECONDS, "nobody removes what cannot stop")
            assert no_execute(client, LOST) == [since]
            submit(client, "again", LOST)
            agents.speak([LOST])
            until_true(lambda: pods(client)["again"].status.phase == "Running", PATIENCE_SECONDS, "the node takes no pods")
            assert no_execute(client, LOST) == []
            assert pods(client)["there"].status.phase == "Running"
            assert left_alive(tree, 5.0) == {}
            assert follower.error is None
            assert not follower.ask(lambda auditor: dict(auditor.findings.first))
        finally:
            agents.stop()
            follower.stop()
