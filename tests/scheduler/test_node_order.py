"""The order in which a sampled search looks at nodes."""

from __future__ import annotations

from random import Random

import pytest

from rayched.scheduler.node_order import NodeOrder, interleaved, zone_of
from rayched.snapshot.snapshot import Snapshot
from rayched.v1.core_pb2 import Node

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


def a_node(name: str, zone: str | None = None, **labels: str) -> Node:
    node = Node()
    node.metadata.name = name
    node.metadata.labels.update(labels)
    if zone is not None:
        node.metadata.labels[ZONE] = zone
    return node


def order_of(order: NodeOrder, snapshot: Snapshot) -> list[str]:
    return [snapshot.name_of(row) for row in order.rows().tolist()]


@pytest.mark.row("K7.4")
def test_zones_take_turns_as_in_the_documentation() -> None:
    one, two = ("", "Zone 1"), ("", "Zone 2")
    nodes = [*((f"Node {i}", one) for i in (1, 2, 3, 4)), *((f"Node {i}", two) for i in (5, 6))]
    assert interleaved(nodes) == [f"Node {i}" for i in (1, 5, 2, 6, 3, 4)]


@pytest.mark.parametrize(
    ("labels", "zone"),
    [
        ({}, ("", "")),
        ({ZONE: "a"}, ("", "a")),
        ({REGION: "r", ZONE: "a"}, ("r", "a")),
        ({REGION: "r"}, ("r", "")),
        ({OLD_ZONE: "old", ZONE: "a"}, ("", "old")),
    ],
)
def test_a_zone_is_region_and_zone(labels: dict[str, str], zone: tuple[str, str]) -> None:
    assert zone_of(labels) == zone


def test_a_table_is_followed_through_every_kind_of_change() -> None:
    snapshot = Snapshot()
    order = NodeOrder(snapshot)
    assert order_of(order, snapshot) == []
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("x1", None)):
        snapshot.add_node(a_node(name, zone))
    assert order_of(order, snapshot) == ["a1", "b1", "x1", "a2"]
    snapshot.update_node(a_node("a1", "b"))
    assert order_of(order, snapshot) == ["a2", "b1", "x1", "a1"], "the end of its new zone"
    snapshot.remove_node("a2")
    assert order_of(order, snapshot) == ["b1", "x1", "a1"], "a zone without nodes loses its place"
    snapshot.add_node(a_node("a3", "a"))
    assert order_of(order, snapshot) == ["b1", "x1", "a3", "a1"], "and comes last when it returns"
    snapshot.update_node(a_node("b1", "b", disktype="ssd"))
    assert order_of(order, snapshot) == ["b1", "x1", "a3", "a1"]


@pytest.mark.parametrize("seed", range(20))
def test_a_followed_order_is_that_of_a_tree_that_saw_every_change(seed: int) -> None:
    random, snapshot = Random(seed), Snapshot()
    followed = NodeOrder(snapshot)
    tree: dict[str | None, list[str]] = {}
    for _ in range(200):
        name, zone = f"n{random.randrange(12)}", random.choice(("a", "b", "c", None))
        members = next((nodes for nodes in tree.values() if name in nodes), None)
        if members is not None and random.random() < 0.4:
            snapshot.remove_node(name)
            members.remove(name)
        elif members is None or tree.get(zone) is not members:
            snapshot.update_node(a_node(name, zone))
            if members is not None:
                members.remove(name)
            tree.setdefault(zone, []).append(name)
        tree = {zone: nodes for zone, nodes in tree.items() if nodes}
        longest = max(map(len, tree.values()), default=0)
        expected = [nodes[turn] for turn in range(longest) for nodes in tree.values() if turn < len(nodes)]
        assert order_of(followed, snapshot) == expected, f"seed {seed}"
        # One that looks for the first time now knows the nodes, if not the turns that zones took before.
        assert sorted(order_of(NodeOrder(snapshot), snapshot)) == sorted(expected)
