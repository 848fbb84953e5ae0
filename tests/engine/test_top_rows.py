"""What is known of the highest totals is what a look at all the rows would find."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from rayched.engine import runners_up, top_rows
from rayched.engine.evaluation import NOT_FEASIBLE
from rayched.engine.runners_up import row_of, total_of
from rayched.engine.top_rows import TopRows
from rayched.engine.usage_values import TotalColumn


class Watched:
    """Totals that change, followed by leaders; counts the passes over all of them."""

    def __init__(self, totals: list[int], leaders: TopRows | None = None) -> None:
        self.totals: TotalColumn = np.array(totals, np.int16)
        self.passes = 0
        self.leaders = TopRows(self.column) if leaders is None else leaders

    def column(self) -> TotalColumn:
        self.passes += 1
        return self.totals

    def write(self, row: int, value: int) -> None:
        old = int(self.totals[row])
        self.totals[row] = value
        if old >= 0 or value >= 0:
            self.leaders.write(row, max(old, NOT_FEASIBLE), max(value, NOT_FEASIBLE))

    def in_order(self) -> list[tuple[int, int]]:
        """(total, row) of the feasible rows, the best first."""
        there = [(total, row) for row, total in enumerate(self.totals.tolist()) if total >= 0]
        return sorted(there, key=lambda one: (-one[0], one[1]))

    def check(self, n: int) -> bool:
        """Returns whether the ones that follow are known."""
        everything = self.in_order()
        best = everything[0][0] if everything else NOT_FEASIBLE
        assert self.leaders.best() == best
        if best == NOT_FEASIBLE:
            return False
        ties = [row for total, row in everything if total == best]
        assert self.leaders.ties() == ties
        following = self.leaders.first_after(n)
        assert following is None or [(total_of(rank), row_of(rank)) for rank in following] == everything[len(ties) :][:n]
        return following is not None


@pytest.mark.parametrize(("kept", "passes"), [(128, 6), (3, 0), (4, 2), (1, 0)])
@pytest.mark.parametrize("seed", range(4))
def test_leaders_are_those_that_a_look_at_all_rows_finds(
    seed: int, kept: int, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners_up, "KEPT", kept)
    monkeypatch.setattr(top_rows, "PASSES", passes)
    monkeypatch.setattr(top_rows, "FEW", 3)
    random = Random(seed)
    values = random.choice(([-500, -500, 0, 1, 2], [-500, *range(60)], [-500, 7]))
    watched = Watched([random.choice(values) for _ in range(30)])
    known = 0
    for _ in range(400):
        for _ in range(random.choice((0, 1, 1, 1, 2, 5))):
            best = watched.in_order()[:3]
            row = random.choice(best)[1] if best and random.random() < 0.6 else random.randrange(30)
            watched.write(row, random.choice(values))
        if random.random() < 0.8:
            known += watched.check(random.choice((0, 1, 3, 5)))
        elif random.random() < 0.5:
            # Nobody asks for the rows that tie.
            watched.leaders.best()
    assert known > 20


def test_where_no_row_is_feasible_nobody_looks_until_one_comes() -> None:
    watched = Watched([-500] * 5)
    watched.leaders = TopRows.of_no_row(watched.column)
    watched.check(2)
    assert watched.passes == 0
    watched.write(3, 7)
    watched.check(2)
    watched.write(1, 7)
    watched.write(2, 5)
    watched.check(2)
    assert watched.leaders.best() == 7 and watched.leaders.ties() == [1, 3]
    for row in (1, 2, 3):
        watched.write(row, -500)
    watched.check(2)
    assert TopRows(lambda: np.zeros(0, np.int16)).best() == NOT_FEASIBLE


def test_changes_of_single_rows_need_no_pass_over_all() -> None:
    watched = Watched([9, 9, 9, 4, 4, 2])
    assert watched.leaders.best() == 9 and watched.leaders.ties() == [0, 1, 2]
    passes = watched.passes
    watched.write(1, 3)
    watched.write(4, 9)
    watched.write(3, 12)
    watched.write(3, 1)
    watched.write(0, 12)
    assert watched.leaders.best() == 12 and watched.leaders.ties() == [0]
    assert watched.passes == passes


@pytest.mark.parametrize(("ties", "is_kept"), [(3, True), (4, False)])
def test_where_few_rows_tie_again_and_again_those_that_come_next_are_kept(
    ties: int, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that one pass is enough for many decisions."""
    monkeypatch.setattr(top_rows, "PASSES", 2)
    monkeypatch.setattr(top_rows, "FEW", 3)
    watched = Watched([total for total in range(100, 0, -1) for _ in range(ties)])
    passes = []
    for _ in range(30 * ties):
        watched.leaders.best()
        watched.write(watched.leaders.ties()[0], 0)
        passes.append(watched.passes)
    # Each one that is looked for takes a pass for the highest total and one for the rows that have it.
    assert passes[-1] == (6 if is_kept else 60)


def test_what_comes_after_is_kept_for_whoever_asks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_rows, "PASSES", 2)
    monkeypatch.setattr(top_rows, "FEW", 0)
    watched = Watched([9, 9, 4, 5])
    watched.leaders.best(), watched.leaders.ties()
    found = [watched.leaders.first_after(1) for _ in range(4)]
    assert [one is not None for one in found] == [False, False, True, True]
    assert [(row_of(rank), total_of(rank)) for rank in found[-1] or ()] == [(3, 5)]
