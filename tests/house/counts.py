"""What the tree consists of, read from its source."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.house.rules import Rules

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("rayched", "leader")
_GENERATED: Final = "rayched/v1/"
_ENGINE_ROOMS: Final = ("engine", "framework", "plugins", "scheduler", "snapshot")
_CONTRACT: Final = ("rayched/framework/plugin.py", "rayched/framework/accelerated.py")
"""Forms come after those that they extend."""
_OF_FLAGS: Final = ("bool", "PodPart")
_SAYS_CROSS_OVER: Final = re.compile(r"one by one|is as good|rather than|instead of|faster|no longer than|near\.$|has its price")


@dataclass(slots=True)
class Counts:
    """Names stand with the places where they are."""

    lines: dict[str, int] = field(default_factory=dict)
    """By room; `leader` is one."""
    classes: dict[str, list[str]] = field(default_factory=dict)
    """Names of classes that stand in several modules."""
    files: list[tuple[int, str]] = field(default_factory=list)
    """Longest first."""
    functions: list[tuple[int, str]] = field(default_factory=list)
    """Longest first."""
    words: dict[str, str] = field(default_factory=dict)
    """Every name of a module, a class and a function, with a place."""
    constants: dict[str, str] = field(default_factory=dict)
    """Numbers of the engine's rooms by place, "engine/plans.py:SIGHTS_MAX", with the words below them."""
    protocols: list[str] = field(default_factory=list)
    """Forms that a column plugin can have."""
    flags: list[str] = field(default_factory=list)
    """What a plugin promises of itself."""
    fit: list[str] = field(default_factory=list)
    """Functions that state Fit's rule."""

    def cross_overs(self, rules: Rules) -> list[str]:
        return [place for place in self.constants if place in rules.cross_overs]

    def unsorted(self, rules: Rules) -> list[str]:
        """Constants whose words say that another way is faster, and that nobody has sorted."""
        known = rules.cross_overs | rules.limits
        return [place for place, words in self.constants.items() if place not in known and _SAYS_CROSS_OVER.search(words)]

    def figures(self, rules: Rules) -> list[tuple[str, int, int]]:
        """What is counted, how many there are, how many there may be."""
        most = rules.most
        return [
            ("lines of the longest file", self.files[0][0], most["file_lines"]),
            ("lines of the longest function", self.functions[0][0], most["function_lines"]),
            ("files that are too long", sum(lines > rules.file_lines for lines, _ in self.files), most["long_files"]),
            (
                "functions that are too long",
                sum(lines > rules.function_lines for lines, _ in self.functions),
                most["long_functions"],
            ),
            ("class names with several meanings", len(self.classes), most["class_names"]),
            ("forms of a column plugin", len(self.protocols), most["protocols"]),
            ("flags of a plugin", len(self.flags), most["flags"]),
            ("cross-over constants", len(self.cross_overs(rules)), most["cross_overs"]),
            ("statements of Fit's rule", len(set(self.fit)), most["fit"]),
        ]


def read_tree(rules: Rules) -> Counts:
    counts, classes, lines = Counts(), defaultdict[str, list[str]](list), defaultdict[str, int](int)
    for path in _sources():
        text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        parts = name.split("/")
        room = parts[0] if parts[0] == "leader" else parts[1].removesuffix(".py")
        n_lines = text.count("\n")
        lines[room] += n_lines
        counts.files.append((n_lines, name))
        counts.words.setdefault(path.stem, name)
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                counts.functions.append(((node.end_lineno or node.lineno) - node.lineno + 1, f"{name}:{node.name}"))
                counts.words.setdefault(node.name, name)
                if (place := f"{'/'.join(parts[1:])}:{node.name}") in rules.fit:
                    counts.fit.append(place)
        for statement in tree.body:
            if isinstance(statement, ast.ClassDef):
                classes[statement.name].append(name)
                counts.words.setdefault(statement.name, name)
        if room in _ENGINE_ROOMS:
            counts.constants.update(_numbers(tree, "/".join(parts[1:])))
    for name in _CONTRACT:
        _read_contract(ast.parse((ROOT / name).read_text(encoding="utf-8")), counts)
    counts.lines = dict(sorted(lines.items(), key=lambda one: -one[1]))
    counts.classes = {name: places for name, places in sorted(classes.items()) if len(places) > 1 and name not in rules.shared}
    counts.files.sort(reverse=True)
    counts.functions.sort(reverse=True)
    return counts


def _sources() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not path.relative_to(ROOT).as_posix().startswith(_GENERATED):
                yield path


def _numbers(tree: ast.Module, file: str) -> Iterator[tuple[str, str]]:
    for place, statement in enumerate(tree.body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name) or statement.value is None:
            continue
        name = statement.target.id
        if not name.lstrip("_").isupper() or not _is_number(statement.value):
            continue
        after = tree.body[place + 1] if place + 1 < len(tree.body) else None
        told = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
        yield f"{file}:{name}", " ".join(str(told).split())


def _is_number(value: ast.expr) -> bool:
    return not any(isinstance(node, ast.Call | ast.Name | ast.Attribute | ast.Tuple) for node in ast.walk(value)) and any(
        isinstance(node, ast.Constant) and type(node.value) in (int, float) for node in ast.walk(value)
    )


def _read_contract(tree: ast.Module, counts: Counts) -> None:
    for statement in tree.body:
        if not isinstance(statement, ast.ClassDef):
            continue
        if {base.id for base in statement.bases if isinstance(base, ast.Name)} & {"ColumnPlugin", *counts.protocols}:
            counts.protocols.append(statement.name)
        for method in statement.body:
            if isinstance(method, ast.FunctionDef) and isinstance(method.returns, ast.Name) and method.returns.id in _OF_FLAGS:
                counts.flags.append(f"{statement.name}.{method.name}")
