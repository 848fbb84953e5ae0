"""The snapshot: what nodes offer, what pods take, and which changes are logged."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from rayched.snapshot import unused_values
from rayched.snapshot.columns import Log
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.table import ALL_ASPECTS
from rayched.snapshot.templates import TemplateTable
from rayched.snapshot.verification import SnapshotError, verify
from rayched.v1.core_pb2 import Node
from tests.snapshot.objects import a_node, a_pod


@pytest.fixture
def snapshot() -> Snapshot:
    return Snapshot()


@pytest.fixture
def templates() -> TemplateTable:
    return TemplateTable()


def changed_aspects(snapshot: Snapshot, change: Callable[[], Any]) -> Log:
    before = {aspect: snapshot.log(aspect).end for aspect in Log}
    change()
    return Log(sum(aspect for aspect in Log if snapshot.log(aspect).end != before[aspect]))


def requested(snapshot: Snapshot, name: str) -> dict[str, int]:
    row = snapshot.row_of(name)
    assert row is not None
    return {resource: int(snapshot.requested[place, row]) for resource, place in snapshot.resources.items()}


def test_a_bound_pod_takes_up_its_requests_and_counts_as_one_pod(snapshot: Snapshot, templates: TemplateTable) -> None:
    snapshot.add_node(a_node("a"))
    snapshot.bind("u1", templates.intern(a_pod({"cpu": "1500m", "memory": "1Gi", "example.com/gpu": "2"})), "a")
    snapshot.bind("u2", templates.intern(a_pod()), "a")
    assert requested(snapshot, "a") == {
        "cpu": 1500,
        "memory": 1 << 30,
        "ephemeral-storage": 0,
        "pods": 2,
        "example.com/gpu": 2,
    }
    # A container that asks for nothing counts with 100 milli-CPU and 200 MiB where scores are concerned.
    assert snapshot.non_zero_requested[:, 0].tolist() == [1600, (1 << 30) + (200 << 20)]
    snapshot.unbind("u1")
    assert requested(snapshot, "a")["cpu"] == 0
    verify(snapshot)


@pytest.mark.row("F10")
def test_binding_twice_is_binding_once_and_binding_elsewhere_is_moving(snapshot: Snapshot, templates: TemplateTable) -> None:
    template = templates.intern(a_pod({"cpu": "1"}))
    for name in "ab":
        snapshot.add_node(a_node(name))
    snapshot.bind("u", template, "a")
    assert changed_aspects(snapshot, lambda: snapshot.bind("u", template, "a")) == Log(0)
    snapshot.bind("u", template, "b")
    assert (requested(snapshot, "a")["cpu"], requested(snapshot, "b")["cpu"]) == (0, 1000)
    snapshot.bind("u", templates.intern(a_pod({"cpu": "2"})), "b")
    assert requested(snapshot, "b")["cpu"] == 2000
    assert snapshot.unbind("unknown") is None
    bound = snapshot.unbind("u")
    assert bound is not None and bound.node_name == "b" and snapshot.n_pods == 0


def test_pods_of_a_node_that_is_not_there_count_when_it_arrives_and_when_it_returns(
    snapshot: Snapshot, templates: TemplateTable
) -> None:
    template = templates.intern(a_pod({"cpu": "1"}, ports=[("TCP", 80, "")]))
    snapshot.bind("u", template, "late")
    assert snapshot.row_of("late") is None and list(snapshot.pods_on("late")) == ["u"]
    snapshot.add_node(a_node("late"))
    assert requested(snapshot, "late")["cpu"] == 1000
    snapshot.remove_node("late")
    assert snapshot.bound("u") is not None and not snapshot.port_use
    verify(snapshot)
    snapshot.add_node(a_node("other"))
    snapshot.add_node(a_node("late"))
    assert (requested(snapshot, "other")["cpu"], requested(snapshot, "late")["cpu"]) == (0, 1000)
    snapshot.unbind("u")
    assert not snapshot.pods_on("late")
    verify(snapshot)


def test_rows_of_nodes_that_left_are_used_again_the_lowest_first(snapshot: Snapshot) -> None:
    for name in "abcd":
        snapshot.add_node(a_node(name, labels={"zone": name}))
    snapshot.remove_node("c")
    snapshot.remove_node("a")
    assert snapshot.alive.tolist() == [False, True, False, True]
    assert (snapshot.add_node(a_node("e")), snapshot.add_node(a_node("f")), snapshot.add_node(a_node("g"))) == (0, 2, 4)
    assert snapshot.n_rows == 5 and snapshot.n_nodes == 5
    verify(snapshot)


def test_a_table_that_grows_keeps_what_it_holds(snapshot: Snapshot, templates: TemplateTable) -> None:
    template = templates.intern(a_pod({"cpu": "1"}))
    for number in range(300):
        snapshot.add_node(a_node(f"n{number}", labels={"number": str(number)}, taints=[("k", str(number % 3), "NoSchedule")]))
        snapshot.bind(f"u{number}", template, f"n{number}")
    verify(snapshot)
    assert snapshot.capacity >= 300


_NODE = a_node("a", labels={"zone": "x"}, taints=[("k", "v", "NoSchedule")], images={"app": 5})


def _changed(change: Callable[[Node], Any]) -> Node:
    node = copy.deepcopy(_NODE)
    change(node)
    return node


@pytest.mark.parametrize(
    ("node", "aspects"),
    [
        (_NODE, Log(0)),
        (_changed(lambda n: n.metadata.annotations.update({"a": "b"})), Log(0)),
        (_changed(lambda n: n.status.conditions.add(type="Ready")), Log(0)),
        (_changed(lambda n: n.spec.taints[0].time_added.FromSeconds(5)), Log(0)),
        (_changed(lambda n: n.metadata.labels.update({"zone": "y"})), Log.LABELS),
        (_changed(lambda n: n.metadata.labels.clear()), Log.LABELS),
        (_changed(lambda n: n.spec.taints.pop()), Log.TAINTS),
        (_changed(lambda n: setattr(n.spec.taints[0], "effect", "NoExecute")), Log.TAINTS),
        (_changed(lambda n: setattr(n.spec, "unschedulable", True)), Log.UNSCHEDULABLE),
        (_changed(lambda n: setattr(n.status.allocatable["cpu"], "string", "5")), Log.USAGE),
        (_changed(lambda n: n.status.allocatable.pop("cpu")), Log.USAGE),
        (_changed(lambda n: setattr(n.status.images[0], "size_bytes", 7)), Log.IMAGES),
    ],
)
def test_an_update_logs_the_aspects_that_changed_and_no_others(snapshot: Snapshot, node: Node, aspects: Log) -> None:
    snapshot.add_node(_NODE)
    assert changed_aspects(snapshot, lambda: snapshot.update_node(node)) == aspects
    verify(snapshot)


def test_a_node_that_comes_or_goes_is_in_every_log(snapshot: Snapshot) -> None:
    assert changed_aspects(snapshot, lambda: snapshot.add_node(_NODE)) == ALL_ASPECTS
    assert changed_aspects(snapshot, lambda: snapshot.remove_node("a")) == ALL_ASPECTS
    assert changed_aspects(snapshot, lambda: snapshot.remove_node("a")) == Log(0)


def test_a_pod_with_host_ports_is_in_the_log_of_ports(snapshot: Snapshot, templates: TemplateTable) -> None:
    snapshot.add_node(_NODE)
    assert changed_aspects(snapshot, lambda: snapshot.bind("u", templates.intern(a_pod()), "a")) == Log.USAGE
    with_port = templates.intern(a_pod(ports=[("UDP", 53, "10.0.0.1"), ("UDP", 53, "10.0.0.1")]))
    assert changed_aspects(snapshot, lambda: snapshot.bind("v", with_port, "a")) == Log.USAGE | Log.PORTS
    rows = Rows(snapshot, slice(0, 1))
    assert rows.port_ips("UDP", 53) == ("10.0.0.1",) and rows.port_users("UDP", 53, "10.0.0.1").tolist() == [1]
    snapshot.bind("w", with_port, "a")
    assert Rows(snapshot, slice(0, 1)).port_users("UDP", 53, "10.0.0.1").tolist() == [2]
    snapshot.unbind("v")
    snapshot.unbind("w")
    assert rows.port_ips("UDP", 53) == () and not snapshot.port_use


def test_an_image_has_the_size_of_the_node_that_first_had_it_until_nobody_has_it(snapshot: Snapshot) -> None:
    snapshot.add_node(a_node("a", images={"app": 5}))
    snapshot.add_node(a_node("b", images={"app": 9, "db": 1}))
    assert snapshot.image_state("app") == (5, 2) and snapshot.image_state("db") == (1, 1)
    snapshot.remove_node("a")
    assert snapshot.image_state("app") == (5, 1)
    snapshot.update_node(a_node("b", images={"app": 8}))
    assert snapshot.image_state("app") == (8, 1) and snapshot.image_state("db") == (0, 0)


def test_any_change_of_images_or_of_the_number_of_nodes_concerns_all_rows(snapshot: Snapshot) -> None:
    log = snapshot.log(Log.IMAGES)
    snapshot.add_node(a_node("a"))
    position = log.end
    snapshot.add_node(a_node("b"))
    # Nobody reports images, so there is nothing to share out.
    assert log.since(position) == [1]
    snapshot.update_node(a_node("a", images={"app": 5}))
    assert log.since(position) is None
    position = log.end
    snapshot.remove_node("b")
    assert log.since(position) is None


def test_interned_values_that_no_node_has_any_more_go_when_there_are_many(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unused_values, "INTERNED_MIN", 20)
    monkeypatch.setattr(unused_values, "LABEL_KEYS_MIN", 4)
    snapshot._unused._label_keys_looked_at = 4
    generations = set()
    for number in range(200):
        snapshot.remove_node(f"n{number - 2}")
        snapshot.add_node(
            a_node(
                f"n{number}",
                labels={"name": f"n{number}", f"key-{number}": "x", "number": str(number)},
                taints=[("k", str(number), "NoSchedule")],
                images={f"image-{number}": 1},
            )
        )
        verify(snapshot)
        generations.add(snapshot.generation)
        integers, valid = Rows(snapshot, slice(0, snapshot.n_rows)).label_int("number")
        names = [snapshot.name_of(row) for row in range(snapshot.n_rows)]
        assert [f"n{i}" if ok else "" for i, ok in zip(integers, valid, strict=True)] == names
    assert len(generations) > 5
    assert len(snapshot.label_values) < 200 and len(snapshot.taint_sets) < 50 and len(snapshot.image_sets) < 50
    assert len(snapshot.labels) < 20


def test_verification_finds_a_column_that_went_wrong(snapshot: Snapshot, templates: TemplateTable) -> None:
    snapshot.add_node(a_node("a"))
    snapshot.bind("u", templates.intern(a_pod({"cpu": "1"})), "a")
    snapshot.requested[0, 0] += 1
    with pytest.raises(SnapshotError, match=r'row 0: requested\["cpu"\] is 1001, expected 1000'):
        verify(snapshot)
