"""Sets of indexes against plain sets of numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.controllers.workloads.index_set import IndexSet, parsed

BELOW = 40
NUMBERS = st.sets(st.integers(0, BELOW - 1))


@given(first=NUMBERS, more=NUMBERS, besides=NUMBERS)
def test_it_is_what_a_plain_set_is(first: set[int], more: set[int], besides: set[int]) -> None:
    found = IndexSet().with_indexes(first).with_indexes(more)
    plain = first | more
    assert len(found) == len(plain)
    assert {index for index in range(-1, BELOW + 1) if index in found} == plain
    assert list(found.missing(BELOW, besides)) == [index for index in range(BELOW) if index not in plain | besides]
    assert parsed(str(found), BELOW) == found


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((3,), "3"), ((3, 4), "3,4"), ((3, 4, 5), "3-5"), ((0, 2, 3, 4, 9), "0,2-4,9")],
)
def test_its_text_is_that_of_kubernetes(numbers: tuple[int, ...], text: str) -> None:
    assert str(IndexSet().with_indexes(numbers)) == text


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1-", {}), ("x,2", {2}), ("-3", {}), ("5-2", {}), ("0-9,7-12,99", {*range(10)}), ("3,,4", {3, 4})],
)
def test_what_is_no_interval_or_too_high_is_left_out(text: str, numbers: set[int]) -> None:
    found = parsed(text, 10)
    assert {index for index in range(200) if index in found} == set(numbers)
