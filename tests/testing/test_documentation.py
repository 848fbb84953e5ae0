"""The programs and the configuration of docs/plugins.md do what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rayched.configuration.configuration_file import load
from rayched.framework.profile import TimeBudget, WhenExceeded
from rayched.testing.plugins import registry_with

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_each_program_of_the_page_runs(number: int) -> None:
    exec(compile(blocks("python")[number], f"docs/plugins.md, program {number}", "exec"), {})


def test_the_configuration_of_the_page_is_right_for_its_plugin() -> None:
    found: dict[str, Any] = {}
    exec(compile(blocks("python")[0], "docs/plugins.md", "exec"), found)
    (text,) = blocks("yaml")
    loaded = load(text, "page", registry_with({"Quiet": found["Quiet"]}))
    profile = loaded.profiles["default-scheduler"]
    assert profile.weights["Quiet"] == 5
    assert profile.time_budgets == {"Quiet": TimeBudget(0.05, WhenExceeded.SKIP)}
    assert not loaded.warnings
