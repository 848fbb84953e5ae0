"""A node that changes costs what changed of it, and the snapshot is the one that would be built anew."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from rayched.api.node_difference import NodeDifference, node_difference
from rayched.snapshot.columns import Log
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.verification import verify
from rayched.v1.core_pb2 import Node
from tests.snapshot.objects import a_node

SEEDS = 20
STEPS = 120
NOTHING = NodeDifference(*[False] * len(NodeDifference._fields))


def _node() -> Node:
    node = a_node("a", labels={"zone": "x"}, taints=[("k", "v", "NoSchedule")], images={"app": 5})
    node.metadata.annotations["seen"] = "1"
    node.metadata.resource_version = "4"
    node.status.conditions.add(type="Ready", status="True")
    return node


CHANGES: list[tuple[Callable[[Node], Any], NodeDifference]] = [
    (lambda n: setattr(n.metadata, "resource_version", "5"), NOTHING),
    (lambda n: n.status.conditions[0].last_heartbeat_time.FromSeconds(9), NOTHING),
    (lambda n: setattr(n.status.allocatable["cpu"], "string", "4000m"), NOTHING),
    (lambda n: setattr(n.status.capacity["cpu"], "string", "64"), NOTHING),
    (lambda n: n.metadata.annotations.update({"seen": "2"}), NOTHING._replace(annotations=True)),
    (lambda n: n.metadata.annotations.update({"other": "1"}), NOTHING._replace(annotations=True)),
    (lambda n: n.metadata.labels.update({"zone": "y"}), NOTHING._replace(labels=True)),
    (lambda n: n.metadata.labels.clear(), NOTHING._replace(labels=True)),
    (lambda n: (n.metadata.labels.clear(), n.metadata.labels.update({"rack": "x"})), NOTHING._replace(labels=True)),
    (lambda n: n.spec.taints.pop(), NOTHING._replace(taints=True)),
    (lambda n: n.spec.taints[0].time_added.FromSeconds(5), NOTHING._replace(taints=True)),
    (lambda n: setattr(n.spec, "unschedulable", True), NOTHING._replace(cordoned=True)),
    (lambda n: setattr(n.status.allocatable["cpu"], "string", "5"), NOTHING._replace(allocatable=True)),
    (lambda n: n.status.allocatable.pop("cpu"), NOTHING._replace(allocatable=True)),
    (lambda n: setattr(n.status.images[0], "size_bytes", 7), NOTHING._replace(images=True)),
    (lambda n: setattr(n.status.conditions[0], "status", "False"), NOTHING._replace(conditions=True)),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_two_states_of_a_node_differ_in_what_was_changed(number: int) -> None:
    change, expected = CHANGES[number]
    old, new = _node(), _node()
    change(new)
    assert node_difference(old, new) == expected
    back = expected._replace(cordoned=expected.uncordoned, uncordoned=expected.cordoned)
    assert node_difference(new, old) == back


def test_a_difference_that_nobody_schedules_by_leaves_the_snapshot_as_it_is() -> None:
    snapshot, old, new = Snapshot(), _node(), _node()
    snapshot.add_node(old)
    new.metadata.annotations["seen"] = "2"
    new.status.conditions[0].status = "False"
    before = snapshot.revision, [log.end for log in snapshot.logs.values()]
    snapshot.update_node(new, node_difference(old, new))
    assert (snapshot.revision, [log.end for log in snapshot.logs.values()]) == before
    assert snapshot.node("a") is new


@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_updated_snapshot_equals_one_built_anew(seed: int) -> None:
    random = Random(seed)
    told, untold = Snapshot(), Snapshot()
    nodes: dict[str, Node] = {}
    for name in "abcdef":
        nodes[name] = a_node(name)
        told.add_node(nodes[name])
        untold.add_node(nodes[name])
    for _ in range(STEPS):
        name = random.choice("abcdef")
        new = Node()
        new.CopyFrom(nodes[name])
        for _ in range(random.choice((1, 1, 1, 3))):
            _change(random, new)
        ends = {aspect: (told.log(aspect).end, untold.log(aspect).end) for aspect in Log}
        told.update_node(new, node_difference(nodes[name], new))
        untold.update_node(new)
        nodes[name] = new
        for aspect, (ours, theirs) in ends.items():
            assert told.log(aspect).end - ours == untold.log(aspect).end - theirs, aspect
    verify(told)
    anew = Snapshot()
    for name in "abcdef":
        anew.add_node(nodes[name])
    assert _facts(told) == _facts(anew) == _facts(untold)


def _change(random: Random, node: Node) -> None:
    match random.randrange(8):
        case 0:
            node.metadata.labels[random.choice("xyz")] = random.choice("123")
        case 1:
            node.metadata.labels.pop(random.choice("xyz"), None)
        case 2:
            node.metadata.annotations["seen"] = str(random.random())
        case 3:
            node.spec.unschedulable = random.random() < 0.5
        case 4:
            node.spec.ClearField("taints")
            for key in random.sample("kl", random.randrange(3)):
                node.spec.taints.add(key=key, effect=random.choice(("NoSchedule", "PreferNoSchedule")))
        case 5:
            node.status.allocatable[random.choice(("cpu", "memory", "example.com/gpu"))].string = random.choice(
                ("1", "2000m", "2")
            )
        case 6:
            node.status.ClearField("images")
            for image in random.sample(("app", "db"), random.randrange(3)):
                node.status.images.add(names=[image], size_bytes=100)
        case 7:
            node.status.conditions.add(type="Ready", status="True").last_heartbeat_time.seconds = random.randrange(10**6)


def _facts(snapshot: Snapshot) -> dict[str, Any]:
    """Of each node all that plugins can ask about, by names in place of numbers."""
    found: dict[str, Any] = {}
    for name, row in snapshot.rows_by_name.items():
        rows = Rows(snapshot, slice(row, row + 1))
        found[name] = (
            {resource: int(snapshot.allocatable[place, row]) for resource, place in snapshot.resources.items() if place < 4},
            {key: snapshot.label_values[rows.label(key)[0]] for key in "xyz" if rows.label(key)[0] >= 0},
            [(taint.key, taint.effect) for taint in snapshot.taint_sets[rows.taint_set[0]]],
            bool(rows.unschedulable[0]),
            {image: snapshot.image_state(image) for image in snapshot.image_sets[snapshot.image_set[row]]},
        )
    return found
