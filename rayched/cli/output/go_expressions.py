"""What stands between the braces of a Go template: values, fields, variables, pipelines. Pure; see go_templates.py.

.metadata.name    $pod.spec    index .items 0    eq .status.phase "Running"    (len .items) | printf "%d pods"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rayched.cli.output.go_functions import FUNCTIONS, MISSING, GoFault, is_true, printed
from rayched.cli.output.json_path import PathFault

DEPTH_MAX: Final = 32
FIELDS_MAX: Final = 64
"""Of one path; no document lies deeper."""
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*"|`[^`]*`)|(?P<number>[-+]?\d{1,18}(?:\.\d{1,18})?)(?![\w.])"""
    r"""|(?P<variable>\$\w*)|(?P<field>\.\w+)|(?P<word>[A-Za-z_]\w*)|(?P<sign>:=|=|\(|\)|\||,|\.))"""
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}
_CONSTANTS: Final[dict[str, Any]] = {"true": True, "false": False, "nil": None}
_END: Final = ("end", "", True)


class Scope:
    """Variables of a block, and of those around it."""

    def __init__(self, around: Scope | None = None) -> None:
        self._around = around
        self._own: dict[str, Any] = {}

    def declare(self, name: str, value: Any) -> None:
        self._own[name] = value

    def change(self, name: str, value: Any) -> None:
        """Of the block that has it. It is known somewhere, as the parser has looked."""
        if name in self._own or self._around is None:
            self._own[name] = value
        else:
            self._around.change(name, value)

    def read(self, name: str) -> Any:
        return self._own[name] if name in self._own or self._around is None else self._around.read(name)


@dataclass(slots=True)
class TemplateRun:
    """What is known at a place of a template while it is printed."""

    dot: Any
    variables: Scope
    text: list[str]
    """What has been printed."""

    def inside(self, dot: Any) -> TemplateRun:
        return TemplateRun(dot, Scope(self.variables), self.text)


