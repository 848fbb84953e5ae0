"""Holds docs/behaviour.md against the tests: `python -m tests.behaviour [--write]`.

Each row of the document is `| id | behaviour | state | tests |`. Tests name rows with `@pytest.mark.row("Q30")`. A row is

* `shown`: at least one test names it, and the tests column lists exactly those tests;
* `decided otherwise Cn`: the decision of that number in the document replaces it (tests may show what was decided);
* `next round`: not in this round; no test names it;
* `open`: not built yet; no test names it.

A test that names a row asserts something: itself, by an expected exception, or by a helper of the tests that asserts.

Exit code 1 when a row and its tests disagree, or a test that names one shows nothing.
`--write` makes the document agree: states `open` and `shown` and the tests column.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent
DOCUMENT = ROOT.parent / "docs" / "behaviour.md"
ROW = re.compile(r"^\| (?P<id>[A-Z]+[0-9-][0-9.]*[a-z]?) \| (?P<behaviour>.*?) \| (?P<state>[^|]*?) \| (?P<tests>[^|]*?) ?\|$")
DECISION = re.compile(r"^\| (C[0-9]+) \|")
SECTION = re.compile(r"^## (.*)$")
STATES = ("shown", "decided otherwise", "next round", "open")
TESTS_LISTED_MAX = 3
HELPERS_DEPTH_MAX = 2
"""A test may call a helper that calls one that asserts."""


@dataclass(frozen=True, slots=True)
class BehaviourRow:
    line: int
    section: str
    id: str
    behaviour: str
    state: str
    tests: str

    def text(self) -> str:
        return f"| {self.id} | {self.behaviour} | {self.state} | {self.tests} |"


def rows_named_by_tests() -> dict[str, list[str]]:
    """Row id → names of the tests that name it, as `file::test`, in the order of the files."""
    named: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("test_*.py")):
        for name, ids in _marked(ast.parse(path.read_text()).body, []):
            for row in ids:
                named[row].append(f"{path.relative_to(ROOT).as_posix()}::{name}")
    return named


def tests_that_show_nothing(root: Path = ROOT) -> list[str]:
    """Tests that name a row and neither assert anything nor call a helper of the tests that does, as `file::test`."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(root.rglob("*.py"))}
    functions = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    helpers: set[str] = set()
    for _ in range(HELPERS_DEPTH_MAX):
        helpers |= {node.name for node in functions if not node.name.startswith("test") and _asserts(node, helpers)}
    found = []
    for path, tree in trees.items():
        for owner in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))):
            inherited = list(_row_ids(owner))
            for node in owner.body:
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test"):
                    continue
                if (inherited or list(_row_ids(node))) and not _asserts(node, helpers):
                    found.append(f"{path.relative_to(root).as_posix()}::{node.name}")
    return found


def _asserts(function: ast.AST, helpers: Collection[str]) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            # `assert True` and the like show nothing.
            if not isinstance(node.test, ast.Constant):
                return True
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called == "raises" or called in helpers:
                return True
    return False


def _marked(body: list[ast.stmt], inherited: list[str]) -> Iterator[tuple[str, list[str]]]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _marked(statement.body, inherited + list(_row_ids(statement)))
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name.startswith("test"):
            ids = inherited + list(_row_ids(statement))
            if ids:
                yield statement.name, ids


def _row_ids(node: ast.AST) -> Iterator[str]:
    """Ids in decorators, also inside the `marks=` of pytest.param cases."""
    for decorator in getattr(node, "decorator_list", []):
        for call in ast.walk(decorator):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "row":
                yield from (a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str))


def read_document(text: str) -> tuple[list[BehaviourRow], set[str]]:
    rows: list[BehaviourRow] = []
    decisions: set[str] = set()
    section = ""
    for number, line in enumerate(text.splitlines()):
        if found := SECTION.match(line):
            section = found[1]
        elif found := DECISION.match(line):
            decisions.add(found[1])
        elif found := ROW.match(line):
            rows.append(
                BehaviourRow(number, section, found["id"], found["behaviour"], found["state"].strip(), found["tests"].strip())
            )
    return rows, decisions


def agreed(row: BehaviourRow, tests: list[str]) -> BehaviourRow:
    """The row as it has to be, given the tests that name it."""
    listed = "<br>".join(f"`{t}`" for t in tests[:TESTS_LISTED_MAX])
    if len(tests) > TESTS_LISTED_MAX:
        listed += f"<br>and {len(tests) - TESTS_LISTED_MAX} more"
    state = row.state
    if state in ("open", "shown"):
        state = "shown" if tests else "open"
    return replace(row, state=state, tests=listed)


def problems(rows: list[BehaviourRow], decisions: set[str], named: dict[str, list[str]]) -> list[str]:
    found = []
    known = {row.id for row in rows}
    if len(known) != len(rows):
        found.append("a row's id stands twice")
    for row in rows:
        state = row.state
        if state.startswith("decided otherwise "):
            if state.removeprefix("decided otherwise ") not in decisions:
                found.append(f"{row.id}: {state!r} names no decision of the document")
        elif state not in STATES:
            found.append(f"{row.id}: state is {state!r}; allowed are {', '.join(STATES)}")
        if state == "next round" and named.get(row.id):
            found.append(f"{row.id}: next round, and yet {named[row.id][0]} names it")
        elif agreed(row, named.get(row.id, [])) != row:
            found.append(f"{row.id}: the document and the tests disagree; run python -m tests.behaviour --write")
    found += [
        f"{row}: {tests[0]} names a row that the document does not have" for row, tests in named.items() if row not in known
    ]
    return found


def counts(rows: list[BehaviourRow]) -> Table:
    table = Table("section", *STATES, "rows", title="docs/behaviour.md")
    by_section: dict[str, list[BehaviourRow]] = defaultdict(list)
    for row in rows:
        by_section[row.section].append(row)
    for section, members in [*by_section.items(), ("all", rows)]:
        cells = [str(sum(r.state.startswith(state) for r in members)) for state in STATES]
        table.add_row(section, *cells, str(len(members)), end_section=section == list(by_section)[-1])
    return table


def main(arguments: list[str]) -> int:
    text = DOCUMENT.read_text()
    rows, decisions = read_document(text)
    named = rows_named_by_tests()
    if "--write" in arguments:
        lines = text.splitlines()
        for row in rows:
            lines[row.line] = agreed(row, named.get(row.id, [])).text()
        DOCUMENT.write_text("\n".join(lines) + "\n")
        rows, decisions = read_document(DOCUMENT.read_text())
    Console().print(counts(rows))
    found = problems(rows, decisions, named)
    found += [f"{test} names a row and asserts nothing" for test in tests_that_show_nothing()]
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
