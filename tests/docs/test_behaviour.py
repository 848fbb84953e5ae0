"""The table of behaviours counts a test only where it can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.behaviour import tests_that_show_nothing as empty_tests

FILE = """
import pytest

def check(value):
    assert value

def through(value):
    check(value)

@pytest.mark.row("Q1")
def test_it():
    {body}
"""


@pytest.mark.parametrize(
    ("body", "shows"),
    [
        ("pass", False),
        ("assert True", False),
        ("print(1)", False),
        ("assert 1 + 1 == 2", True),
        ("check(2)", True),
        ("through(2)", True),
        ("with pytest.raises(ValueError):\n        int('x')", True),
    ],
)
def test_a_test_that_names_a_row_has_to_assert_something(tmp_path: Path, body: str, shows: bool) -> None:
    (tmp_path / "test_file.py").write_text(FILE.format(body=body))
    assert empty_tests(tmp_path) == ([] if shows else ["test_file.py::test_it"])
