"""Copies of rows: after each update a copy's rows are the snapshot's."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from rayched.snapshot import change_log, unused_values
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.table import NodeTable
from rayched.snapshot.templates import TemplateTable
from rayched.snapshot.transfer import OutOfStep, RowsUpdate, TableCopy, export_rows
from tests.engine.toy_clusters import World
from tests.snapshot.objects import a_node, a_pod


def sent(update: RowsUpdate) -> RowsUpdate:
    received: RowsUpdate = pickle.loads(pickle.dumps(update))  # noqa: S301
    return received


def assert_same_rows(copy: NodeTable, snapshot: Snapshot, rows: slice) -> None:
    found, expected = Rows(copy, rows), Rows(snapshot, rows)
    assert (copy.n_rows, copy.n_nodes, copy.resources) == (snapshot.n_rows, snapshot.n_nodes, snapshot.resources)
    for name in ("alive", "allocatable", "requested", "non_zero_requested", "unschedulable", "taint_set", "image_set"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    for key in set(copy.labels) | set(snapshot.labels):
        assert np.array_equal(found.label(key), expected.label(key)), key
        assert all(np.array_equal(a, b) for a, b in zip(found.label_int(key), expected.label_int(key), strict=True))
    for port in (80, 443):
        for ip in ("0.0.0.0", "10.0.0.1"):
            assert np.array_equal(found.port_users("TCP", port, ip), expected.port_users("TCP", port, ip))
    assert list(copy.label_values) == list(snapshot.label_values)
    assert list(copy.taint_sets) == list(snapshot.taint_sets)
    assert list(copy.image_sets) == list(snapshot.image_sets)
    assert copy.image_states == snapshot.image_states
    for row in range(rows.start, rows.stop):
        name = snapshot.name_of(row)
        assert copy.name_of(row) == name
        assert not name or copy.row_of(name) == row


@pytest.mark.parametrize("seed", range(4))
def test_copies_follow_random_changes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "ENTRIES_MAX", 12)
    monkeypatch.setattr(unused_values, "INTERNED_MIN", 10)
    monkeypatch.setattr(unused_values, "INTERNED_PER_PLACE_MAX", 1)
    world = World(seed)
    copies = [TableCopy(), TableCopy()]
    full = 0
    for _ in range(150):
        for _ in range(world.random.choice((1, 1, 5, 40))):
            world.step()
        half = world.snapshot.n_rows // 2
        for copy, rows in zip(copies, (slice(0, half), slice(half, world.snapshot.n_rows)), strict=True):
            update = sent(export_rows(world.snapshot, rows, copy.position))
            full += update.since is None
            copy.import_rows(update)
            assert_same_rows(copy, world.snapshot, rows)
    assert full > 2, "renumbered values have to be sent anew"
    assert world.snapshot.generation > 0


def test_an_update_carries_what_changed_and_little_else() -> None:
    snapshot, template = Snapshot(), TemplateTable().intern(a_pod({"cpu": "1"}))
    for number in range(1000):
        snapshot.add_node(a_node(f"n{number}", labels={"zone": f"z{number % 3}", "name": f"n{number}"}))
    rows = slice(0, 1000)
    copy = TableCopy()
    copy.import_rows(export_rows(snapshot, rows))
    assert len(pickle.dumps(export_rows(snapshot, rows, copy.position))) < 1_200
    for number in range(100):
        snapshot.bind(f"u{number}", template, f"n{number}")
    update = export_rows(snapshot, rows, copy.position)
    assert (update.labels, update.taints, update.images, update.ports, update.image_states) == (None,) * 5
    assert len(pickle.dumps(update)) < 1_500 + 100 * 100
    copy.import_rows(sent(update))
    assert_same_rows(copy, snapshot, rows)


def test_an_update_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    snapshot, template = Snapshot(), TemplateTable().intern(a_pod({"cpu": "1"}))
    snapshot.add_node(a_node("a"))
    copy = TableCopy()
    copy.import_rows(export_rows(snapshot, slice(0, 1)))
    snapshot.bind("u", template, "a")
    lost = export_rows(snapshot, slice(0, 1), copy.position)
    snapshot.unbind("u")
    late = export_rows(snapshot, slice(0, 1), lost.upto)
    with pytest.raises(OutOfStep):
        copy.import_rows(late)
    assert copy.position == lost.since
    copy.import_rows(lost)
    copy.import_rows(late)
    assert_same_rows(copy, snapshot, slice(0, 1))
