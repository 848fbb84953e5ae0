"""Rules that tests can break stand in the code once each, hold, and are set by nobody."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.planted_bugs import (
    ACCESS,
    BUGS,
    CERTIFICATES,
    FOREIGN,
    GROUP_ROOMS,
    GROUPS,
    ON_NODES,
    SIMULATED,
    SWITCHES,
    WORKLOADS,
    planted,
    rule_of,
)

ROOT = Path(__file__).parent.parent
SOURCES = sorted(path for room in ("rayched", "leader", "benchmarks") for path in (ROOT / room).rglob("*.py"))


def names_in(path: Path) -> Iterator[tuple[str, str]]:
    """(how, name) of each place that mentions a rule: defined, read, or in any other way."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id.startswith("RULE_"):
            sound = isinstance(node.value, ast.Constant) and node.value.value is True
            yield "defined" if sound else "defined as broken", node.target.id
        elif isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name.startswith("RULE_"):
                yield "read" if isinstance(node.ctx, ast.Load) else "target", name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("RULE_"):
            yield "named in a string", node.value


def test_each_rule_is_defined_once_as_kept_and_nothing_sets_it() -> None:
    found = [(how, name) for path in SOURCES for how, name in names_in(path)]
    everything = (BUGS, SIMULATED, ON_NODES, WORKLOADS, ACCESS, CERTIFICATES, GROUPS, GROUP_ROOMS, FOREIGN, SWITCHES)
    places = [place for bugs in everything for place in bugs.values()]
    rules = sorted(place.rpartition(":")[2].rpartition(".")[2] for place in places)
    assert sorted(name for how, name in found if how == "defined") == rules
    assert sorted(name for how, name in found if how == "target") == rules, "a rule is assigned apart from its definition"
    assert {how for how, _ in found} == {"defined", "target", "read"}
    assert {name for how, name in found if how == "read"} == set(rules), "a rule that nobody asks for"


@pytest.mark.parametrize(
    "bug", [*BUGS, *SIMULATED, *ON_NODES, *WORKLOADS, *ACCESS, *CERTIFICATES, *GROUPS, *GROUP_ROOMS, *FOREIGN, *SWITCHES]
)
def test_a_planted_bug_is_gone_afterwards(bug: str) -> None:
    owner, name = rule_of(bug)
    assert getattr(owner, name) is True
    with planted(bug):
        assert getattr(owner, name) is False
    assert getattr(owner, name) is True
