"""The best rows by group are those that adding the score to all rows gives."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from rayched.engine import grouped_top_rows
from rayched.engine.evaluation import NOT_FEASIBLE
from rayched.engine.grouped_top_rows import GroupedTopRows, groups_to_follow
from rayched.engine.scale import TotalColumn
from rayched.engine.score_sum import CountedScore
from tests.engine.test_grouped_scores import WEIGHT, Bench


def a_score(bench: Bench) -> CountedScore:
    return CountedScore(bench.score._asked, WEIGHT, bench.score)


@pytest.mark.parametrize("seed", range(6))
def test_leaders_of_groups_give_what_all_rows_give(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        monkeypatch.setattr(grouped_top_rows, "CHANGES_MAX", 2)
    random, bench = Random(seed), Bench(seed)
    groups = bench.groups
    total: TotalColumn = np.array([random.randrange(-1, 12) for _ in range(len(bench.total))], np.int16)
    top = GroupedTopRows(a_score(bench), groups, total)
    followed = 0
    for step in range(150):
        row, value = random.randrange(len(total)), random.choice((-5, *range(12)))
        old = int(total[row])
        total[row] = value
        if value != old and (value >= 0 or old >= 0):
            top.write(row, max(old, NOT_FEASIBLE), max(value, NOT_FEASIBLE))
        if random.random() < 0.3:
            groups.move(random.randrange(len(total)), random.choice(list(groups.values)))
        found = top.evaluation()
        feasible = total >= 0
        if found is None:
            assert not feasible.any()
            continue
        assert found.n_feasible == np.count_nonzero(feasible)
        if found.n_feasible < 2:
            assert list(found.ties) == feasible.nonzero()[0].tolist()
            continue
        followed += 1
        ids = groups.ids[: len(total)]
        n_present = len(set(ids[feasible].tolist()))
        expected = total + np.array([bench.plugin.score_of(group, n_present) * WEIGHT for group in ids.tolist()])
        where = f"seed {seed}, step {step}"
        assert found.best == expected[feasible].max(), where
        ties = (feasible & (expected == found.best)).nonzero()[0].tolist()
        assert found.best_rows.tolist() == ties, where
        assert found.total[feasible].tolist() == expected[feasible].tolist(), where
    assert followed > 100


def test_groups_are_followed_where_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(0)
    assert groups_to_follow(a_score(bench)) is bench.groups
    monkeypatch.setattr(grouped_top_rows, "GROUPS_MAX", 2 * len(bench.groups.occupied) - 1)
    assert groups_to_follow(a_score(bench)) is None
    assert groups_to_follow(CountedScore(bench.score._asked, WEIGHT, None)) is None, "a plugin without groups"


def test_other_groups_or_many_rows_that_moved_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(0)
    total: TotalColumn = np.full(len(bench.total), 5, np.int16)
    top = GroupedTopRows(a_score(bench), bench.groups, total)
    assert top.evaluation() is not None
    monkeypatch.setattr(grouped_top_rows, "FEW", 1)
    values = list(bench.groups.values)
    moved = [row for row in range(len(total)) if bench.groups.values[bench.groups.ids.item(row)] != values[0]][:2]
    for row in moved:
        bench.groups.move(row, values[0])
    assert top.evaluation() is None, "two rows moved, one is allowed"
    top = GroupedTopRows(a_score(bench), bench.groups, total)
    bench.new_groups(3)
    assert top.evaluation() is None, "other groups"
