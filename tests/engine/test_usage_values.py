"""A usage sum is what adding up filters and scores row by row gives, and remembers no state for a wrong reason."""

from __future__ import annotations

from collections.abc import Hashable
from random import Random
from typing import Any

import numpy as np
import pytest

from rayched.engine import usage_values
from rayched.engine.prepared import ColumnKey, PluginHalf, PreparedPlugin
from rayched.engine.shards import ColumnBuilder
from rayched.engine.usage_values import UsageSum, scale_for
from rayched.snapshot.columns import CodeColumn, Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import Pod
from tests.engine.spies import TEMPLATES, a_snapshot
from tests.engine.toy_plugins import NO
from tests.snapshot.objects import a_node, a_pod

WEIGHTS = 1, 3
SCALE = scale_for(WEIGHTS)
N_NODES = 12


class Percent:
    """Score: 100, less a per cent for each 10m of CPU that bound pods take, counted from a start. Filter: more than a limit."""

    reads = Log.USAGE

    def __init__(self, name: str, start: int, limit: int) -> None:
        self.name, self.start, self.limit = name, start, limit
        self.asked: list[int] = []

    def key(self, pod: Pod) -> Hashable | None:
        return ()

    def prepare(self, pod: Pod) -> Any:
        return ()

    def filter(self, state: Any, rows: Rows) -> CodeColumn:
        return np.where(rows.requested[0] > self.limit, NO, 0)

    def reasons(self, state: Any, rows: Rows, codes: CodeColumn) -> Any:
        return [("too much", codes != 0)]

    def score(self, state: Any, rows: Rows) -> ScoreColumn:
        self.asked += rows.index.tolist()
        scores: ScoreColumn = self.start - rows.requested[0] // 10
        return scores

    def part(self, cpu: int) -> int:
        return self.start - cpu // 10

    def question(self, part: PluginHalf) -> ColumnKey:
        return ColumnKey(PreparedPlugin((self.name, part), self, (), b""), part)


class Labelled(Percent):
    """The same, but states do not tell all: it reads labels as well."""

    reads = Log.USAGE | Log.LABELS


class Bench:
    def __init__(self, seed: int, kind: type[Percent] = Percent) -> None:
        self.random, self.snapshot = Random(seed), a_snapshot(N_NODES)
        self.plugins = kind("One", 100, 700), kind("Other", 110, 900)
        filters = [plugin.question(PluginHalf.FILTER) for plugin in self.plugins]
        scores = [(plugin.question(PluginHalf.SCORE), weight) for plugin, weight in zip(self.plugins, WEIGHTS, strict=True)]
        self.sum = UsageSum("sum", self.snapshot, SCALE, filters, scores)
        self.build = ColumnBuilder(self.snapshot, None).build
        self.bound: list[str] = []

    def change(self) -> None:
        random, snapshot = self.random, self.snapshot
        match random.randrange(6):
            case 0 | 1 | 2:
                self.bound.append(f"u{random.randrange(10**9)}")
                ports = [("TCP", 80, "")] if random.random() < 0.2 else []
                pod = a_pod({"cpu": random.choice(("0", "100m", "300m", "710m"))}, ports=ports)
                snapshot.bind(self.bound[-1], TEMPLATES.intern(pod), f"n{random.randrange(N_NODES)}")
            case 3 | 4 if self.bound:
                snapshot.unbind(self.bound.pop(random.randrange(len(self.bound))))
            case 5 if random.random() < 0.3:
                name = f"n{random.randrange(N_NODES)}"
                if snapshot.remove_node(name) is None or random.random() < 0.5:
                    snapshot.add_node(a_node(name, {"cpu": random.choice("48")}, labels={"rank": random.choice("01")}))

    def cpu(self, row: int) -> int:
        """Asked for by the pods that are bound there, from their objects."""
        pods = self.snapshot.pods_on(self.snapshot.name_of(row)).values() if self.snapshot.name_of(row) else ()
        return sum(int(pod.pod.spec.containers[0].resources.requests["cpu"].string.removesuffix("m")) for pod in pods)

    def value(self, row: int) -> int:
        cpu = self.cpu(row)
        if any(cpu > plugin.limit for plugin in self.plugins):
            return SCALE.infeasible
        parts = [plugin.part(cpu) for plugin in self.plugins]
        return sum(weight * part for weight, part in zip(WEIGHTS, parts, strict=True) if 0 <= part <= 100)

    def outside(self) -> set[int]:
        """A row's score is marked whether or not the row is feasible."""
        rows = range(self.snapshot.n_rows)
        return {row for row in rows if any(not 0 <= plugin.part(self.cpu(row)) <= 100 for plugin in self.plugins)}

    def check(self, what: str) -> None:
        rows = range(self.snapshot.n_rows)
        assert self.sum.column[: len(rows)].tolist() == [self.value(row) for row in rows], what
        assert self.sum.outside == self.outside(), what


