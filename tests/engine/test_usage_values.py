"""A usage sum is what adding up filters and scores row by row gives, and remembers no state for a wrong reason."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from rayched.engine import cached_columns, usage_values
from rayched.engine.prepared import ColumnKey, PluginHalf, PreparedPlugin
from rayched.engine.scale import scale_for
from rayched.engine.shards import ColumnBuilder
from rayched.engine.usage_values import UsageSum, UsageValues
from rayched.framework.plugin_error import PluginError
from rayched.snapshot import usage_states
from rayched.snapshot.columns import CodeColumn, Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.snapshot.usage_states import UsageStates
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
    """Some sums of plugins of the same names, each of which begins elsewhere."""

    def __init__(self, seed: int, kind: type[Percent] = Percent, n_sums: int = 1) -> None:
        self.random, self.snapshot = Random(seed), a_snapshot(N_NODES)
        self.states = UsageStates(self.snapshot)
        self.memory = UsageValues(self.states, SCALE, stacks=False)
        self.plugins = [(kind("One", 100 - 9 * n, 700 - 100 * n), kind("Other", 110 - 9 * n, 900)) for n in range(n_sums)]
        self.sums = [self.a_sum(plugins) for plugins in self.plugins]
        self.build = ColumnBuilder(self.snapshot, None).build
        self.bound: list[str] = []

    def a_sum(self, plugins: Sequence[Percent]) -> UsageSum:
        filters = [plugin.question(PluginHalf.FILTER) for plugin in plugins]
        scores = [(plugin.question(PluginHalf.SCORE), weight) for plugin, weight in zip(plugins, WEIGHTS, strict=True)]
        made = UsageSum("sum", self.snapshot, SCALE, filters, scores)
        if made.reads_usage_alone:
            made.memory = self.memory
        made.users = 1
        return made

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

    def value(self, row: int, n: int = 0) -> int:
        cpu = self.cpu(row)
        if any(cpu > plugin.limit for plugin in self.plugins[n]):
            return SCALE.infeasible
        parts = [plugin.part(cpu) for plugin in self.plugins[n]]
        return sum(weight * part for weight, part in zip(WEIGHTS, parts, strict=True) if 0 <= part <= 100)

    def outside(self, n: int = 0) -> set[int]:
        """A row's score is marked whether or not the row is feasible."""
        rows = range(self.snapshot.n_rows)
        return {row for row in rows if any(not 0 <= plugin.part(self.cpu(row)) <= 100 for plugin in self.plugins[n])}

    def refresh(self, n: int = 0) -> None:
        self.sums[n].refresh(self.build)

    def check(self, what: str, n: int = 0) -> None:
        rows = range(self.snapshot.n_rows)
        assert self.sums[n].column[: len(rows)].tolist() == [self.value(row, n) for row in rows], what
        assert self.sums[n].outside == self.outside(n), what


@pytest.mark.parametrize("states_min", [512, 3])
@pytest.mark.parametrize("kind", [Percent, Labelled])
@pytest.mark.parametrize("seed", range(4))
def test_it_is_what_adding_up_row_by_row_gives(
    seed: int, kind: type[Percent], states_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_states, "STATES_MIN", states_min)
    bench = Bench(seed, kind)
    assert bench.sums[0].reads_usage_alone is (kind is Percent)
    for step in range(120):
        for _ in range(bench.random.choice((0, 1, 1, 1, 2, 4, 9))):
            bench.change()
        bench.refresh()
        bench.check(f"seed {seed}, step {step}")
    assert (bench.states.generation > 2) is (kind is Percent and states_min == 3)


@pytest.mark.parametrize("few", [0, 2, 7])
@pytest.mark.parametrize("seed", range(3))
def test_sums_that_take_turns_are_what_adding_up_row_by_row_gives(seed: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes of few and of many rows, states that are let go of, and sums that leave and come again."""
    monkeypatch.setattr(cached_columns, "FEW", few)
    monkeypatch.setattr(usage_values, "FEW", few)
    monkeypatch.setattr(usage_values, "TURNS_MIN", 12)
    monkeypatch.setattr(usage_states, "STATES_MIN", 6)
    bench = Bench(seed, n_sums=5)
    installed, members = 0, set[int]()
    for step in range(400):
        for _ in range(bench.random.choice((0, 1, 1, 2, 3))):
            bench.change()
        n = bench.random.randrange(5 if step % 100 < 50 else 2)
        before = bench.sums[n].n_installed
        bench.refresh(n)
        installed += bench.sums[n].n_installed - before
        bench.check(f"seed {seed}, step {step}", n)
        members.add(len(bench.memory))
    assert installed >= 5 and members == set(range(1, 6))


def test_a_state_that_is_known_asks_no_plugin_and_one_outside_is_never_known() -> None:
    bench = Bench(0)
    plugin, snapshot = bench.plugins[0][0], bench.snapshot
    bench.refresh()
    assert bench.sums[0].n_installed == 1 and bench.sums[0].outside == set(range(N_NODES)), "110 is outside"
    template = TEMPLATES.intern(a_pod({"cpu": "100m"}))

    def asked(row: int) -> list[int]:
        plugin.asked.clear()
        snapshot.bind(f"u{row}-{len(bench.bound)}", template, f"n{row}")
        bench.bound.append("")
        bench.refresh()
        bench.check(f"row {row}")
        return plugin.asked

    assert asked(3) == [3] and asked(4) == [] and asked(5) == []
    assert asked(3) == [3] and asked(4) == []
    for uid in ("u3-0", "u3-3", "u4-1"):
        snapshot.unbind(uid)
    plugin.asked.clear()
    bench.refresh()
    assert sorted(set(plugin.asked)) == [3], "nothing bound is outside, one pod on n4 is known"
    bench.check("gone")
    assert bench.sums[0].n_installed == 1


def test_a_new_sum_beside_many_asks_about_one_row_of_each_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_values, "FEW", 2)
    bench = Bench(0, n_sums=5)
    pod = TEMPLATES.intern(a_pod({"cpu": "300m"}))
    for row in range(4):
        bench.snapshot.bind(f"u{row}", pod, f"n{row}")
    assert not bench.sums[0].bring_along(), "there is no other one"
    for n in range(3):
        bench.refresh(n)
    assert bench.sums[2].bring_along(), "it is up to date"
    asked = bench.plugins[4][0].asked
    assert bench.sums[4].bring_along()
    bench.check("brought along", 4)
    assert len(asked) == 2 and {row < 4 for row in asked} == {True, False}
    failing = bench.plugins[3][1]
    failing.limit = None  # type: ignore[assignment]
    assert not bench.sums[3].bring_along(), "a filter raises"
    with pytest.raises(PluginError, match='plugin "Other", Filter'):
        bench.refresh(3)
    failing.limit = 900
    bench.refresh(3)
    bench.check("mended", 3)


def test_a_plugin_that_has_nothing_to_say_adds_nothing() -> None:
    class Silent(Percent):
        def filter(self, state: Any, rows: Rows) -> CodeColumn | None:  # type: ignore[override]
            return None if (rows.requested[0] <= self.limit).all() else super().filter(state, rows)

    bench = Bench(3, Silent)
    for step in range(60):
        bench.change()
        bench.refresh()
        bench.check(f"step {step}")
