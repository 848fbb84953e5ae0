"""A node takes what fits and refuses the rest with the agent's reason."""

from __future__ import annotations

import pytest

from rayched.nodes.node_admission import NodeAdmission
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.v1.core_pb2 import Pod


def a_node(**resources: str) -> NodeAdmission:
    offers = {"cpu": "2", "memory": "1Gi", "pods": "3", **resources}
    return NodeAdmission(hollow_nodes(1, 1, NodeShape(offers))[0])


def a_pod(name: str = "p", **requests: str) -> Pod:
    pod = Pod()
    pod.metadata.name = pod.metadata.uid = name
    container = pod.spec.containers.add(name="main")
    for resource, quantity in requests.items():
        container.resources.requests[resource].string = quantity
    return pod


@pytest.mark.row("K2.12")
@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        ({"cpu": "2"}, None),
        ({"cpu": "2001m"}, "OutOfcpu"),
        ({"memory": "2Gi"}, "OutOfmemory"),
        ({"example.com/widget": "1"}, "OutOfexample.com/widget"),
        ({}, None),
    ],
)
def test_a_pod_that_is_too_large_is_refused_with_the_resource(requests: dict[str, str], reason: str | None) -> None:
    refusal = a_node().take(a_pod(**requests))
    assert (refusal.reason if refusal else None) == reason


def test_what_other_pods_took_is_gone_until_they_leave() -> None:
    node = a_node()
    assert node.take(a_pod("a", cpu="1500m")) is None
    refusal = node.take(a_pod("b", cpu="1"))
    assert refusal is not None
    assert "requested: 1000, used: 1500, capacity: 2000" in refusal.message
    node.leave("a")
    assert node.take(a_pod("b", cpu="1")) is None


def test_a_pod_that_is_there_already_is_not_counted_twice() -> None:
    node = a_node()
    assert node.take(a_pod("a", cpu="2")) is None
    assert node.take(a_pod("a", cpu="2")) is None


def test_a_node_has_slots_for_so_many_pods() -> None:
    node = a_node()
    refusals = [node.take(a_pod(str(number))) for number in range(4)]
    assert [refusal.reason if refusal else None for refusal in refusals] == [None, None, None, "OutOfpods"]


@pytest.mark.parametrize(
    ("first", "second", "refused"),
    [
        (("TCP", 80, ""), ("TCP", 80, ""), True),
        (("TCP", 80, "10.0.0.1"), ("TCP", 80, "10.0.0.2"), False),
        (("TCP", 80, "0.0.0.0"), ("TCP", 80, "10.0.0.2"), True),
        (("TCP", 80, ""), ("UDP", 80, ""), False),
        (("TCP", 80, ""), ("TCP", 81, ""), False),
    ],
)
def test_host_ports_are_held_by_one_pod(first: tuple[str, int, str], second: tuple[str, int, str], refused: bool) -> None:
    node = a_node()
    pods = []
    for name, (protocol, port, address) in (("a", first), ("b", second)):
        pod = a_pod(name)
        pod.spec.containers[0].ports.add(protocol=protocol, host_port=port, host_ip=address)
        pods.append(pod)
    assert node.take(pods[0]) is None
    refusal = node.take(pods[1])
    assert (refusal is not None and refusal.reason == "NodePorts") is refused


def test_a_pod_of_other_labels_is_refused() -> None:
    pod = a_pod()
    pod.spec.node_selector["disktype"] = "tape"
    refusal = a_node().take(pod)
    assert refusal is not None
    assert refusal.reason == "NodeAffinity"


def test_what_the_api_says_of_the_node_counts_from_then_on() -> None:
    node = a_node()
    pod = a_pod(cpu="3")
    pod.spec.node_selector["special"] = "yes"
    assert [refusal.reason for refusal in [node.take(pod)] if refusal] == ["OutOfcpu"]
    larger = hollow_nodes(1, 1, NodeShape({"cpu": "4", "memory": "1Gi", "pods": "3"}))[0]
    node.update(larger)
    assert [refusal.reason for refusal in [node.take(pod)] if refusal] == ["NodeAffinity"]
    larger.metadata.labels["special"] = "yes"
    node.update(larger)
    assert node.take(pod) is None


def test_what_runs_already_is_held_unjudged_and_counts() -> None:
    node = a_node()
    runs = a_pod("a", cpu="3")
    runs.spec.node_selector["disktype"] = "tape"
    node.hold(runs)
    assert node.holds("a")
    refusal = node.take(a_pod("b", cpu="1m"))
    assert refusal is not None
    assert "used: 3000, capacity: 2000" in refusal.message
    node.keep({"c"})
    assert node.take(a_pod("b", cpu="2")) is None


def test_the_first_reason_in_kubelets_order_is_the_one_that_is_told() -> None:
    pod = a_pod(cpu="3")
    pod.spec.node_selector["disktype"] = "tape"
    node = a_node(pods="0")
    reasons = []
    for offers in ({"cpu": "2", "pods": "0"}, {"cpu": "2", "pods": "1"}, {"cpu": "3", "pods": "1"}):
        node.update(hollow_nodes(1, 1, NodeShape(offers))[0])
        refusal = node.take(pod)
        reasons.append(refusal.reason if refusal else None)
    assert reasons == ["OutOfpods", "OutOfcpu", "NodeAffinity"]


@pytest.mark.parametrize(
    ("effect", "tolerated", "refused"),
    [("NoExecute", False, True), ("NoExecute", True, False), ("NoSchedule", False, False), ("PreferNoSchedule", False, False)],
)
def test_a_taint_that_would_evict_the_pod_refuses_it(effect: str, tolerated: bool, refused: bool) -> None:
    node = a_node()
    node.node.spec.taints.add(key="dedicated", effect=effect)
    pod = a_pod()
    if tolerated:
        pod.spec.tolerations.add(key="dedicated", operator="Exists")
    refusal = node.take(pod)
    assert (refusal is not None and refusal.reason == "TaintToleration") is refused


def test_hollow_nodes_are_spread_over_zones_evenly() -> None:
    nodes = hollow_nodes(100, 3, NodeShape())
    zones = [node.metadata.labels["topology.kubernetes.io/zone"] for node in nodes]
    assert sorted((zones.count(zone) for zone in set(zones)), reverse=True) == [34, 33, 33]
    assert len({node.metadata.name for node in nodes}) == 100


def test_each_zone_has_solid_state_disks_and_others() -> None:
    nodes = hollow_nodes(12, 3, NodeShape())
    found = {(node.metadata.labels["topology.kubernetes.io/zone"], node.metadata.labels["disktype"]) for node in nodes}
    assert found == {(zone, disk) for zone in ("zone-a", "zone-b", "zone-c") for disk in ("ssd", "hdd")}
