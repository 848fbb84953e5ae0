"""Sets of indexes against plain sets of numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.controllers.workloads.index_set import IndexSet, LastIndexSet, parsed

BELOW = 40
NUMBERS = st.sets(st.integers(0, BELOW - 1))


@given(first=NUMBERS, more=NUMBERS)
def test_it_is_what_a_plain_set_is(first: set[int], more: set[int]) -> None:
    found = IndexSet().with_indexes(first).with_indexes(more)
    plain = first | more
    assert len(found) == len(plain)
    assert {index for index in range(-1, BELOW + 1) if index in found} == plain
    for at in range(BELOW + 1):
        assert found.next_missing(at) == next(index for index in range(at, BELOW + 2) if index not in plain)
    read = parsed(str(found), BELOW)
    assert (read, len(read), str(read)) == (found, len(plain), str(found))
    assert IndexSet().with_indexes(list(plain) * 2) == found


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


def test_a_text_is_read_once_and_the_next_one_is_known_already() -> None:
    known = [LastIndexSet() for _ in range(200)]
    texts = [f"0-{number},{number + 2}" for number in range(200)]
    first = [one.of(text, 1_000) for one, text in zip(known, texts, strict=True)]
    assert first[3] == parsed("0-3,5", 1_000)
    assert all(one.of(text, 1_000) is found for one, text, found in zip(known, texts, first, strict=True))
    assert known[3].of("0-3,5", 4) == parsed("0-3", 4), "the job has fewer indexes now"
    grown = first[3].with_indexes({4})
    assert known[3].keep(grown, 1_000) == "0-5"
    assert known[3].of("0-5", 1_000) is grown
