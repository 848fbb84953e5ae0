"""The choice among the best nodes: fair and repeatable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.scheduler.selection import SeededTieBreaker, choose, draw


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


WORDS = 2**64


def split_mix(state: int) -> Iterator[int]:
    """SplitMix64 as its authors have it."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) % WORDS
        word = state
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % WORDS
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % WORDS
        yield word ^ (word >> 31)


def test_draws_are_those_of_a_published_generator_that_the_mixed_seed_begins() -> None:
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert [*islice(split_mix(0), 4)] == known == [draw(0, number, WORDS) for number in range(4)]
    for seed in (0x9E3779B97F4A7C15, WORDS - 1, WORDS + 7, -1):
        begin = next(split_mix(seed - 0x9E3779B97F4A7C15))
        assert [draw(seed, number, WORDS) for number in range(4)] == [*islice(split_mix(begin), 4)]
        assert draw(seed, 0, 10) == next(split_mix(begin)) * 10 // WORDS


def test_where_a_search_begins_is_drawn_apart_from_the_choice_between_ties() -> None:
    chance, rows = SeededTieBreaker(7), list(range(1000))
    offsets = [chance.offset(1000, number) for number in range(50)]
    assert offsets == [SeededTieBreaker(7).offset(1000, number) for number in range(50)]
    assert len(set(offsets)) > 40 and set(offsets) <= set(rows)
    assert sum(offset == chance.among(rows, number) for number, offset in enumerate(offsets)) < 5


def test_a_single_best_node_needs_no_draw() -> None:
    assert {choose(np.array([7]), 1, number) for number in range(100)} == {7}


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.integers(1, 10**6))
def test_a_draw_stays_below_its_bound(seed: int, number: int, bound: int) -> None:
    assert 0 <= draw(seed, number, bound) < bound
