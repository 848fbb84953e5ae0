"""Groups of rows that are alike: each row's group has its values, after any moves."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from rayched.snapshot.change_log import CHANGES_MAX
from rayched.snapshot.row_groups import RowGroups


@pytest.mark.parametrize("spread", [3, 10**12], ids=["small values", "large values"])
@pytest.mark.parametrize("seed", range(5))
def test_rows_are_grouped_by_their_values_and_follow_them(seed: int, spread: int) -> None:
    random = Random(seed)
    rows = [tuple(random.choice((-1, 0, 1, spread)) for _ in range(2)) for _ in range(30)]
    groups = RowGroups([np.array([row[place] for row in rows], np.int64) for place in range(2)], capacity=64)
    for _ in range(40):
        assert [groups.values[group] for group in groups.ids[: len(rows)].tolist()] == rows
        assert len(set(groups.values)) == len(groups)
        assert [groups.size(group) for group in range(len(groups))] == [rows.count(values) for values in groups.values]
        assert groups.occupied == [group for group in range(len(groups)) if groups.size(group)]
        left_out = random.sample(range(len(rows)), random.randrange(len(rows)))
        others = {group for row, group in enumerate(groups.ids[: len(rows)].tolist()) if row not in left_out}
        assert groups.occupied_without(left_out) == sorted(others)
        row = random.randrange(len(rows))
        rows[row] = random.randrange(5), spread - random.randrange(3)
        groups.move(row, rows[row])


def test_the_log_of_moves_stays_short() -> None:
    groups = RowGroups([np.arange(8) % 2], 8)
    for number in range(4 * CHANGES_MAX):
        groups.move(3, (number % 2,))
    assert groups.log.end > 2 * CHANGES_MAX + 1
    assert groups.log.end - groups.log.start <= 2 * CHANGES_MAX + 1
    assert groups.log.since(groups.log.end - CHANGES_MAX) == [3] * CHANGES_MAX
    assert groups.log.since(0) is None
