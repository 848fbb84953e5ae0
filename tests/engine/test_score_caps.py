"""Caps from host ports and from rows that are left out: what they are, and which rows are said to have changed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from rayched.engine import score_caps
from rayched.engine.cached_columns import FilterColumn
from rayched.engine.prepared import ColumnKey, PluginHalf, PreparedPlugin
from rayched.engine.scale import TotalColumn, scale_for
from rayched.engine.score_caps import NO_ROWS, FilterCap, RowsCap
from rayched.engine.shards import ColumnBuilder
from rayched.snapshot.snapshot import Snapshot
from tests.engine.spies import TEMPLATES, a_snapshot
from tests.engine.toy_plugins import Ports
from tests.snapshot.objects import a_node, a_pod

SCALE = scale_for((1, 3))


def of_port_80(snapshot: Snapshot) -> FilterCap:
    column = FilterColumn("ports", snapshot, ColumnKey(PreparedPlugin("ports", Ports(), (80,), b""), PluginHalf.FILTER))
    return FilterCap("cap", snapshot, SCALE, column)


def lowered(cap: FilterCap | RowsCap, n_rows: int) -> TotalColumn:
    """What it makes of totals of 7."""
    total: TotalColumn = np.full(n_rows, 7, SCALE.dtype)
    cap.lower(total)
    return total


class World:
    """Nodes on which pods with host ports come and go."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.snapshot = a_snapshot(12)
        self.bound: list[str] = []
        self.number = 0

    def change(self) -> None:
        random, snapshot = self.random, self.snapshot
        match random.randrange(6):
            case 0 if self.bound:
                snapshot.unbind(self.bound.pop(random.randrange(len(self.bound))))
            case 1:
                name = f"n{random.randrange(1, 20)}"
                if name in snapshot.node_names() and random.random() < 0.5:
                    gone = set(snapshot.pods_on(name))
                    snapshot.remove_node(name)
                    self.bound = [uid for uid in self.bound if uid not in gone]
                else:
                    snapshot.add_node(a_node(name, {"cpu": "4", "pods": "10"}))
            case _:
                self.number += 1
                ports = random.choice(((), (80,), (81,), (80, 81)))
                self.bound.append(f"u{self.number}")
                pod = a_pod({"cpu": "1m"})
                for port in ports:
                    pod.spec.containers[0].ports.add(host_port=port)
                snapshot.bind(self.bound[-1], TEMPLATES.intern(pod), random.choice(snapshot.node_names()))

    def taken(self) -> list[bool]:
        return [
            any(
                port.host_port == 80
                for template in self.snapshot.pods_on(self.snapshot.name_of(row)).values()
                for port in template.pod.spec.containers[0].ports
            )
            if self.snapshot.name_of(row)
            else False
            for row in range(self.snapshot.n_rows)
        ]


@pytest.mark.parametrize("changes_max", [256, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_cap_is_infeasible_where_its_filter_rejects(seed: int, changes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_caps, "CHANGES_MAX", changes_max)
    world = World(seed)
    snapshot, build = world.snapshot, ColumnBuilder(world.snapshot, None).build
    cap = of_port_80(snapshot)
    version, before = cap.version, [False] * 12
    n_followed = 0
    for step in range(120):
        for _ in range(world.random.choice((0, 1, 1, 2, 5, 9))):
            world.change()
        if cap.table.capacity > snapshot.n_rows and world.random.random() < 0.3:
            cap.filter.refresh(build)
        cap.refresh(build)
        taken, what = world.taken(), f"seed {seed}, step {step}"
        assert [cap.of(row) < 0 for row in range(snapshot.n_rows)] == taken, what
        assert lowered(cap, snapshot.n_rows).tolist() == [SCALE.infeasible if there else 7 for there in taken], what
        assert cap.is_lowering or not any(taken)
        changed = cap.changed_since(version)
        if changed is not None and len(before) == len(taken):
            n_followed += 1
            assert {row for row in range(len(taken)) if taken[row] != before[row]} <= set(changed), what
        version, before = cap.version, taken
    assert n_followed > 30


def test_while_no_port_is_taken_or_freed_no_version_grows() -> None:
    snapshot = a_snapshot(4)
    cap, build = of_port_80(snapshot), ColumnBuilder(snapshot, None).build
    with_port = a_pod({"cpu": "1m"})
    with_port.spec.containers[0].ports.add(host_port=80)
    cap.refresh(build)
    version = cap.version
    snapshot.bind("a", TEMPLATES.intern(a_pod({"cpu": "1m"})), "n1")
    cap.refresh(build)
    assert cap.version == version and cap.n_bytes == (0 if cap.column is None else cap.column.nbytes)
    snapshot.bind("b", TEMPLATES.intern(with_port), "n1")
    cap.refresh(build)
    assert cap.changed_since(version) == [1] and cap.of(1) == SCALE.infeasible


@pytest.mark.parametrize(
    ("steps", "changed"),
    [
        ([NO_ROWS], []),
        ([frozenset((1, 2))], [1, 2]),
        ([frozenset((1, 2)), frozenset((2, 3))], None),
        ([NO_ROWS, frozenset((4,))], [4]),
    ],
)
def test_rows_that_are_left_out_say_which_others_they_are(steps: Sequence[frozenset[int]], changed: list[int] | None) -> None:
    cap = RowsCap(SCALE)
    for rows in steps:
        cap.become(rows)
        assert [row for row in range(6) if cap.of(row) < 0] == sorted(rows)
        assert [row for row, total in enumerate(lowered(cap, 6).tolist()) if total < 0] == sorted(rows)
        assert cap.is_lowering == bool(rows)
    found = cap.changed_since(0)
    assert (None if found is None else sorted(found)) == changed


def test_an_array_of_rows_is_left_out_as_well() -> None:
    cap = RowsCap(SCALE)
    cap.become(np.array([0, 3]))
    assert (lowered(cap, 5) < 0).tolist() == [True, False, False, True, False]
    assert cap.of(3) == SCALE.infeasible and cap.of(1) == SCALE.open
