"""kubectl's JSONPath: which values of an object's document a path leads to. Pure.

    {.status.phase}    .status.conditions[?(@.type=="Ready")].status    .spec.containers[0]['image']    .items[*].name
    ..image    .items[0:3].metadata['name','uid']    .items[?(@.spec.priority>100)].metadata.name

Braces and the first dot may be left out. A field that is not there leads to nothing, which is no error.

Source: kubectl's JSONPath of 1.34. Not here: functions, and steps of slices.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from rayched.api.errors import bounded_line

_NAME: Final = re.compile(r"\.((?:[^.\[\]{}\\*]|\\.)(?:[^.\[\]{}\\]|\\.)*)")
_KEYS: Final = re.compile(r"""\[((?:'[^']*'|"[^"]*")(?:\s*,\s*(?:'[^']*'|"[^"]*"))*)\]""")
_INDEXES: Final = re.compile(r"\[(-?\d{1,9}(?:\s*,\s*-?\d{1,9})*)\]")
_SLICE: Final = re.compile(r"\[(-?\d{1,9})?:(-?\d{1,9})?\]")
_ALL: Final = re.compile(r"\[\*\]|\.\*")
_DEEP: Final = re.compile(r"\.(?=\.)|\.\.(?=\[)")
_FILTER: Final = re.compile(
    r"""\[\?\(\s*@((?:\.(?:[A-Za-z0-9_/-]|\\.)+)+)\s*(?:(==|!=|<=|>=|<|>)\s*(?:"([^"]*)"|'([^']*)'|(true|false|-?\d+(?:\.\d+)?))\s*)?\)\]"""
)
_QUOTED: Final = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

Step = Callable[[Any], Iterator[Any]]
Finder = Callable[[Any], list[Any]]


class PathFault(ValueError):
    """A text that is no path; one line."""

    def __init__(self, text: str) -> None:
        super().__init__(bounded_line(text))


def compiled(text: str) -> Finder:
    """What the path leads to in a document: the values found, in order. Raises PathFault."""
    path = text.strip()
    if path.startswith("{") and path.endswith("}"):
        path = path[1:-1].strip()
    elif path.startswith("{"):
        raise PathFault(f'{text!r}: a "}}" is missing at its end')
    elif path.endswith("}"):
        raise PathFault(f'{text!r}: a "{{" is missing at its beginning')
    path = path.removeprefix("$")
    if path in ("", "."):
        raise PathFault(f"{text!r}: names no field; want one such as {{.status.phase}}")
    return _finder(path, text)


def compiled_in_template(path: str, text: str) -> Finder:
    """A path within a template, where a dot alone, `$` and `@` are the whole. Raises PathFault."""
    rest = path.strip().removeprefix("$").removeprefix("@")
    return (lambda document: [document]) if rest in ("", ".") else _finder(rest, text)


def _finder(path: str, text: str) -> Finder:
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
    place, last = 0, None
    while place < len(path):
        for pattern, make in _FORMS:
            match = pattern.match(path, place)
            if match is not None:
                # All that is below what is below is no more, but each time more often.
                if not (make is _deep and last is _deep):
                    yield make(match)
                place, last = match.end(), make
                break
        else:
            raise PathFault(f"{text!r}: cannot be read from {path[place:][:40]!r} on")


def _field(match: re.Match[str]) -> Step:
    name = re.sub(r"\\(.)", r"\1", match[1])
    return lambda value: iter([value[name]] if isinstance(value, dict) and name in value else [])


def _keys(match: re.Match[str]) -> Step:
    names = [found[1] if found[1] is not None else found[2] for found in _QUOTED.finditer(match[1])]
    return lambda value: iter([value[name] for name in names if isinstance(value, dict) and name in value])


def _indexes(match: re.Match[str]) -> Step:
    numbers = [int(part) for part in match[1].split(",")]

    def choose(value: Any) -> Iterator[Any]:
        for number in numbers:
            if isinstance(value, list) and -len(value) <= number < len(value):
                yield value[number]

    return choose


def _slice(match: re.Match[str]) -> Step:
    part = slice(*(None if bound is None else int(bound) for bound in match.groups()))
    return lambda value: iter(value[part] if isinstance(value, list) else ())


def _every(_: re.Match[str]) -> Step:
    return _inside


def _inside(value: Any) -> Iterator[Any]:
    yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _deep(_: re.Match[str]) -> Step:
    def walk(value: Any) -> Iterator[Any]:
        yield value
        for inner in _inside(value):
            yield from walk(inner)

    return walk


def _where(match: re.Match[str]) -> Step:
    inner = [_field(found) for found in _NAME.finditer(match[1])]
    compare = None if match[2] is None else _COMPARISONS[match[2]]
    wanted = next((found for found in match.groups()[2:] if found is not None), "")

    def choose(value: Any) -> Iterator[Any]:
        for item in value if isinstance(value, list) else ():
            found = _follow(item, inner)
            if any(compare is None or compare(*_alike(one, wanted)) for one in found):
                yield item

    return choose


def _alike(found: Any, wanted: str) -> tuple[Any, Any]:
    """Both as numbers where both are, else as texts."""
    if isinstance(found, int | float) and not isinstance(found, bool):
        try:
            return float(found), float(wanted)
        except ValueError:
            pass
    return as_text(found), wanted


def as_text(value: Any) -> str:
    """As it stands in a path or behind one."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Step]], ...]] = (
    (_ALL, _every),
    (_DEEP, _deep),
    (_NAME, _field),
    (_KEYS, _keys),
    (_INDEXES, _indexes),
    (_SLICE, _slice),
    (_FILTER, _where),
)
