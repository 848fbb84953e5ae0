"""The choice among the best nodes: fair and repeatable."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.scheduler.selection import choose, draw


@pytest.mark.row("K1.2")
def test_ties_are_broken_evenly_and_the_same_seed_repeats_the_run() -> None:
    ties = np.array([1, 2, 5])

    def run(seed: int) -> list[int]:
        return [choose(ties, seed, number) for number in range(6000)]

    first = run(1)
    assert first == run(1)
    assert first != run(2)
    counts = Counter(first)
    assert set(counts) == {1, 2, 5}
    # Six standard deviations of a fair draw of 6,000 with p = 1/3.
    assert all(abs(count - 2000) < 220 for count in counts.values())


def test_a_single_best_node_needs_no_draw() -> None:
    assert {choose(np.array([7]), 1, number) for number in range(100)} == {7}


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.integers(1, 10**6))
def test_a_draw_stays_below_its_bound(seed: int, number: int, bound: int) -> None:
    assert 0 <= draw(seed, number, bound) < bound
