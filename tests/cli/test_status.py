"""status: how full a cluster is, in figures that add up."""

from __future__ import annotations

import json

import pytest

from rayched.cli.scheduling.status_command import BAR, amount_text, bar, fullness
from rayched.nodes.shapes import ZONE_LABEL
from rayched.v1.core_pb2 import Node, Pod
from tests.cli.cluster import Commands


def a_node(name: str, zone: str, ready: str = "True") -> Node:
    node = Node(metadata={"name": name, "labels": {ZONE_LABEL: zone} if zone else {}})
    for resource, amount in {"cpu": "4", "memory": "8Gi", "pods": "10", "example.com/gpu": "2"}.items():
        node.status.allocatable[resource].string = amount
    node.status.conditions.add(type="Ready", status=ready)
    return node


def a_pod(name: str, node: str, phase: str, cpu: str = "500m") -> Pod:
    pod = Pod(metadata={"name": name})
    pod.spec.node_name = node
    pod.status.phase = phase
    pod.spec.containers.add(name="main").resources.requests["cpu"].string = cpu
    return pod


def test_pods_count_where_they_are_and_those_that_ended_take_nothing() -> None:
    nodes = [a_node("a", "x"), a_node("b", "x", "False"), a_node("c", "")]
    pods = [
        a_pod("1", "a", "Running"),
        a_pod("2", "c", "Pending", "2"),
        a_pod("3", "a", "Succeeded"),
        a_pod("4", "", "Pending"),
        a_pod("5", "gone", "Running"),
    ]
    found = fullness(nodes, pods, ZONE_LABEL)
    assert dict(found.nodes) == {"Ready": 2, "NotReady": 1}
    assert dict(found.pods) == {"Running": 2, "Starting": 1, "Succeeded": 1, "Pending": 1}
    assert found.total.offered == {"cpu": 12_000, "memory": 24 << 30, "pods": 30, "example.com/gpu": 6}
    assert found.total.requested == {"cpu": 2_500, "pods": 2}
    assert {name: (one.nodes, one.requested["cpu"]) for name, one in found.groups.items()} == {
        "x": (2, 500),
        "<none>": (1, 2_000),
    }


@pytest.mark.parametrize(
    ("part", "filled", "percent"), [(0, 0, 0), (1, 1, 0), (999, BAR - 1, 99), (1000, BAR, 100), (500, 10, 50)]
)
def test_a_bar_is_full_only_when_all_is_taken_and_empty_only_when_nothing_is(part: int, filled: int, percent: int) -> None:
    assert bar(part, 1000) == f"[{'#' * filled}{'.' * (BAR - filled)}] {percent:3}%"
    assert bar(0, 0).startswith("[....")


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("cpu", 2500, "2.5"),
        ("memory", 512 << 20, "512Mi"),
        ("memory", 1 << 40, "1Ti"),
        ("memory", 5, "5"),
        ("pods", 110, "110"),
        ("memory", 1023 << 20, "1023Mi"),
    ],
)
def test_amounts_are_short(name: str, amount: int, text: str) -> None:
    assert amount_text(name, amount) == text


@pytest.mark.cluster
def test_the_cluster_as_a_whole_and_by_zone(rayched: Commands, web: str) -> None:
    lines = rayched.ok("status")
    assert lines[0].startswith("Nodes:  ") and "Ready" in lines[0]
    assert "1 unschedulable" in lines[2] or "unschedulable" in lines[2]
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines]
    assert any(row[:1] == ["cpu"] for row in rows) and any(row[:2] == ["zone-a", "cpu"] for row in rows)
    whole = json.loads("\n".join(rayched.ok("status", "-o", "json", "--by", "disktype")))
    assert whole["by"]["label"] == "disktype" and set(whole["by"]["groups"]) == {"hdd", "ssd"}
    of_groups = sum(group["requested"].get("cpu", 0) for group in whole["by"]["groups"].values())
    assert of_groups == whole["total"]["requested"]["cpu"] > 0
    assert whole["queue"]["unschedulable"] >= 1