Value = Callable[[TemplateRun], Any]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`$a := VALUE`, `$a = VALUE`, or a value alone."""

    names: tuple[str, ...]
    declares: bool
    value: Value

    def set(self, run: TemplateRun, values: Sequence[Any]) -> None:
        """As many values as names."""
        for name, value in zip(self.names, values, strict=True):
            (run.variables.declare if self.declares else run.variables.change)(name, value)


def pipeline(text: str, known: set[str]) -> Pipeline:
    """`known`: variables, to which those are added that it makes. Raises PathFault."""
    tokens = _Tokens(text, known)
    names, declares = tokens.declaration()
    value = tokens.pipeline()
    tokens.end()
    if unknown := [name for name in names if not declares and name not in known]:
        raise tokens.fault(f"undefined variable {unknown[0]}")
    known.update(names)
    return Pipeline(tuple(names), declares, value)


class _Tokens:
    """The words of one action."""

    def __init__(self, text: str, known: set[str]) -> None:
        self._text, self._known = text.strip(), known
        self._found: list[tuple[str, str, bool]] = []
        """Kind, text, and whether white space stands before it."""
        self._place = self._depth = 0
        place = 0
        while place < len(self._text):
            match = _TOKEN.match(self._text, place)
            if match is None:
                raise self.fault(f"{self._text[place:].strip()[:40]!r} is not read here")
            kind = str(match.lastgroup)
            self._found.append((kind, match[kind], match.start(kind) > place))
            place = match.end()

    def fault(self, why: str) -> PathFault:
        return PathFault(f"{{{{{self._text}}}}}: {why}")

    def _next(self) -> tuple[str, str, bool]:
        return self._found[self._place] if self._place < len(self._found) else _END

    def end(self) -> None:
        if self._next() is not _END:
            raise self.fault(f"{self._next()[1]!r} stands where it means nothing")

    def declaration(self) -> tuple[list[str], bool]:
        """`$a :=`, `$a =`, `$key, $value :=`; else nothing is taken."""
        names: list[str] = []
        for place, (kind, text, _) in enumerate(self._found):
            if kind == "variable":
                names.append(text)
            elif text in (":=", "=") and kind == "sign" and names:
                self._place = place + 1
                return names, text == ":="
            elif text != ",":
                break
        return [], False

    def pipeline(self) -> Value:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self.fault("lies too deep")
        value = self._command(None)
        while self._next()[:2] == ("sign", "|"):
            self._place += 1
            value = self._command(value)
        self._depth -= 1
        return value

    def _command(self, last: Value | None) -> Value:
        """`last`: what the pipe brings, the last argument of a function."""
        kind, name, _ = self._next()
        if kind == "word" and name not in _CONSTANTS:
            if name not in FUNCTIONS:
                raise self.fault(f"function {name!r} is not known; known are {', '.join(sorted(FUNCTIONS))}")
            self._place += 1
            return _called(name, [*self._operands(), *([] if last is None else [last])])
        operands = self._operands()
        if len(operands) != 1 or last is not None:
            raise self.fault("want one value, or a function with its arguments")
        return operands[0]

    def _operands(self) -> list[Value]:
        found: list[Value] = []
        while (value := self._operand()) is not None:
            found.append(value)
        return found

    def _operand(self) -> Value | None:
        kind, text, _ = self._next()
        if kind == "end" or (kind == "sign" and text not in ("(", ".")):
            return None
        self._place += 1
        if kind == "string":
            return _fixed(_unquoted(text))
        if kind == "number":
            return _fixed(float(text) if "." in text else int(text))
        if kind == "word":
            if text not in _CONSTANTS:
                raise self.fault(f"{text!r} stands among arguments; a function there wants parentheses around it")
            return _fixed(_CONSTANTS[text])
        return self._fields_of(self._start(kind, text))

    def _start(self, kind: str, text: str) -> Value:
        """What fields may follow."""
        if kind == "variable":
            if text not in self._known:
                raise self.fault(f"undefined variable {text}")
            return lambda run: run.variables.read(text)
        if kind == "field":
            return _field(_dot, text[1:])
        if text == ".":
            return _dot
        value = self.pipeline()
        if self._next()[1] != ")":
            raise self.fault("a parenthesis is not closed")
        self._place += 1
        return value

    def _fields_of(self, value: Value) -> Value:
        begin = self._place
        while self._next()[0] == "field" and not self._next()[2]:
            if self._place - begin == FIELDS_MAX:
                raise self.fault(f"more than {FIELDS_MAX} fields lie in each other")
            value = _field(value, self._next()[1][1:])
            self._place += 1
        return value


def _unquoted(text: str) -> str:
    return text[1:-1] if text[0] == "`" else re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), text[1:-1])


def _dot(run: TemplateRun) -> Any:
    return run.dot


def _fixed(value: Any) -> Value:
    return lambda _: value


def _field(of: Value, name: str) -> Value:
    def value(run: TemplateRun) -> Any:
        found = of(run)
        if found is None or found is MISSING:
            return MISSING
        if not isinstance(found, dict):
            raise GoFault(f"there is no field {name} in {printed(found)}")
        return found.get(name, MISSING)

    return value


def _called(name: str, arguments: Sequence[Value]) -> Value:
    if name in ("and", "or"):
        return lambda run: _decided(name, arguments, run)
    function = FUNCTIONS[name]

    def value(run: TemplateRun) -> Any:
        found = [argument(run) for argument in arguments]
        try:
            return function(*found)
        except TypeError:
            raise GoFault(f"{name}: cannot be called with {', '.join(map(printed, found)) or 'nothing'}") from None

    return value


def _decided(name: str, arguments: Sequence[Value], run: TemplateRun) -> Any:
    """The first that decides, or the last."""
    if not arguments:
        raise GoFault(f"{name}: want at least one argument")
    found: Any = None
    for argument in arguments:
        found = argument(run)
        if is_true(found) == (name == "or"):
            break
    return found
