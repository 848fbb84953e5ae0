"""Quantities: the grammar, exact sums, and a property against plain fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.api import quantity

FACTORS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(1000),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
    "e3": Fraction(1000),
    "E-2": Fraction(1, 100),
}
LARGEST = 2**63 - 1

numbers = st.tuples(st.integers(0, 10**12), st.integers(0, 10**6 - 1), st.booleans(), st.sampled_from(sorted(FACTORS)))


def spelled(whole: int, fraction: int, with_fraction: bool, suffix: str) -> tuple[str, Fraction]:
    """A text and the number that it stands for."""
    digits = f"{fraction:06d}"
    text = f"{whole}.{digits}{suffix}" if with_fraction else f"{whole}{suffix}"
    return text, (whole + Fraction(int(digits), 10**6) * with_fraction) * FACTORS[suffix]


def exact(amount: quantity.Amount) -> Fraction:
    return Fraction(amount.unscaled) * Fraction(10) ** amount.exponent


@given(numbers)
def test_value_and_milli_value_are_the_number_rounded_up(parts: tuple[int, int, bool, str]) -> None:
    text, number = spelled(*parts)
    # Finer than a billionth is rounded up while reading.
    number = Fraction(math.ceil(number * 10**9), 10**9)
    if number <= LARGEST:
        assert quantity.value(text) == math.ceil(number)
    if number * 1000 <= LARGEST:
        assert quantity.milli_value(text) == math.ceil(number * 1000)


@given(numbers, numbers)
def test_sums_and_comparisons_are_exact(one: tuple[int, int, bool, str], other: tuple[int, int, bool, str]) -> None:
    left, right = quantity.parse(spelled(*one)[0]), quantity.parse(spelled(*other)[0])
    assert exact(left.plus(right)) == exact(left) + exact(right)
    difference = exact(left) - exact(right)
    assert left.compare(right) == (difference > 0) - (difference < 0)


@given(numbers)
def test_the_canonical_text_stands_for_the_same_amount_and_is_its_own_canonical_text(parts: tuple[int, int, bool, str]) -> None:
    amount = quantity.parse(spelled(*parts)[0])
    again = quantity.parse(amount.canonical())
    if exact(amount) <= LARGEST:
        assert exact(again) == exact(amount)
        assert again.canonical() == amount.canonical()


@given(numbers)
def test_rounding_to_a_thousandth_rounds_up_and_keeps_what_is_coarser(parts: tuple[int, int, bool, str]) -> None:
    amount = quantity.parse(spelled(*parts)[0])
    rounded = amount.rounded_to_milli()
    assert exact(rounded) == Fraction(math.ceil(exact(amount) * 1000), 1000)
    assert (rounded is amount) is (exact(rounded) == exact(amount))


@pytest.mark.parametrize(
    ("text", "canonical", "milli_value", "value"),
    [
        ("0", "0", 0, 0),
        ("100m", "100m", 100, 1),
        ("1.5", "1500m", 1500, 2),
        ("1e3", "1e3", 1_000_000, 1000),
        ("0.5Gi", "512Mi", 512 * 2**20 * 1000, 512 * 2**20),
        ("1n", "1n", 1, 1),
        ("128Mi", "128Mi", 128 * 2**20 * 1000, 128 * 2**20),
        ("1Ki", "1Ki", 1_024_000, 1024),
        ("-1.5", "-1500m", -1500, -2),
        (".5", "500m", 500, 1),
    ],
)
def test_common_quantities(text: str, canonical: str, milli_value: int, value: int) -> None:
    assert quantity.canonical(text) == canonical
    assert quantity.milli_value(text) == milli_value
    assert quantity.value(text) == value


@pytest.mark.parametrize(
    "text", ["", " ", "2x", "1 Gi", "1gi", "1K", "--1", "1..5", "1e", "0x10", "NaN", "Inf", "1_000", "1" * 65, "1e1000"]
)
def test_a_text_that_is_no_quantity_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(quantity.QuantityError, match="is not a quantity"):
        quantity.parse(text)
    assert "is not a quantity" in (quantity.fault(text) or "")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1GB", '"1G" or "1Gi"'),
        ("1.5gb", '"1.5G" or "1.5Gi"'),
        ("512K", '"512k" or "512Ki"'),
        ("1GiB", '"1Gi"'),
        ("1 Gi", '"1Gi"'),
        ("500mm", '"500m"'),
        ("5 m", '"5m"'),
    ],
)
def test_what_people_write_elsewhere_is_told_as_it_is_written_here(text: str, meant: str) -> None:
    assert quantity.fault(text) == f'"{text}" is not a quantity; did you mean {meant}?'
    for one in meant.split(" or "):
        assert quantity.fault(one.strip('"')) is None


@pytest.mark.parametrize("text", ["9223372036854775808", "1e19", "16Ei", "8Ei", "-8Ei", "9223372036854775807.5", "10000000000Gi"])
def test_an_object_carries_no_quantity_beyond_an_int64(text: str) -> None:
    assert "beyond the largest quantity" in (quantity.fault(text) or "")


@pytest.mark.parametrize("text", ["9223372036854775807", "7Ei", "9.2E", "0", "-1", "1n"])
def test_an_object_carries_any_quantity_within_an_int64(text: str) -> None:
    assert quantity.fault(text) is None


@pytest.mark.parametrize("text", ["-", "+", ".", "m", "Ki"])
def test_an_object_carries_no_quantity_without_a_digit(text: str) -> None:
    assert "is not a quantity" in (quantity.fault(text) or "")


@given(st.text(max_size=80))
def test_no_text_makes_reading_fail_in_another_way(text: str) -> None:
    try:
        amount = quantity.parse(text)
    except quantity.QuantityError:
        return
    amount.value(), amount.milli_value(), amount.canonical()


@pytest.mark.parametrize(
    ("text", "capped"),
    [
        ("9223372036854775808", "9223372036854775807"),
        ("1e30", "9223372036854775807"),
        ("16Ei", "9223372036854775807"),
        ("-8Ei", "-9223372036854775807"),
        ("9223372036854775807", None),
        ("7Ei", None),
        ("1", None),
    ],
)
def test_a_quantity_beyond_an_int64_is_capped_at_the_largest_one(text: str, capped: str | None) -> None:
    assert quantity.capped(text) == capped
    assert quantity.text_fault(text) is None
