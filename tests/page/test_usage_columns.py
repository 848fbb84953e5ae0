"""Columns of the heat map against a cluster that is added up anew each time; and how large they are."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.page.assets import read_assets
from rayched.page.usage_columns import CORDONED, EXTENDED_MAX, NOT_READY, TAINTED, Amounts3, UsageColumns
from rayched.v1.core_pb2 import Node, NodeCondition, Taint
from tests.page.streams import SeenColumns

GI = 1 << 30
ZONE = "topology.kubernetes.io/zone"
SENT_BYTES_MAX = 400_000


def a_node(name: str, zone: str = "a", cpu: int = 4, *, cordoned: bool = False, ready: str = "True", taint: str = "") -> Node:
    node = Node()
    node.metadata.name = name
    node.metadata.labels[ZONE] = zone
    node.spec.unschedulable = cordoned
    for resource, amount in (("cpu", str(cpu)), ("memory", "16Gi"), ("pods", "110")):
        node.status.allocatable[resource].string = amount
    if ready:
        node.status.conditions.append(NodeCondition(type="Ready", status=ready))
    if taint:
        node.spec.taints.append(Taint(key=taint, effect="NoSchedule"))
    return node


def pods(count: int, milli_cpu: int = 500) -> Amounts3:
    """What so many take up together, each `milli_cpu` and a gibibyte."""
    return count * milli_cpu, count * GI, count


Step = tuple[str, int, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["node", "gone", "pods", "all pods", "anew", "look"]),
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(1, 9),
    ),
    max_size=40,
)


@pytest.mark.row("UI10", "UI13", "UI16")
@given(STEPS)
def test_whatever_happens_readers_have_the_sums_of_what_is_there(steps: Sequence[Step]) -> None:
    columns, seen = UsageColumns(), SeenColumns()
    nodes: dict[str, tuple[str, int]] = {}
    allocated: dict[str, Amounts3] = {}
    at = 0
    for what, node_number, count, size in [*steps, ("look", 0, 0, 1)]:
        node = f"node-{node_number}"
        if what == "node":
            nodes[node] = (f"zone-{size % 3}", size)
            columns.see_node(a_node(node, f"zone-{size % 3}", size))
        elif what == "gone":
            nodes.pop(node, None)
            columns.forget_node(node)
        elif what == "pods":
            allocated[node] = pods(count, size * 100)
            columns.see_allocated(node, allocated[node])
        elif what == "all pods":
            allocated = {node: pods(count, size * 100)}
            columns.see_all_allocated(allocated)
        elif what == "anew":
            nodes.clear()
            columns.forget_nodes()
        elif (news := columns.since(at)) is not None:
            seen.take(json.loads(json.dumps(news)))
            at = columns.sequence
    wanted = {}
    for name, (_, cpu) in nodes.items():
        taken, _, here = allocated.get(name, (0, 0, 0))
        wanted[name] = [min(1000, taken * 1000 // (cpu * 1000)), here * 1000 // 16, here * 1000 // 110, 0]
        assert columns.allocated_on(name) == allocated.get(name, (0, 0, 0))
    assert seen.rows == wanted
    assert seen.zone == {name: zone for name, (zone, _) in nodes.items()}
    assert list(seen.rows) == sorted(nodes)
    per_zone = Counter(zone for zone, _ in nodes.values())
    assert {zone.zone: zone.nodes for zone in columns.zones()} == dict(per_zone)
    for zone in columns.zones():
        there = [allocated.get(name, (0, 0, 0)) for name, (its_zone, _) in nodes.items() if its_zone == zone.zone]
        assert zone.used == tuple(map(sum, zip(*there, strict=True)))


def a_gpu_node(name: str, **offered: int) -> Node:
    """With so many of each extended resource of example.com."""
    node = a_node(name)
    for resource, amount in offered.items():
        node.status.allocatable[f"example.com/{resource}"].string = str(amount)
    return node


@pytest.mark.row("UI10")
def test_extended_resources_that_nodes_offer_are_columns_too() -> None:
    columns, seen, at = UsageColumns(), SeenColumns(), 0

    def look() -> dict[str, list[int]]:
        nonlocal at
        if (news := columns.since(at)) is not None:
            seen.take(json.loads(json.dumps(news)))
        at = columns.sequence
        return {name: row[4:] for name, row in seen.rows.items()}

    columns.see_node(a_node("a"))
    columns.see_node(a_gpu_node("b", gpu=4))
    columns.see_node(a_gpu_node("c", gpu=8, nic=2))
    assert columns.extended == ("example.com/gpu", "example.com/nic")
    # What pods take up of them is not known yet.
    columns.see_allocated("c", pods(1))
    assert look() == {"a": [-1, -1], "b": [0, -1], "c": [0, 0]} and seen.extended == list(columns.extended)
    columns.see_all_allocated({"a": (*pods(1), 0, 0), "b": (*pods(1), 3, 0), "c": (*pods(2), 2, 2)})
    assert look() == {"a": [-1, -1], "b": [750, -1], "c": [250, 1000]}
    columns.see_allocated("b", (*pods(1), 4, 0))
    assert look()["b"] == [1000, -1]
    # Another resource is before the others: what is known of these is not taken for what is known of it.
    columns.see_node(a_gpu_node("d", fpga=2, nic=1))
    assert look()["b"] == [-1, 0, -1] and look()["c"] == [-1, 0, 0]
    columns.forget_node("d")
    columns.see_allocated("b", (*pods(1), 4, 0))
    assert look()["b"] == [1000, -1]
    # It has more of what is known, and then none of it.
    columns.see_node(a_gpu_node("b", gpu=16))
    assert look()["b"] == [250, -1]
    columns.see_node(a_node("b"))
    assert look()["b"] == [-1, -1]
    columns.forget_node("c")
    assert columns.extended == () and look() == {"a": [], "b": []}
    # Of very many the first ones.
    columns.see_node(a_gpu_node("d", **{f"r{number:02}": 1 for number in range(40)}))
    assert columns.extended == tuple(f"example.com/r{number:02}" for number in range(EXTENDED_MAX))
    columns.forget_nodes()
    assert columns.extended == () and columns.full()["extended"] == {}


@pytest.mark.row("UI14")
def test_states_are_bits_and_the_nodes_own_trouble_is_no_taint() -> None:
    columns = UsageColumns()
    columns.see_node(a_node("a", cordoned=True))
    columns.see_node(a_node("b", ready="False", taint="node.kubernetes.io/not-ready"))
    columns.see_node(a_node("c", taint="dedicated"))
    columns.see_node(a_node("d", ready=""))
    assert columns.full()["state"] == [CORDONED, NOT_READY, TAINTED, NOT_READY]
    (zone,) = columns.zones()
    assert (zone.nodes, zone.ready, zone.unusable) == (4, 1, (12_000, 48 * GI, 330))


def test_who_has_all_is_told_what_changed_alone() -> None:
    columns = UsageColumns()
    for number in range(50):
        columns.see_node(a_node(f"node-{number:02}"))
    columns.full()
    at = columns.sequence
    assert columns.since(at) is None
    columns.see_node(a_node("node-07"))
    assert columns.since(at) is None
    columns.see_allocated("node-07", pods(1))
    columns.see_allocated("node-07", pods(1))
    news = columns.since(at)
    assert news is not None and news["rows"] == [[7, 125, 62, 9, 0]]
    columns.see_allocated("node-07", pods(1, 2_000))
    assert columns.full()["cpu"][7] == 500 and columns.allocated_on("node-07") == (2_000, GI, 1)
    # Of all nodes at once those that changed alone.
    at = columns.sequence
    columns.see_all_allocated({"node-07": pods(1, 2_000), "node-08": pods(1, 1_000), "node-09": (0, 0, 0)})
    news = columns.since(at)
    assert news is not None and [row[0] for row in news["rows"]] == [8]
    columns.see_all_allocated({"node-08": pods(1, 1_000)})
    assert columns.full()["cpu"][7:9] == [0, 250]
    assert columns.since(columns.sequence) is None
    columns.see_node(a_node("node-07", "other"))
    news = columns.since(at + 1)
    assert news is not None and news["full"]
    # What pods take up may come before their node.
    columns.see_allocated("node-99", pods(1))
    columns.see_node(a_node("node-99"))
    assert columns.full()["cpu"][-1] == 125 and len(columns) == 51


@pytest.mark.row("UI2")
def test_five_thousand_nodes_with_fifty_thousand_pods_are_few_bytes() -> None:
    draw = random.Random(7)
    columns = UsageColumns()
    for number in range(5_000):
        columns.see_node(a_node(f"node-{number:04}", f"zone-{number % 5}"))
        columns.see_allocated(f"node-{number:04}", pods(draw.randrange(5, 16), draw.randrange(1, 800)))
    full = json.dumps(columns.full(), separators=(",", ":"))
    zones = json.dumps([zone.plain() for zone in columns.zones()])
    assert len(full) + len(zones) < SENT_BYTES_MAX * 0.6
    at = columns.sequence
    for _ in range(250):
        columns.see_allocated(f"node-{draw.randrange(5_000):04}", pods(20))
    news = columns.since(at)
    assert news is not None and len(json.dumps(news, separators=(",", ":"))) < 8_000
    # The files are what else comes over the wire.
    assert len(full) + sum(len(asset.body) + 800 for asset in read_assets().files.values()) < SENT_BYTES_MAX
