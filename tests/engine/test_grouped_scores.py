"""Scores of groups are what each group's score gives row by row, and groups that count are those with a feasible row."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest

from rayched.engine import grouped_scores
from rayched.engine.domain_state import DomainState
from rayched.engine.grouped_scores import GroupColumn, GroupedScore
from rayched.engine.scale import TotalColumn
from rayched.framework.plugin_error import PluginError
from rayched.snapshot.columns import BoolColumn, Log
from rayched.snapshot.row_groups import RowGroups
from rayched.snapshot.snapshot import Snapshot
from rayched.v1.core_pb2 import Pod
from tests.engine.spies import a_snapshot

N_ROWS = 40
WEIGHT = 3


@dataclass
class Now:
    groups: RowGroups | None
    n_bytes: int = 0
    revision = verdict = 0
    adds_nothing = False


class Given:
    """Its groups and their scores are set by the test."""

    name = "Given"
    reads = Log.LABELS

    def __init__(self) -> None:
        self.now = Now(None)
        self.told: list[int] = []
        self.says_nothing = False
        self.shift = 0

    def key(self, pod: Pod) -> Hashable | None:
        return ()

    def prepare(self, pod: Pod) -> Any:
        return ()

    def count(self, state: Any, cluster: Snapshot, last: Now | None) -> Now:
        return self.now

    def score_of(self, group: int, n_present: int) -> int:
        return (17 * group + n_present + self.shift) % 101

    def groups(self, state: Now) -> RowGroups | None:
        return state.groups

    def score_groups(self, state: Now, groups: RowGroups, present: Sequence[int], feasible: BoolColumn) -> Sequence[int] | None:
        self.told = list(present)
        return None if self.says_nothing else [self.score_of(group, len(present)) for group in present]


class Bench:
    """One grouped score over rows whose totals and groups the test changes."""

    def __init__(self, seed: int = 0, n_groups: int = 5) -> None:
        self.random = Random(seed)
        self.snapshot, self.plugin = a_snapshot(N_ROWS), Given()
        self.groups = self.new_groups(n_groups)
        asked = DomainState("asked", self.plugin, (), b"", self.snapshot)
        self.column = GroupColumn("column", WEIGHT)
        self.score = GroupedScore("grouped", self.snapshot, asked, self.column)
        self.total: TotalColumn = np.zeros(N_ROWS, np.int16)
        self.circumstances: Hashable | None = 0

    def new_groups(self, n_groups: int) -> RowGroups:
        values = np.array([self.random.randrange(n_groups) for _ in range(N_ROWS)], np.int64)
        self.groups = self.plugin.now.groups = RowGroups([values], self.snapshot.capacity)
        return self.groups

    def close(self, row: int) -> None:
        """No log tells of a row that is not feasible any more: a cap may have fallen."""
        self.total[row] = -500

    def open(self, row: int) -> None:
        self.total[row] = self.random.randrange(100)
        self.snapshot.usage_log.append(row)

    def add(self) -> bool | None:
        """Compares with what row by row gives."""
        total, feasible = self.total.copy(), self.total >= 0
        n_feasible = int(feasible.sum())
        added = self.score.add(total, feasible, n_feasible, lambda: self.circumstances)
        ids = self.groups.ids[:N_ROWS]
        present = sorted(set(ids[feasible].tolist()))
        if added:
            assert self.plugin.told == present
            scores = {group: WEIGHT * self.plugin.score_of(group, len(present)) for group in present}
            expected = [
                before + scores[group] for before, group in zip(self.total.tolist(), ids.tolist(), strict=True) if before >= 0
            ]
            assert total[feasible].tolist() == expected and (total[~feasible] < 0).all()
        else:
            assert (total == self.total).all()
        return added


@pytest.mark.parametrize(("looked_at", "others"), [(32, 64), (32, 0), (2, 0), (0, 0), (2, 5)])
@pytest.mark.parametrize("seed", range(4))
def test_groups_that_count_are_those_with_a_feasible_row(
    seed: int, looked_at: int, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouped_scores, "FEW", looked_at)
    monkeypatch.setattr(grouped_scores, "OTHERS_MAX", others)
    bench = Bench(seed)
    random = bench.random
    for _ in range(200):
        for _ in range(random.choice((0, 1, 1, 2, 4))):
            row = random.randrange(2, N_ROWS)
            match random.randrange(9):
                case 0 | 1 | 2 | 3:
                    bench.close(row)
                case 4 | 5:
                    bench.open(row)
                case 6:
                    bench.groups.move(row, (random.randrange(9),))
                case 7:
                    bench.plugin.shift = random.randrange(3)
                case 8 if random.random() < 0.3:
                    # In other circumstances rows may be feasible that no log tells of.
                    bench.circumstances = random.choice((None, random.randrange(1000)))
                    bench.total[2:] = [random.choice((-500, -500, 4)) for _ in range(2, N_ROWS)]
        if random.random() < 0.02:
            bench.new_groups(random.randint(1, 8))
        if bench.circumstances is None:
            bench.total[2:] = [random.choice((-500, -500, 4)) for _ in range(2, N_ROWS)]
        assert bench.add()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """All rows are looked at so often."""
    look, seen = GroupedScore._look, list[int]()

    def noted(score: GroupedScore, groups: RowGroups, total: TotalColumn) -> BoolColumn:
        seen.append(len(groups))
        return look(score, groups, total)

    monkeypatch.setattr(GroupedScore, "_look", noted)
    monkeypatch.setattr(grouped_scores, "OTHERS_MAX", 0)
    return seen


def rows_of(bench: Bench, group: int) -> list[int]:
    return [row for row in range(N_ROWS) if bench.groups.ids[row] == group]


def test_rows_are_looked_at_again_only_where_a_witness_fails(looks: list[int]) -> None:
    bench = Bench()
    bench.close(rows_of(bench, 1)[0])
    bench.add()
    assert len(looks) == 1
    for _ in range(5):
        bench.add()
    # Of a group the last row stands for it.
    bench.close(rows_of(bench, 2)[0])
    bench.add()
    assert len(looks) == 1, "the witness of that group is still there"
    bench.close(rows_of(bench, 2)[-1])
    bench.add()
    assert len(looks) == 2


def test_a_group_that_was_found_absent_is_not_looked_for_again_before_a_row_came_to_be_feasible(looks: list[int]) -> None:
    bench = Bench()
    absent = rows_of(bench, 3)
    for row in absent:
        bench.close(row)
    bench.add()
    assert bench.plugin.told == [0, 1, 2, 4] and len(looks) == 1
    for row in (rows_of(bench, 0)[0], rows_of(bench, 1)[0]):
        bench.snapshot.usage_log.append(row)
        bench.add()
    assert len(looks) == 1
    bench.open(absent[0])
    bench.add()
    assert bench.plugin.told == [0, 1, 2, 3, 4] and len(looks) == 1, "the row that the log names is its witness"
    bench.close(absent[0])
    bench.add()
    assert bench.plugin.told == [0, 1, 2, 4] and len(looks) == 2


def test_a_row_that_moves_into_an_absent_group_is_its_witness(looks: list[int]) -> None:
    bench = Bench()
    for row in rows_of(bench, 3):
        bench.close(row)
    bench.add()
    moving = rows_of(bench, 0)[0]
    bench.groups.move(moving, (3,))
    bench.add()
    assert 3 in bench.plugin.told and len(looks) == 1
    bench.groups.move(moving, (77,))
    bench.add()
    assert bench.plugin.told == [0, 1, 2, 4, 5] and len(looks) <= 2, "a group that nobody knew"


def test_a_group_that_all_rows_moved_out_of_does_not_count_any_more(looks: list[int]) -> None:
    bench = Bench()
    bench.close(rows_of(bench, 0)[0])
    for _ in range(2):
        bench.add()
        assert bench.plugin.told == [0, 1, 2, 3, 4] and len(looks) == 1
    for row in rows_of(bench, 4):
        bench.groups.move(row, (1,))
        bench.add()
    assert bench.plugin.told == [0, 1, 2, 3]


def test_a_log_that_is_cut_off_has_all_rows_looked_at(looks: list[int]) -> None:
    bench = Bench()
    absent = rows_of(bench, 3)
    for row in absent:
        bench.close(row)
    bench.add()
    for cut in (bench.snapshot.usage_log, bench.groups.log):
        bench.total[absent[-1]] = 9
        cut.cut()
        bench.add()
        assert 3 in bench.plugin.told
        bench.close(absent[-1])
        bench.add()
        assert 3 not in bench.plugin.told


def test_other_circumstances_have_all_rows_looked_at(looks: list[int]) -> None:
    bench = Bench()
    absent = rows_of(bench, 3)
    for row in absent:
        bench.close(row)
    bench.add()
    bench.total[absent[-1]] = 9
    bench.circumstances = 1
    bench.add()
    assert 3 in bench.plugin.told and len(looks) == 2


def test_a_plugin_without_groups_or_without_a_word_leaves_totals_alone() -> None:
    bench = Bench()
    bench.plugin.says_nothing = True
    assert bench.add() is False
    bench.plugin.says_nothing, bench.plugin.now.groups = False, None
    assert bench.add() is None


@pytest.mark.parametrize("score", [101, -1])
def test_a_score_outside_its_range_ends_the_evaluation(score: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    monkeypatch.setattr(bench.plugin, "score_of", lambda group, _: score if group == 1 else 100 * (group % 2))
    with pytest.raises(PluginError, match=f"score {score} lies outside"):
        bench.add()


def test_the_column_is_written_over_where_rows_moved_and_its_bytes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_scores, "FEW", 2)
    bench = Bench()
    dtype, ids = np.dtype(np.int32), bench.groups.ids
    values = [10, 20, 30, 40, 50]

    def column() -> TotalColumn:
        return bench.column.with_scores(bench.groups, range(5), values, dtype)

    first = column()
    assert first.dtype == dtype and first.tolist() == [WEIGHT * values[group] for group in ids.tolist()]
    assert bench.column.n_bytes == 4 * bench.snapshot.capacity
    for rows in ((3,), (4, 5), (6, 7, 8), ()):
        for row in rows:
            bench.groups.move(row, ((int(ids[row]) + 1) % 5,))
        assert column() is first and first.tolist() == [WEIGHT * values[group] for group in ids.tolist()], rows
    values[2] = 31
    assert column().tolist() == [WEIGHT * values[group] for group in ids.tolist()]
    assert bench.column.with_scores(bench.groups, (0, 4), (1, 2), dtype).tolist() == [
        WEIGHT * {0: 1, 4: 2}.get(group, 0) for group in ids.tolist()
    ]


def test_the_bytes_of_what_is_known_of_groups_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_scores, "OTHERS_MAX", 0)
    bench = Bench()
    assert bench.score.n_bytes == 0
    bench.close(0)
    bench.add()
    assert bench.score.n_bytes == 5 * (8 + 1)
