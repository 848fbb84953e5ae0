"""Which process takes which tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distribution import LONG, ROOT, computes, computing_process, next_unit, unit_of

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


DIES = """
import os, pytest
@pytest.mark.parametrize("number", range({tests}))
def test_it(number):
    if number == {died}:
        os._exit(3)
"""


@pytest.mark.parametrize(("tests", "died"), [(1, 0), (2, 0), (2, 1), (6, 2)])
@pytest.mark.parametrize("processes", [1, 3])
def test_a_process_that_dies_costs_the_one_test_that_it_ran(tmp_path: Path, processes: int, tests: int, died: int) -> None:
    (tmp_path / "test_dies.py").write_text(DIES.format(tests=tests, died=died))
    for name in ("one", "other"):
        (tmp_path / f"test_{name}.py").write_text("def test_it(): pass")
    words = ["-q", "-p", "tests.distribution", "-p", "no:cacheprovider", "--import-mode=importlib", "-n", str(processes)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--rootdir", tmp_path, tmp_path],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert f"1 failed, {tests + 1} passed" in done.stdout, done.stdout + done.stderr
    assert f"crashed while running 'test_dies.py::test_it[{died}]'" in done.stdout
