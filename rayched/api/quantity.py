"""Kubernetes quantities ("100m", "1.5Gi", "1e3") as exact decimal numbers.

An amount is unscaled * 10**exponent, never a float. `value` and `milli_value` give integers, rounded up away from zero, as
schedulers count. Within 2**63 - 1, which is all that validation lets through, everything here is exact; beyond it the int64
arithmetic of kube-scheduler is followed, overflow included, because its recorded answers are.

Kubernetes knows two representations and so does an Amount: narrow (an int64 and a scale, for up to 18 digits) and wide (big
decimal). They differ in what an overflow gives and in how negative fractions of a wide amount are rounded, nowhere else.

Source: apimachinery's resource.Quantity, 1.34. Cost: O(length); parsed texts are cached, as clusters use few of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

from rayched.api.errors import one_of, quoted
from rayched.api.short_texts import remembered

MAX_LENGTH: Final = 64
"""Longer texts are refused before they are looked at; the largest quantity that is allowed needs 30 characters."""

MAX_MAGNITUDE: Final = 2**63 - 1

_MAX_EXPONENT: Final = 999
"""Bounds the work on a text such as 1e999999999; far beyond any amount that is allowed."""

_NARROW_DIGITS: Final = 18
"""An int64 holds any number of so many decimal digits."""

_NANO: Final = -9
"""The finest amount; finer ones are rounded up to it."""
_MILLI: Final = -3
_ONE: Final = 10**9
"""1 in nano."""

_TEXT = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)

_NEAR_MILLI: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?m+", re.ASCII)
_NEAR_BYTES: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kKmMgGtTpPeE])([iI]?)[bB]?", re.ASCII)
"""What people write elsewhere: 500mm, 1GB, 1gib, 1 Gi."""

_DECIMAL_SUFFIXES: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX_OF: Final = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_SUFFIX_OF: Final = {0: "", **{exponent // 10: suffix for suffix, exponent in _BINARY_SUFFIXES.items()}}


class QuantityError(ValueError):
    """A text that is no quantity."""


class Format(Enum):
    """The family of suffixes in which an amount is written."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True)
