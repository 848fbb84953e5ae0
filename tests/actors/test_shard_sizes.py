"""How rows are dealt out among workers: all of them, once, in order, and nobody waits long for one that got more."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.actors.shards import BLOCK_ROWS, shards_of


@given(st.integers(1, 200_000), st.integers(1, 64))
def test_each_row_is_in_one_share_and_the_largest_share_is_near_the_mean(n_rows: int, workers: int) -> None:
    shares = shards_of(n_rows, workers)
    assert 1 <= len(shares) <= workers
    assert shares[0].start == 0 and shares[-1].stop >= n_rows
    assert all(before.stop == after.start for before, after in itertools.pairwise(shares))
    assert max(share.stop - share.start for share in shares) < n_rows / workers + BLOCK_ROWS


@pytest.mark.parametrize(
    ("n_rows", "workers", "largest"), [(5_000, 2, 2_560), (5_000, 1, 5_120), (100_000, 6, 16_768), (30, 2, 15)]
)
def test_shares_of_usual_sizes(n_rows: int, workers: int, largest: int) -> None:
    assert max(share.stop - share.start for share in shards_of(n_rows, workers)) == largest


def test_a_few_new_nodes_move_no_share() -> None:
    assert shards_of(5_000, 2) == shards_of(5_100, 2)
