"""What all tests share: fixtures for real components, and a check of the rows that tests name."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

# Time says nothing on a machine that does other things as well.
settings.register_profile("without-deadline", deadline=None)
settings.load_profile("without-deadline")

# Whoever starts the tests in the background of a shell has them ignore Ctrl-C, and all that they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.distribution", "tests.etcd_fixture"]

ROWS_A_TEST_MAX = 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        rows = [row for marker in item.iter_markers("row") for row in marker.args]
        if len(rows) > ROWS_A_TEST_MAX:
            raise pytest.UsageError(f"{item.nodeid} names {len(rows)} rows; {ROWS_A_TEST_MAX} at most")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-transcripts",
        action="store_true",
        help="write what the transcripts' commands print now into tests/transcripts, in place of comparing",
    )
