"""What `-o jsonpath=TEMPLATE` and `-o custom-columns=SPEC` print, and how `--sort-by` sorts. Pure.

    {.items[*].metadata.name}
    {range .items[*]}{.metadata.name}{"\\t"}{.status.phase}{"\\n"}{end}
    NAME:.metadata.name,NODE:.spec.nodeName

Source: kubectl's templates of 1.34. Own code, as no JSONPath library has kubectl's `range`, texts and escapes (ADR 37).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rayched.api import quantity
from rayched.cli.output.json_path import Finder, PathFault, as_text, compiled, compiled_in_template

_NONE: Final = "<none>"
_RANGE_DEPTH_MAX: Final = 16
_BLOCK: Final = re.compile(r"""\{((?:[^{}"']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')*)\}""")
_TEXT: Final = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')\s*""")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}
_DIGITS: Final = re.compile(r"(\d+)")

Node = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Template:
    """A template that was understood."""

    _nodes: tuple[Node, ...]

    def text(self, document: Any) -> str:
        return "".join(node(document) for node in self._nodes)


def template(text: str) -> Template:
    """Raises PathFault."""
    if "{" not in text:
        # kubectl takes a path alone, too.
        return Template((_shown(compiled(text)),))
    levels: list[list[Node]] = [[]]
    loops: list[Finder] = []
    place = 0
    while place < len(text):
        match = _BLOCK.match(text, place)
        if match is None:
            if text[place] == "{" and "}" not in text[place + 1 :].partition("{")[0]:
                raise PathFault(f'{text!r}: a "}}" is missing behind {text[place:][:40]!r}')
            if text[place] in "{}":
                raise PathFault(f"{text!r}: cannot be read from {text[place:][:40]!r} on")
            end = min((found for found in (text.find("{", place), text.find("}", place)) if found >= 0), default=len(text))
            levels[-1].append(_constant(text[place:end]))
            place = end
            continue
        place, inner = match.end(), match[1].strip()
        if inner.startswith("range ") and len(loops) < _RANGE_DEPTH_MAX:
            loops.append(compiled_in_template(inner.removeprefix("range "), text))
            levels.append([])
        elif inner == "end" and loops:
            body = tuple(levels.pop())
            levels[-1].append(_loop(loops.pop(), body))
        elif quoted := _TEXT.fullmatch(inner):
            levels[-1].append(_constant(_unescaped(quoted[1] if quoted[1] is not None else quoted[2])))
        elif inner and inner != "end":
            levels[-1].append(_shown(compiled_in_template(inner, text)))
        else:
            raise PathFault(f"{text!r}: {{{inner}}} stands where it means nothing")
    if loops:
        raise PathFault(f"{text!r}: a {{range}} has no {{end}}")
    return Template(tuple(levels[0]))


def _constant(text: str) -> Node:
    return lambda _: text


def _shown(find: Finder) -> Node:
    return lambda document: " ".join(map(value_text, find(document)))


def _loop(find: Finder, body: Sequence[Node]) -> Node:
    return lambda document: "".join(node(item) for item in find(document) for node in body)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), text)


def value_text(value: Any) -> str:
    """Plain values as they are, others as JSON in one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if isinstance(value, dict | list) else as_text(value)


@dataclass(frozen=True, slots=True)
class CustomColumns:
    """Headings, and where the cells below them come from."""

    headings: tuple[str, ...]
    _finders: tuple[Finder, ...]

    def cells(self, document: Any) -> list[str]:
        found = [[value_text(value) for value in find(document) if value is not None] for find in self._finders]
        return [",".join(values) or _NONE for values in found]


def custom_columns(text: str) -> CustomColumns:
    """Of HEADING:PATH,HEADING:PATH. Raises PathFault."""
    headings, finders = [], []
    for part in _columns_of(text):
        heading, colon, path = part.partition(":")
        # A column may be without a heading, as scripts want it that list names alone.
        if not colon or not path:
            raise PathFault(f"{part!r}: want HEADING:PATH, as in NAME:.metadata.name")
        headings.append(heading)
        finders.append(compiled(path))
    return CustomColumns(tuple(headings), tuple(finders))


def custom_columns_of_lines(text: str) -> CustomColumns:
    """Of a file: headings in its first line, paths in its second one. Raises PathFault."""
    lines = text.splitlines()
    headings, paths = (lines[0].split(), lines[1].split()) if len(lines) > 1 else ([], [])
    if not headings or len(headings) != len(paths):
        raise PathFault("want a line of headings, and below it a line with as many paths")
    return CustomColumns(tuple(headings), tuple(map(compiled, paths)))


def _columns_of(text: str) -> Iterable[str]:
    """Parts between commas that stand in no bracket."""
    depth, begin = 0, 0
    for place, character in enumerate(text):
        depth += (character in "[(") - (character in "])")
        if character == "," and depth <= 0:
            yield text[begin:place]
            begin = place + 1
    yield text[begin:]


def sorted_by(path: str, documents: Sequence[Any]) -> list[int]:
    """The places of the documents in their order by what a path leads to: numbers, quantities, or texts with numbers in them.

    Those without a value come first. Raises PathFault, also where no document has one.
    """
    find = compiled(path)
    values = [next(iter(find(document)), None) for document in documents]
    if documents and all(value is None for value in values):
        raise PathFault(f'couldn\'t find any field with path "{path}" in the list of objects')
    return sorted(range(len(documents)), key=lambda place: _sort_key(values[place]))


def _sort_key(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    if isinstance(value, bool | int | float):
        return 1, float(value)
    text = value_text(value)
    try:
        return 1, quantity.milli_value(text) / 1000
    except quantity.QuantityError:
        return 2, [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in _DIGITS.split(text) if part]
