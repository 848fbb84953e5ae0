"""What clients send in long texts is kept by no cache."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest

from rayched.api import defaulting, names, quantity
from rayched.api.short_texts import TEXT_MAX, remembered
from rayched.api.validation import resources


class Text(str):
    """A text that tells when it is gone."""


@pytest.mark.parametrize(
    "function",
    [
        names.subdomain_fault,
        names.label_fault,
        names.qualified_fault,
        names.label_value_fault,
        quantity.fault,
        defaulting._rounded,
        defaulting._tag,
        lambda text: resources.amount_fault("cpu", text),
        lambda text: resources.amount_fault(text, "1"),
    ],
)
def test_a_long_text_is_not_kept_by_what_looks_at_it(function: Callable[[str], object]) -> None:
    for text in ("1" * 300_000, "é" * 300_000, "a/" + "b" * 300_000):
        long = Text(text)
        gone = weakref.ref(long)
        first = function(long)
        assert function(long) == first == function(text)
        del long
        assert gone() is None


def test_short_texts_are_asked_about_once_and_long_ones_each_time() -> None:
    asked: list[str] = []

    @remembered(2)
    def length(text: str) -> int:
        asked.append(text)
        return len(text)

    edge, long = "x" * TEXT_MAX, "x" * (TEXT_MAX + 1)
    assert [length(text) for text in ("a", "a", edge, edge, long, long)] == [1, 1, TEXT_MAX, TEXT_MAX, TEXT_MAX + 1, TEXT_MAX + 1]
    assert asked == ["a", edge, long, long]
    for text in ("b", "c", "a"):
        length(text)
    assert asked[4:] == ["b", "c", "a"], "the oldest goes"
