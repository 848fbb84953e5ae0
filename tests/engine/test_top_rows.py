"""What is known of the highest totals is what a look at all the rows would find."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from rayched.engine.evaluation import NOT_FEASIBLE
from rayched.engine.scale import TotalColumn
from rayched.engine.top_rows import TopRows


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

    def check(self) -> None:
        everything = self.in_order()
        best = everything[0][0] if everything else NOT_FEASIBLE
        assert self.leaders.best() == best
        if best != NOT_FEASIBLE:
            assert self.leaders.ties() == [row for total, row in everything if total == best]


@pytest.mark.parametrize("seed", range(8))
def test_leaders_are_those_that_a_look_at_all_rows_finds(seed: int) -> None:
    random = Random(seed)
    values = random.choice(([-500, -500, 0, 1, 2], [-500, *range(60)], [-500, 7]))
    watched = Watched([random.choice(values) for _ in range(30)])
    for _ in range(400):
        for _ in range(random.choice((0, 1, 1, 1, 2, 5))):
            best = watched.in_order()[:3]
            row = random.choice(best)[1] if best and random.random() < 0.6 else random.randrange(30)
            watched.write(row, random.choice(values))
        if random.random() < 0.8:
            watched.check()
        elif random.random() < 0.5:
            # Nobody asks for the rows that tie.
            watched.leaders.best()
    assert watched.passes < 800, "a look finds the highest total, another one the rows that have it"


def test_where_no_row_is_feasible_nobody_looks_until_one_comes() -> None:
    watched = Watched([-500] * 5)
    watched.leaders = TopRows.of_no_row(watched.column)
    watched.check()
    assert watched.passes == 0
    watched.write(3, 7)
    watched.check()
    watched.write(1, 7)
    watched.write(2, 5)
    watched.check()
    assert watched.leaders.best() == 7 and watched.leaders.ties() == [1, 3]
    for row in (1, 2, 3):
        watched.write(row, -500)
    watched.check()
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


def test_all_rows_are_looked_at_when_the_last_of_those_that_tie_is_gone() -> None:
    watched = Watched([total for total in range(9, 0, -1) for _ in range(3)])
    passes = []
    for _ in range(12):
        watched.leaders.best()
        watched.write(watched.leaders.ties()[0], 0)
        passes.append(watched.passes)
    # Once for the highest total, and once for the rows that have it.
    assert passes == [2, 2, 2, 4, 4, 4, 6, 6, 6, 8, 8, 8]
