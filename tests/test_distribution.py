"""Which process takes which tests."""

from __future__ import annotations

import pytest

from tests.distribution import LONG, computes, computing_process, next_unit, unit_of

COMPUTES, WAITS, TOGETHER = "tests/queue/test_heap.py", "tests/replica/test_drain.py", "tests/cli"


@pytest.mark.parametrize(
    ("test", "unit"),
    [
        ("tests/cli/test_apply.py::test_a[b::c/d]", "tests/cli"),
        ("tests/gateway/test_watches.py::test_a", "tests/gateway"),
        ("tests/gateway/test_sixty_commands.py::test_a", "tests/gateway/test_sixty_commands.py"),
        ("tests/replica/test_drain.py::TestIt::test_a", "tests/replica/test_drain.py"),
    ],
)
def test_a_unit_is_a_file_or_a_folder_whose_files_use_one_cluster(test: str, unit: str) -> None:
    assert unit_of(test) == unit


@pytest.mark.parametrize(
    ("unit", "expected"),
    [(COMPUTES, True), (WAITS, False), (TOGETHER, False), ("tests/core/test_plans_over_etcd.py", False)],
)
def test_what_starts_processes_does_not_only_compute(unit: str, expected: bool) -> None:
    assert computes(unit) is expected


def test_one_process_computes_and_the_others_do_that_last() -> None:
    units = [COMPUTES, WAITS, TOGETHER]
    assert next_unit(units, computing=True) == COMPUTES
    assert next_unit(units, computing=False) == WAITS
    assert next_unit([WAITS, TOGETHER], computing=True) is None, "it leaves them to processes of ordinary priority"
    assert next_unit([COMPUTES], computing=False) == COMPUTES
    assert next_unit([], computing=True) is next_unit([], computing=False) is None


def test_a_process_that_is_alone_takes_all() -> None:
    assert [computing_process(count) for count in (1, 2, 4)] == ["", "gw1", "gw3"]


def test_each_long_unit_is_listed_once_and_is_one() -> None:
    assert len(set(LONG)) == len(LONG)
    assert [unit for unit in LONG if unit_of(f"{unit}::test" if unit.endswith(".py") else f"{unit}/x.py::test") != unit] == []
