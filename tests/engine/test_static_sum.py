"""A static sum is what adding up its plugins node by node gives, for any bounds; bounds that it proves are those of the rows."""

from __future__ import annotations

from collections.abc import Hashable
from random import Random
from typing import Any

import numpy as np
import pytest

from rayched.engine import static_sum
from rayched.engine.cached_columns import FilterColumn, FinalScoreColumn, RawScoreColumn
from rayched.engine.prepared import ColumnKey, PluginHalf, PreparedPlugin
from rayched.engine.scale import TotalColumn, scale_for
from rayched.engine.shards import ColumnBuilder
from rayched.engine.static_sum import AllBounds, StaticSum, WeightedFinal, WeightedRaw
from rayched.framework.plugin import ColumnPlugin
from rayched.snapshot.columns import Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.v1.core_pb2 import Node, Pod
from tests.engine.toy_clusters import World
from tests.engine.toy_plugins import Cordon, Rank, Taints, stretched_rank
from tests.snapshot.objects import a_node

WEIGHTS = 3, 2, 5
SCALE = scale_for(WEIGHTS)
FACTOR = -2


class Number:
    """Score: the label "rank" as it is, which may be no score at all."""

    name = "Number"
    reads = Log.LABELS

    def key(self, pod: Pod) -> Hashable | None:
        return ()

    def prepare(self, pod: Pod) -> Any:
        return ()

    def score(self, state: Any, rows: Rows) -> ScoreColumn:
        ranks, valid = rows.label_int("rank")
        return np.where(valid, ranks, 0)


class Beyond(Number):
    """The same, normalised so that some ranks come out above 100."""

    name = "Beyond"

    def normalize(self, raw: ScoreColumn, low: int, high: int) -> ScoreColumn:
        return 40 * np.maximum(raw, 0)


def question(plugin: ColumnPlugin, part: PluginHalf, state: Any) -> ColumnKey:
    return ColumnKey(PreparedPlugin((plugin.name, part), plugin, state, b""), part)


def a_sum(snapshot: Snapshot) -> StaticSum:
    filters = [
        FilterColumn("cordon", snapshot, question(Cordon(), PluginHalf.FILTER, ())),
        FilterColumn("taints", snapshot, question(Taints(), PluginHalf.FILTER, ())),
    ]
    final = FinalScoreColumn("number", snapshot, question(Number(), PluginHalf.SCORE, ()))
    raws = [
        RawScoreColumn("rank", snapshot, question(Rank(), PluginHalf.SCORE, ((), FACTOR))),
        RawScoreColumn("beyond", snapshot, question(Beyond(), PluginHalf.SCORE, ())),
    ]
    weighted = [WeightedRaw(raw, weight) for raw, weight in zip(raws, WEIGHTS[1:], strict=True)]
    return StaticSum("sum", snapshot, SCALE, filters, [WeightedFinal(final, WEIGHTS[0])], weighted)


def rank(node: Node) -> int:
    text = node.metadata.labels.get("rank", "")
    return int(text) if text.lstrip("-").isdigit() else 0


