"""Tables of the pages against what the code has: kinds, plugins with weights and arguments, variables of the environment.
Manifests and configurations in the pages are read by the real readers.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rayched.api import kinds
from rayched.api.manifest import read_text
from rayched.configuration.configuration_file import load
from rayched.configuration.default_plugins import DEFAULT_PLUGINS
from rayched.framework import plugin_args
from rayched.plugins.in_tree import IN_TREE
from tests.docs.markdown import PAGES, ROOT, Block, blocks

DOCS = ROOT / "docs"
MANIFESTS = [block for page in PAGES for block in blocks(page, "yaml") if "KubeSchedulerConfiguration" not in block.text]
OF_A_PLUGIN_OF_ITS_OWN = {DOCS / "plugins.md", DOCS / "tour.md"}
"""Its configuration is read with that plugin by the tests of the kit."""
CONFIGURATIONS = [
    block
    for page in PAGES
    for block in blocks(page, "yaml")
    if "kind: KubeSchedulerConfiguration" in block.text and page not in OF_A_PLUGIN_OF_ITS_OWN
]


def rows(page: Path, *headings: str) -> list[list[str]]:
    """The cells of the table with these headings."""
    lines = page.read_text().splitlines()
    start = lines.index(f"| {' | '.join(headings)} |") + 2
    found = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_the_kinds_of_the_page_are_those_that_there_are() -> None:
    told = [(kind, version) for kind, version, _ in rows(DOCS / "manifests.md", "kind", "apiVersion", "what for")]
    assert sorted(told) == sorted((kind.name, kind.api_version) for kind in kinds.KINDS)


def test_the_plugins_of_the_page_are_the_default_ones_in_their_order_with_their_weights() -> None:
    told = [(name, int(weight or 0)) for name, weight, _ in rows(DOCS / "configuration.md", "plugin", "weight", "arguments")]
    assert told == list(DEFAULT_PLUGINS)
    assert {name for name, _ in told} == set(IN_TREE)


@pytest.mark.parametrize("row", rows(DOCS / "configuration.md", "plugin", "weight", "arguments"), ids=lambda row: row[0])
def test_the_arguments_of_the_page_are_those_of_the_plugin(row: list[str]) -> None:
    name, _, arguments = row
    fields: tuple[str, ...] = getattr(getattr(plugin_args, f"{name}Args", None), "__slots__", ())
    names = [re.sub(r"_(\w)", lambda found: found[1].upper(), field) for field in fields]
    assert re.findall(r"`(\w+)`", arguments) == names


def test_the_rooms_of_the_page_are_those_that_there_are() -> None:
    told = [name.strip("`/") for name, _ in rows(DOCS / "ARCHITECTURE.md", "room", "what lives there")]
    assert sorted(told) == sorted(path.parent.name for path in (ROOT / "rayched").glob("*/__init__.py"))


def test_the_files_of_the_page_on_leading_are_those_that_there_are() -> None:
    told = [
        name
        for names, _ in rows(ROOT / "leader" / "README.md", "file", "what it is")
        for name in re.findall(r"`(\w+\.py)`", names)
    ]
    assert sorted(told) == sorted(path.name for path in (ROOT / "leader").glob("*.py") if path.name != "__init__.py")


def test_the_variables_of_the_page_are_those_that_are_read() -> None:
    told = {name.strip("`") for name, *_ in rows(DOCS / "configuration.md", "variable", "what it says")}
    # What an agent gives to pods, it does not read.
    files = [file for file in (ROOT / "rayched").rglob("*.py") if "agent" not in file.parts]
    read = {name for file in files for name in re.findall(r'"(RAYCHED_[A-Z_]+)"', file.read_text())}
    assert told == read


def test_there_are_manifests_and_configurations_in_the_pages() -> None:
    assert len(MANIFESTS) >= 2 and len(CONFIGURATIONS) >= 2


@pytest.mark.parametrize("block", CONFIGURATIONS, ids=str)
def test_a_configuration_of_a_page_is_taken(block: Block) -> None:
    load(block.text, str(block), IN_TREE)


@pytest.mark.parametrize("block", MANIFESTS, ids=str)
def test_a_manifest_of_a_page_is_taken_without_a_warning(block: Block) -> None:
    found: list[Any] = read_text(block.text, str(block))
    assert found
    assert not [warning for result in found for warning in result.warnings]
