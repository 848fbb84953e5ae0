"""The example that docs/engine.md works by hand comes out as the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "engine.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(program, "docs/engine.md", "exec"), names)
    return names


def test_the_table_has_the_totals_that_the_engine_gives(example: dict[str, Any]) -> None:
    row = re.search(r"^\| \*\*total\*\* \|(.*)\|$", PAGE, re.MULTILINE)
    assert row is not None
    cells = [cell.strip(" *") for cell in row[1].split("|")]
    fresh = example["InProcessCluster"](example["OBJECTS"], config=example["CONFIG"])
    totals = {node.node_name: node.total for node in fresh.explain(example["pod"]("first")).nodes}
    assert [str(totals[name]) if totals[name] >= 0 else "infeasible" for name in "abc"] == cells


def test_the_third_pod_goes_where_the_page_says(example: dict[str, Any]) -> None:
    example["cluster"].place(example["pod"]("w3")).assert_on("w3", "a")


def test_each_module_of_the_engine_has_its_place_on_the_page() -> None:
    modules = (Path(__file__).parents[2] / "rayched" / "engine").glob("*.py")
    assert [path.name for path in modules if path.name != "__init__.py" and f"`{path.name}`" not in PAGE] == []


def test_the_names_of_the_page_are_names_of_the_code() -> None:
    table = PAGE.split("## Names")[1].split("## Glossary")[0]
    named = {name for line in table.splitlines() for name in re.findall(r"`([A-Z]\w+)`", line.split(" | ")[0])}
    sources = [path.read_text() for path in (Path(__file__).parents[2] / "rayched").rglob("*.py")]
    assert len(named) > 20
    assert {name for name in named if not any(re.search(rf"^(class )?{name}\b", text, re.MULTILINE) for text in sources)} == set()
