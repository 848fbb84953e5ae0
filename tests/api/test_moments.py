"""A moment as people read it."""

from __future__ import annotations

import pytest

from rayched.api.moments import moment_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "1970-01-01T00:00:00Z"), (1738324800.999, "2025-01-31T12:00:00Z"), (253402300799, "9999-12-31T23:59:59Z")],
)
def test_a_moment_is_written_in_utc_to_the_second(seconds: float, text: str) -> None:
    assert moment_text(seconds) == text
