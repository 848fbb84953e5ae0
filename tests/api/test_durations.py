"""Durations are read as Go reads them."""

from __future__ import annotations

import pytest

from rayched.api.durations import duration_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90s", 90),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        ("-1m", -60),
        ("+.5h", 1800),
        *((text, None) for text in ("", "s", "90", "1m30", "5 m", "5x", "1e3s", "٣s")),
    ],
)
def test_a_duration_is_numbers_with_units(text: str, seconds: float | None) -> None:
    assert duration_seconds(text) == seconds