@pytest.mark.parametrize(("rows_max", "states_max"), [(16, 256), (16, 3), (0, 256), (2, 4)])
@pytest.mark.parametrize("kind", [Percent, Labelled])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_what_adding_up_row_by_row_gives(
    seed: int, kind: type[Percent], rows_max: int, states_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_values, "FEW", rows_max)
    monkeypatch.setattr(usage_values, "STATES_MAX", states_max)
    bench = Bench(seed, kind)
    assert bench.sum.reads_usage_alone is (kind is Percent)
    for step in range(120):
        for _ in range(bench.random.choice((0, 1, 1, 1, 2, 4, 9))):
            bench.change()
        bench.sum.refresh(bench.build)
        bench.check(f"seed {seed}, step {step}")
        assert len(bench.sum._states) <= max(states_max, rows_max)


def test_a_state_that_is_known_asks_no_plugin_and_one_outside_is_never_known() -> None:
    bench = Bench(0)
    plugin, snapshot = bench.plugins[0], bench.snapshot
    bench.sum.refresh(bench.build)
    assert bench.sum.n_installed == 1 and bench.sum.outside == set(range(N_NODES)), "110 is outside"
    template = TEMPLATES.intern(a_pod({"cpu": "100m"}))

    def asked(row: int) -> list[int]:
        plugin.asked.clear()
        snapshot.bind(f"u{row}-{len(bench.bound)}", template, f"n{row}")
        bench.bound.append("")
        bench.sum.refresh(bench.build)
        bench.check(f"row {row}")
        return plugin.asked

    assert asked(3) == [3] and asked(4) == [] and asked(5) == []
    assert asked(3) == [3] and asked(4) == []
    for uid in ("u3-0", "u3-3", "u4-1"):
        snapshot.unbind(uid)
    plugin.asked.clear()
    bench.sum.refresh(bench.build)
    assert sorted(set(plugin.asked)) == [3], "nothing bound is outside, one pod on n4 is known"
    bench.check("gone")
    assert bench.sum.n_installed == 1


def test_values_of_all_rows_can_be_taken_over_and_count_as_evaluated_anew() -> None:
    bench = Bench(1)
    bench.sum.refresh(bench.build)
    for _ in range(30):
        bench.change()
    bench.snapshot.bind("last", TEMPLATES.intern(a_pod({"cpu": "300m"})), bench.snapshot.node_names()[0])
    assert bench.sum.follower.is_behind()
    values = np.arange(bench.snapshot.n_rows).astype(SCALE.dtype)
    before = bench.sum.n_installed
    bench.sum.take_over(values)
    assert bench.sum.n_installed == before + 1 and not bench.sum.outside and not bench.sum.follower.is_behind()
    assert bench.sum.column[: len(values)].tolist() == values.tolist()
    for row in range(0, bench.snapshot.n_rows, 2):
        bench.snapshot.usage_log.append(row)
    bench.sum.refresh(bench.build)
    found, expected = bench.sum.column.tolist(), [bench.value(row) for row in range(bench.snapshot.n_rows)]
    assert found[: len(values) : 2] == expected[::2], "and is followed from there"


def test_values_of_some_rows_are_those_of_the_sum_where_every_score_is_one() -> None:
    bench = Bench(2)
    snapshot = bench.snapshot
    for row in range(N_NODES):
        snapshot.bind(f"u{row}", TEMPLATES.intern(a_pod({"cpu": "800m" if row == 4 else "200m"})), f"n{row}")
    found = bench.sum.values(Rows(snapshot, np.array([0, 4, 5], np.intp)))
    assert found is not None and found.tolist() == [bench.value(0), SCALE.infeasible, bench.value(5)]
    snapshot.unbind("u5")
    assert bench.sum.values(Rows(snapshot, np.array([0, 4, 5], np.intp))) is None, "110 is no score"
