"""What of the page is pure, under node's own test runner."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "javascript"
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="there is no node on this host")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("columns", marks=pytest.mark.row("UI13", "UI16", "UI17")),
        pytest.param("decisions", marks=pytest.mark.row("UI20", "UI24", "UI26")),
        pytest.param("texts", marks=pytest.mark.row("UI33", "UI43", "UI58")),
    ],
)
def test_pure_modules_pass_their_tests(name: str) -> None:
    assert NODE is not None
    file = FOLDER / f"{name}.test.mjs"
    ended = subprocess.run(
        [NODE, "--test", "--test-reporter=tap", str(file)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stdout
    assert "# fail 0" in ended.stdout and "# pass 0" not in ended.stdout


def test_each_file_of_tests_is_run() -> None:
    assert sorted(file.name for file in FOLDER.iterdir()) == ["columns.test.mjs", "decisions.test.mjs", "texts.test.mjs"]
