"""Pod groups from the client's side: real etcd, Ray and gRPC."""

from __future__ import annotations

import pytest

from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PodGroup
from tests.replica.clusters import SmallCluster, small_pod, until_true

NODES = 10
MEMBERS = 54


def a_group(name: str, least: int) -> PodGroup:
    group = PodGroup(api_version="scheduling.k8s.io/v1beta1", kind="PodGroup", metadata={"name": name})
    group.spec.scheduling_policy.gang.min_count = least
    return group


def members(group: str, first: int, count: int, cpu: str = "1") -> list[Pod]:
    pods = [small_pod(f"{group}-{number}", cpu) for number in range(first, first + count)]
    for pod in pods:
        pod.spec.node_selector["pool"] = "groups"
        pod.spec.scheduling_group.pod_group_name = group
    return pods


def bound(client: Client, group: str) -> int:
    pods = [pod for pod in client.list_all("pods").objects if isinstance(pod, Pod)]
    return sum(pod.spec.node_name != "" for pod in pods if pod.spec.scheduling_group.pod_group_name == group)


def condition(client: Client, name: str) -> tuple[str, str]:
    try:
        found = client.get("podgroups", name)
    except ApiError:
        return "", ""
    assert isinstance(found, PodGroup)
    return next(((one.status, one.message) for one in found.status.conditions), ("", ""))


@pytest.mark.row("G9", "G11", "G71")
@pytest.mark.cluster
def test_groups_start_whole_or_wait_and_go_on_when_there_is_room(cluster: SmallCluster) -> None:
    nodes = hollow_nodes(NODES, 0, NodeShape({"cpu": "8", "memory": "16Gi", "pods": "50"}), prefix="grouped")
    for node in nodes:
        node.metadata.labels["pool"] = "groups"
    client = cluster.client
    agents = HollowNodes(client, nodes, stop_seconds=0.1)
    agents.register()
    agents.start()
    try:
        # Members come before their group, and all but one.
        assert not [one.error for one in client.submit_many(members("first", 0, MEMBERS - 1)) if one.error]
        client.submit(a_group("first", MEMBERS))
        until_true(lambda: condition(client, "first")[0] == "False", 20.0, "the group does not say that it waits")
        assert bound(client, "first") == 0
        client.submit_many(members("first", MEMBERS - 1, 1))
        until_true(lambda: bound(client, "first") == MEMBERS, 20.0, lambda: f"{bound(client, 'first')} are bound")
        assert condition(client, "first") == ("True", f"{MEMBERS} of {MEMBERS} members are bound; {MEMBERS} are needed")
        client.submit(a_group("second", MEMBERS))
        client.submit_many(members("second", 0, MEMBERS))
        until_true(lambda: " placed, " in condition(client, "second")[1], 20.0, "the second group was not tried")
        assert bound(client, "second") == 0
        for number in range(MEMBERS):
            client.delete("pods", f"first-{number}", grace_period_seconds=0)
        until_true(lambda: bound(client, "second") == MEMBERS, 60.0, lambda: f"{bound(client, 'second')} are bound")
        cluster.assert_sound()
    finally:
        agents.stop()