class Amount:
    """unscaled * 10**exponent. `text` is the text it was read from where that is canonical, else ""."""

    unscaled: int
    exponent: int
    format: Format
    wide: bool = False
    text: str = ""

    @property
    def sign(self) -> int:
        return (self.unscaled > 0) - (self.unscaled < 0)

    @property
    def whole(self) -> bool:
        """Whether the amount is an integer."""
        return self.exponent >= 0 or self.unscaled % _ten_to(-self.exponent) == 0

    def value(self) -> int:
        """The amount in units, rounded up away from zero."""
        return self.scaled(0)

    def milli_value(self) -> int:
        """The amount in thousandths, rounded up away from zero."""
        return self.scaled(-3)

    def scaled(self, exponent: int) -> int:
        """The amount in units of 10**exponent, rounded up away from zero; an int64."""
        shift = self.exponent - exponent
        if shift >= 0:
            return _wide_up(self.unscaled, shift) if self.wide else _narrow_up(self.unscaled, shift)
        return _wide_down(self.unscaled, -shift) if self.wide else _narrow_down(self.unscaled, -shift)

    def compare(self, other: Amount) -> int:
        """-1, 0 or 1: less than, equal to or greater than the other amount; exact."""
        low = min(self.exponent, other.exponent)
        mine = self.unscaled * _ten_to(self.exponent - low)
        its = other.unscaled * _ten_to(other.exponent - low)
        return (mine > its) - (mine < its)

    def plus(self, other: Amount) -> Amount:
        """The sum; of a zero and an amount it has the amount's format."""
        form = self.format if self.unscaled else other.format
        if not (self.wide or other.wide):
            if other.unscaled == 0:
                return Amount(self.unscaled, self.exponent, form)
            if self.unscaled == 0:
                return Amount(other.unscaled, other.exponent, form)
        low = min(self.exponent, other.exponent)
        total = self.unscaled * _ten_to(self.exponent - low) + other.unscaled * _ten_to(other.exponent - low)
        return Amount(total, low, form, wide=self.wide or other.wide or abs(total) > MAX_MAGNITUDE)

    def rounded_to_milli(self) -> Amount:
        """This amount rounded up, away from zero, to a multiple of a thousandth; itself if it is one."""
        if self.exponent >= _MILLI or self.unscaled % _ten_to(_MILLI - self.exponent) == 0:
            return self
        magnitude = -(-abs(self.unscaled) // _ten_to(_MILLI - self.exponent))
        return Amount(magnitude * self.sign, _MILLI, self.format, self.wide)

    def canonical(self) -> str:
        """The one text for this amount: no fraction, the largest suffix of its format that loses nothing."""
        if self.text:
            return self.text
        if self.unscaled == 0:
            return "0"
        if self.format is Format.BINARY_SI and self.compare(_MINUS_KI) > 0 > self.compare(_KI):
            return self._canonical_decimal(Format.DECIMAL_SI)
        if self.format is not Format.BINARY_SI:
            return self._canonical_decimal(self.format)
        if self.exponent < 0 and self.unscaled % _ten_to(-self.exponent):
            return self._canonical_decimal(Format.DECIMAL_SI)
        number = self.unscaled * _ten_to(self.exponent) if self.exponent >= 0 else self.unscaled // _ten_to(-self.exponent)
        steps = 0
        while number % 1024 == 0 and steps < 6:
            number, steps = number // 1024, steps + 1
        return f"{number}{_BINARY_SUFFIX_OF[steps]}"

    def _canonical_decimal(self, form: Format) -> str:
        number, exponent = self.unscaled, self.exponent
        while number % 10 == 0:
            number, exponent = number // 10, exponent + 1
        number, exponent = number * _ten_to(exponent % 3), exponent - exponent % 3
        if form is Format.DECIMAL_EXPONENT:
            return f"{number}e{exponent}" if exponent else str(number)
        if exponent > 18:
            number, exponent = number * _ten_to(exponent - 18), 18
        return f"{number}{_DECIMAL_SUFFIX_OF[exponent]}"


_KI: Final = Amount(1024, 0, Format.BINARY_SI)
_MINUS_KI: Final = Amount(-1024, 0, Format.BINARY_SI)


@lru_cache(maxsize=16_384)
def parse(text: str) -> Amount:
    """The amount that a text stands for; raises QuantityError."""
    found = _TEXT.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if found is None or not text:
        raise QuantityError(_no_quantity(text))
    sign, whole, fraction, suffix = found[1], found[2].lstrip("0"), found[3] or "", found[4]
    number, form, power = _scale_of(text, suffix)
    digits = (whole or "0") + fraction
    if form is Format.BINARY_SI:
        # A binary multiple of few digits fits into an int64; 2**10 counts as three digits.
        narrow = not fraction and 15 - len(digits) - power * 3 // 10 - 1 >= 0
        exponent = -len(fraction)
    else:
        exponent = power - len(fraction)
        narrow = len(digits) <= _NARROW_DIGITS and exponent >= _NANO
    unscaled = int(digits) * number
    kept = ""
    if narrow:
        if form is Format.BINARY_SI:
            canonical = int(digits) & 7 != 0
        else:
            canonical = exponent % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
        kept = text if canonical or text == "0" else ""
    else:
        unscaled, exponent, form = _bounded(unscaled, exponent, form)
    return Amount(-unscaled if sign == "-" else unscaled, exponent, form, wide=not narrow, text=kept)


@lru_cache(maxsize=16_384)
def value(text: str) -> int:
    """The quantity in units, rounded up away from zero; raises QuantityError."""
    return parse(text).value()


@lru_cache(maxsize=16_384)
def milli_value(text: str) -> int:
    """The quantity in thousandths, rounded up away from zero; raises QuantityError."""
    return parse(text).milli_value()


def canonical(text: str) -> str:
    """The canonical text of a quantity; raises QuantityError."""
    return parse(text).canonical()


@remembered(16_384)
def fault(text: str) -> str | None:
    """Why an object must not carry this quantity (no number, beyond 2**63 - 1), or None. The sign is not judged here."""
    fault = text_fault(text)
    if fault is None and capped(text) is not None:
        return f"{quoted(text)} is beyond the largest quantity, 2^63-1"
    return fault


@remembered(16_384)
def text_fault(text: str) -> str | None:
    """Why this is no quantity, however large, or None."""
    try:
        parse(text)
    except QuantityError as error:
        return str(error)
    return None if any("0" <= character <= "9" for character in text) else _no_quantity(text)


def _no_quantity(text: str) -> str:
    """What to say of a text that is none, and what may have been meant."""
    sentence = f"{quoted(text)} is not a quantity"
    if len(text) > MAX_LENGTH:
        return sentence
    if milli := _NEAR_MILLI.fullmatch(text):
        return f'{sentence}; did you mean "{milli[1]}m"?'
    if size := _NEAR_BYTES.fullmatch(text):
        number, unit, binary = size[1], size[2].upper(), f"{size[1]}{size[2].upper()}i"
        decimal = f"{number}{'k' if unit == 'K' else unit}"
        return f"{sentence}; did you mean {quoted(binary) if size[3] else one_of([decimal, binary])}?"
    return sentence


def capped(text: str) -> str | None:
    """The largest quantity where this one is beyond it, of its sign; None: it is not. Raises QuantityError."""
    amount = parse(text)
    # Binary amounts are capped while they are read, so the limit is looked for in the text's own number.
    if amount.compare(_LIMIT) > 0 or amount.compare(_MINUS_LIMIT) < 0 or _was_capped(text):
        return (_LIMIT if amount.sign > 0 else _MINUS_LIMIT).canonical()
    return None


_LIMIT: Final = Amount(MAX_MAGNITUDE, 0, Format.DECIMAL_SI)
_MINUS_LIMIT: Final = Amount(-MAX_MAGNITUDE, 0, Format.DECIMAL_SI)


def _scale_of(text: str, suffix: str) -> tuple[int, Format, int]:
    """(factor of the digits, format, power of the format's base) of a suffix."""
    if suffix in _DECIMAL_SUFFIXES:
        return 1, Format.DECIMAL_SI, _DECIMAL_SUFFIXES[suffix]
    if suffix in _BINARY_SUFFIXES:
        return 1 << _BINARY_SUFFIXES[suffix], Format.BINARY_SI, _BINARY_SUFFIXES[suffix]
    found = _EXPONENT.fullmatch(suffix)
    if found is None or abs(int(found[1])) > _MAX_EXPONENT:
        raise QuantityError(_no_quantity(text))
    return 1, Format.DECIMAL_EXPONENT, int(found[1])


def _bounded(unscaled: int, exponent: int, form: Format) -> tuple[int, int, Format]:
    """A wide magnitude in nano, rounded up; binary ones capped at the largest quantity."""
    if unscaled == 0:
        return unscaled, exponent, form
    if exponent < _NANO:
        nano = -(-unscaled // _ten_to(_NANO - exponent))
    else:
        nano = unscaled * _ten_to(exponent - _NANO)
    if form is Format.BINARY_SI:
        if nano > MAX_MAGNITUDE * _ONE:
            return MAX_MAGNITUDE, 0, form
        if nano < _ONE:
            form = Format.DECIMAL_SI
    return nano, _NANO, form


def _was_capped(text: str) -> bool:
    found = _TEXT.fullmatch(text)
    if found is None or found[4] not in _BINARY_SUFFIXES:
        return False
    fraction = found[3] or ""
    return int((found[2] or "0") + fraction) << _BINARY_SUFFIXES[found[4]] > MAX_MAGNITUDE * _ten_to(len(fraction))


def _ten_to(exponent: int) -> int:
    """10**exponent of an exponent that is not negative."""
    power: int = 10**exponent
    return power


def _int64(number: int) -> int:
    """The number as Go's int64 holds it after an overflow."""
    return (number + 2**63) % 2**64 - 2**63


def _narrow_up(unscaled: int, shift: int) -> int:
    """Scaling up an int64: exact, or what the overflow leaves (for most shifts 0)."""
    exact = unscaled * _ten_to(shift)
    if abs(exact) <= MAX_MAGNITUDE:
        return exact
    return _int64(exact) if shift in (1, 2, 3, 6, 9) else 0


def _narrow_down(unscaled: int, shift: int) -> int:
    magnitude = -(-abs(unscaled) // _ten_to(shift))
    return magnitude if unscaled >= 0 else -magnitude


def _wide_up(unscaled: int, shift: int) -> int:
    return _int64(_int64(unscaled) * _ten_to(shift))


def _wide_down(unscaled: int, shift: int) -> int:
    """Scaling down a big decimal: a fraction adds one whatever the sign, after truncation below 2**63, else after flooring."""
    divisor = _ten_to(shift)
    if unscaled < MAX_MAGNITUDE and shift < 19:
        unscaled = _int64(unscaled)
        quotient = abs(unscaled) // divisor * (1 if unscaled >= 0 else -1)
    else:
        quotient = unscaled // divisor
    return _int64(quotient + (1 if unscaled % divisor else 0))
