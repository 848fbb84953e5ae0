"""The command over a small project of its own, whose tests are known to be good or bad."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import sampling

pytestmark = [pytest.mark.slow, pytest.mark.long]

CODE = """\
def bounded(value, least):
    if value < least:
        return least
    return value


def counted(limit):
    number = 0
    while number < limit:
        number += 1
    return number


def unwatched(value):
    return value + value
"""
GOOD = """\
from leader.bounds import bounded, counted


def test_bounded():
    assert [bounded(value, 2) for value in (1, 2, 3)] == [2, 2, 3]


def test_counted():
    assert [counted(0), counted(3)] == [0, 3]
"""
EQUAL_BOUND = """\
[[equivalent]]
file = "leader/bounds.py"
within = "bounded"
was = "if value < least:"
becomes = "if (value <= least):"
reason = "both are the same value"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(Path(__file__).parent, tmp_path / "tests/mutants", ignore=shutil.ignore_patterns("__pycache__", "test_*"))
    for name, text in {
        # Without it the package that is installed would be the one that is found.
        "leader/__init__.py": "",
        "leader/bounds.py": CODE,
        "tests/leader/test_bounds.py": GOOD,
        "tests/mutants/equivalent.toml": EQUAL_BOUND,
        "tests/__init__.py": "",
        "tests/sampling.py": Path(sampling.__file__).read_text(),
        "tests/transcripts/__init__.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(project: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "tests.mutants", "--room", "elector", *arguments]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def counts(output: str) -> list[float]:
    """Mutants, killed, timeouts, survived, equivalent and score."""
    row = re.search(r"^elector +(.*) %$", output, re.MULTILINE)
    assert row, output
    return [float(column) for column in row[1].split()]


def test_each_mutant_of_a_file_has_its_verdict_and_no_file_changes(project: Path) -> None:
    before = {path: path.read_bytes() for path in project.rglob("*.py")}
    code, output = run(project, "--at", "leader/bounds.py")
    # A loop that steps back, not at all, or until the wrong end goes on for ever; what no test enters lives.
    mutants, killed, timeouts, survived, equivalent, score = counts(output)
    assert (mutants, killed, timeouts, survived, equivalent) == (12, 7, 3, 1, 1), output
    assert "survived: leader/bounds.py:15 (unwatched), whose function no test enters" in output
    assert "- return value + value\n+ return (value - value)" in output
    assert score == pytest.approx(100 * 10 / 11, abs=0.1) and code == 0
    assert {path: path.read_bytes() for path in project.rglob("*.py")} == before


def test_a_score_below_the_target_is_told_by_the_exit_code(project: Path) -> None:
    (project / "tests/leader/test_bounds.py").write_text(
        "from leader.bounds import bounded\n\ndef test_it():\n    bounded(1, 2)\n"
    )
    code, output = run(project, "--at", "leader/bounds.py:2")
    assert code == 1 and counts(output)[3] > 0, output


def test_a_mutant_that_cannot_be_imported_by_a_plugin_of_the_tests_is_killed(project: Path) -> None:
    (project / "tests/conftest.py").write_text('pytest_plugins = ["tests.plugin"]\n')
    (project / "tests/plugin.py").write_text("from leader.bounds import bounded\n\nassert bounded(1, 2) == 2\n")
    code, output = run(project, "--at", "leader/bounds.py:2", "--at", "leader/bounds.py:10")
    assert code == 0 and counts(output)[3] == 0, output


def test_the_same_seed_draws_the_same_mutants(project: Path) -> None:
    runs = [run(project, "--count", "3", "--seed", seed, "--verbose")[1] for seed in ("7", "7", "8")]
    drawn = [sorted(line for line in output.splitlines() if line.startswith(("- ", "+ "))) for output in runs]
    assert drawn[0] == drawn[1] != drawn[2]


def test_tests_that_fail_without_a_mutant_are_no_judges(project: Path) -> None:
    (project / "tests/leader/test_bounds.py").write_text("def test_it():\n    assert False\n")
    code, output = run(project)
    assert code == 2 and "the tests of elector fail without a mutant" in output


def test_a_reviewed_mutant_that_is_gone_is_told(project: Path) -> None:
    (project / "tests/mutants/equivalent.toml").write_text(EQUAL_BOUND.replace("least", "most"))
    code, output = run(project, "--at", "leader/bounds.py:10")
    assert code == 1 and "equivalent.toml: 0 mutants fit leader/bounds.py (bounded)" in output