class Oracle:
    """Node by node, from the node objects."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes = [snapshot.node(name) for name in snapshot.names[: snapshot.n_rows]]

    def passes(self, node: Node | None) -> bool:
        return node is not None and not node.spec.unschedulable and "hard" not in [taint.key for taint in node.spec.taints]

    @property
    def passing(self) -> list[bool]:
        return [self.passes(node) for node in self.nodes]

    def parts(self, node: Node, bounds: AllBounds) -> tuple[int, int, int]:
        (low, high), (lowest, highest) = bounds
        moved = min(max(FACTOR * rank(node), low), high)
        return rank(node), stretched_rank(moved, low, high), 40 * max(min(max(rank(node), lowest), highest), 0)

    def column(self, bounds: AllBounds) -> list[int]:
        """What is no score counts as the highest one."""
        return [
            sum(
                weight * (part if 0 <= part <= 100 else 100)
                for weight, part in zip(WEIGHTS, self.parts(node, bounds), strict=True)
            )
            if node is not None and self.passes(node)
            else SCALE.infeasible
            for node in self.nodes
        ]

    def bounds(self, rows: list[int]) -> AllBounds:
        ranks = [rank(node) for row, node in enumerate(self.nodes) if node is not None and row in rows]
        factored = [FACTOR * one for one in ranks]
        return ((min(factored), max(factored)), (min(ranks), max(ranks))) if ranks else ((0, 0), (0, 0))


def some_bounds(random: Random, oracle: Oracle) -> AllBounds:
    rows = [row for row, passes in enumerate(oracle.passing) if passes]
    return oracle.bounds(random.sample(rows, random.randint(0, len(rows))))


def a_total(random: Random, static: StaticSum, n_rows: int, bounds: AllBounds) -> TotalColumn:
    """As after filters that bindings change: some of the passing rows are feasible, one at least where there is any."""
    total = static.column(bounds)[:n_rows].copy()
    passing = (total >= 0).nonzero()[0].tolist()
    random.shuffle(passing)
    total[passing[: random.randint(0, max(len(passing) - 1, 0))]] = SCALE.infeasible
    return total


@pytest.mark.parametrize("one_by_one", [0, 4, 100])
@pytest.mark.parametrize("seed", range(4))
def test_it_is_what_adding_up_node_by_node_gives(seed: int, one_by_one: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_sum, "FEW", one_by_one)
    monkeypatch.setattr(static_sum, "PROOFS_MAX", 3)
    world = World(seed, n_nodes=14)
    random, snapshot = world.random, world.snapshot
    static, build = a_sum(snapshot), ColumnBuilder(snapshot, None).build
    version = -1
    for step in range(80):
        for _ in range(random.choice((0, 1, 1, 1, 3, 8))):
            random.choice((world.update_node, world.update_node, world.update_node, world.add_node, world.remove_node))()
        oracle, n_rows, what = Oracle(snapshot), snapshot.n_rows, f"seed {seed}, step {step}"
        was_behind = static.is_behind()
        looked_at = static.refresh(build)
        assert not static.is_behind() and static.refresh(build) == [], what
        assert (static.version > version) == was_behind, what
        version = static.version
        assert looked_at is None or bool(looked_at) == was_behind, what
        assert static.passing[:n_rows].tolist() == oracle.passing and not static.passing[n_rows:].any(), what
        passing = [row for row, passes in enumerate(oracle.passing) if passes]
        # Where no row passes there is nothing to be bound.
        ranges = oracle.bounds(passing) if passing else static.ranges()
        assert static.ranges() == ranges, what
        for bounds in (ranges, some_bounds(random, oracle), some_bounds(random, oracle)):
            assert static.column(bounds)[:n_rows].tolist() == oracle.column(bounds), what
            # A score of a row that is not feasible may be outside as well; it is for those that ask to find out.
            there = [node for node in oracle.nodes if node is not None and oracle.passes(node)]
            outside = [not 0 <= part <= 100 for node in there for part in oracle.parts(node, bounds)]
            assert static.has_outside(bounds) or not any(outside), what
            assert static.are_sure(bounds) == (bounds == ranges and all(low == high for low, high in ranges)), what
            if passing:
                total = a_total(random, static, n_rows, bounds)
                true = oracle.bounds((total >= 0).nonzero()[0].tolist())
                assert not static.hold(bounds, total) or bounds == true, what
                assert static.bounds_of(total) == true and static.hold(true, total), what


def test_nothing_is_outside_where_every_score_is_one() -> None:
    """Also after a node came to have a score that is none, and was mended."""
    snapshot = Snapshot()
    for number in range(6):
        snapshot.add_node(a_node(f"n{number}", labels={"rank": "2"}))
    static, build = a_sum(snapshot), ColumnBuilder(snapshot, None).build
    bounds = ((-4, -4), (2, 2))
    for rank_now, outside in (("2", False), ("1", False), ("-1", True), ("101", True), ("100", True), ("0", False)):
        snapshot.update_node(a_node("n3", labels={"rank": rank_now}))
        static.refresh(build)
        static.column(((-4, -4), (0, 100) if rank_now == "100" else (0, 2)))
        assert static.has_outside(((-4, -4), (0, 100) if rank_now == "100" else (0, 2))) is outside, rank_now
    snapshot.update_node(a_node("n3", labels={"rank": "2"}))
    static.refresh(build)
    static.column(bounds)
    assert not static.has_outside(bounds) and static.are_sure(bounds)


def test_bounds_hold_while_a_witness_of_each_end_is_feasible_and_nobody_beyond_them_is() -> None:
    snapshot = Snapshot()
    for number in range(8):
        snapshot.add_node(a_node(f"n{number}", labels={"rank": str(number // 2)}))
    static = a_sum(snapshot)
    static.refresh(ColumnBuilder(snapshot, None).build)
    assert static.ranges() == ((-6, 0), (0, 3))

    def total(*feasible: int) -> TotalColumn:
        column = np.full(8, SCALE.infeasible, SCALE.dtype)
        column[list(feasible)] = 0
        return column

    middle = ((-4, -2), (1, 2))
    assert static.bounds_of(total(2, 3, 4, 5)) == middle
    assert static.hold(middle, total(2, 4)) and static.hold(middle, total(3, 5)) and static.hold(middle, total(2, 3, 5))
    assert not static.hold(middle, total(2, 3)), "nobody has the upper end"
    assert not static.hold(middle, total(4, 5)), "nobody has the lower end"
    assert not static.hold(middle, total(1, 2, 4)), "one lies below"
    assert not static.hold(middle, total(2, 4, 7)), "one lies above"
    assert static.hold(middle, total(3, 4))


def test_a_proof_goes_by_few_rows_of_each_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_sum, "WITNESSES_MAX", 1)
    test_bounds = ((-2, 0), (0, 1))
    snapshot = Snapshot()
    for number in range(4):
        snapshot.add_node(a_node(f"n{number}", labels={"rank": str(number // 2)}))
    static = a_sum(snapshot)
    static.refresh(ColumnBuilder(snapshot, None).build)
    total = np.zeros(4, SCALE.dtype)
    assert static.bounds_of(total) == test_bounds and static.hold(test_bounds, total)
    total[0] = SCALE.infeasible
    assert not static.hold(test_bounds, total), "its only witness is gone, so the bounds are looked for anew"
    assert static.bounds_of(total) == test_bounds and static.hold(test_bounds, total)


def test_its_bytes_are_those_of_its_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_sum, "BOUNDS_MAX", 2)
    snapshot = Snapshot()
    for number in range(4):
        snapshot.add_node(a_node(f"n{number}", labels={"rank": str(number)}))
    static = a_sum(snapshot)
    static.refresh(ColumnBuilder(snapshot, None).build)
    assert static.n_bytes == snapshot.capacity
    for number in range(1, 5):
        static.column(((-number, 0), (0, number)))
        assert static.n_bytes == snapshot.capacity * (1 + min(number, 2) * SCALE.dtype.itemsize)
    before = static.n_bytes
    static.bounds_of(np.zeros(4, SCALE.dtype))
    assert static.n_bytes > before
