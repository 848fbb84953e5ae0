"""The JSONPath of `wait`: which values of an object's document a path leads to. Pure.

    {.status.phase}    .status.conditions[?(@.type=="Ready")].status    .spec.containers[0]['image']    .items[*].name

Braces and the first dot may be left out. A field that is not there leads to nothing, which is no error.

Source: kubectl's JSONPath of 1.34, of which unions, slices, `..` and `range` are not supported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

_NAME: Final = re.compile(r"\.((?:[^.\[\]{}\\]|\\.)+)")
_KEY: Final = re.compile(r"""\[(?:'([^']*)'|"([^"]*)")\]""")
_INDEX: Final = re.compile(r"\[(-?\d{1,9})\]")
_ALL: Final = re.compile(r"\[\*\]|\.\*")
_FILTER: Final = re.compile(r"""\[\?\(@((?:\.[A-Za-z0-9_/-]+)+)\s*(==|!=)\s*(?:"([^"]*)"|'([^']*)'|(true|false|-?\d+))\)\]""")

Step = Callable[[Any], Iterator[Any]]


class PathFault(ValueError):
    """A text that is no path; one line."""


def compiled(text: str) -> Callable[[Any], list[Any]]:
    """What the path leads to in a document: the values found, in order. Raises PathFault."""
    path = text.strip()
    if path.startswith("{") and path.endswith("}"):
        path = path[1:-1].strip()
    path = path.removeprefix("$")
    if path in ("", "."):
        raise PathFault(f"{text!r}: names no field; want one such as {{.status.phase}}")
    if not path.startswith((".", "[")):
        path = "." + path
    steps = list(_steps(path, text))
    return lambda document: _follow(document, steps)


def _follow(document: Any, steps: Sequence[Step]) -> list[Any]:
    values = [document]
    for step in steps:
        values = [found for value in values for found in step(value)]
    return values


def _steps(path: str, text: str) -> Iterator[Step]:
    place = 0
    while place < len(path):
        for pattern, make in _FORMS:
            match = pattern.match(path, place)
            if match is not None:
                yield make(match)
                place = match.end()
                break
        else:
            raise PathFault(f"{text!r}: cannot be read from {path[place:][:40]!r} on")


def _field(match: re.Match[str]) -> Step:
    name = re.sub(r"\\(.)", r"\1", match[1])
    return lambda value: iter([value[name]] if isinstance(value, dict) and name in value else [])


def _key(match: re.Match[str]) -> Step:
    name = match[1] if match[1] is not None else match[2]
    return lambda value: iter([value[name]] if isinstance(value, dict) and name in value else [])


def _index(match: re.Match[str]) -> Step:
    number = int(match[1])
    return lambda value: iter([value[number]] if isinstance(value, list) and -len(value) <= number < len(value) else [])


def _every(_: re.Match[str]) -> Step:
    return lambda value: iter(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())


def _where(match: re.Match[str]) -> Step:
    inner = [_field(found) for found in _NAME.finditer(match[1])]
    wanted = next(found for found in match.groups()[2:] if found is not None)
    equal = match[2] == "=="

    def choose(value: Any) -> Iterator[Any]:
        for item in value if isinstance(value, list) else ():
            if any((as_text(found) == wanted) is equal for found in _follow(item, inner)):
                yield item

    return choose


def as_text(value: Any) -> str:
    """As it stands in a path or behind one."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Step]], ...]] = (
    (_ALL, _every),
    (_NAME, _field),
    (_KEY, _key),
    (_INDEX, _index),
    (_FILTER, _where),
)
