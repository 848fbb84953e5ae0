"""A small part of Helm: as much of Go's templates and of its functions as our chart uses, so that the chart can be rendered here.

if, else, with, range, define and include, pipelines, trimming, and the functions of FUNCTIONS. What it does not know it refuses
(KeyError, ValueError), so a chart that outgrows it is noticed. It is not Helm: it shows what the templates say, not that Helm
agrees.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[()|]|[^\s()|]+)')


class RenderError(Exception):
    """What the chart itself refuses, in its words."""


def _required(message: str, value: Any) -> Any:
    if value in (None, ""):
        raise RenderError(message)
    return value


def _indent(spaces: int, text: str) -> str:
    return "\n".join(" " * spaces + line for line in str(text).split("\n"))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "default": lambda other, value: value or other,
    "join": lambda separator, values: separator.join(map(_text, values)),
    "not": lambda value: not value,
    "nindent": lambda spaces, text: "\n" + _indent(spaces, text),
    "printf": lambda form, *values: form % values,
    "quote": lambda value: json.dumps(_text(value)),
    "required": _required,
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "toYaml": lambda value: yaml.safe_dump(value, default_flow_style=False).removesuffix("\n"),
}


@dataclass
class Block:
    """An if, with, range, define, or a whole file: what it asks, and its two bodies."""

    word: str = ""
    expression: str = ""
    body: list[str | Block] = field(default_factory=list)
    otherwise: list[str | Block] = field(default_factory=list)
    in_else: bool = False

    def add(self, part: str | Block) -> None:
        (self.otherwise if self.in_else else self.body).append(part)


class Chart:
    """A chart's folder. `render` gives its objects for some values."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metadata = yaml.safe_load((folder / "Chart.yaml").read_text())
        self.defaults: dict[str, Any] = yaml.safe_load((folder / "values.yaml").read_text())
        self._defined: dict[str, Block] = {}
        self._files = {path.name: _parse(path.read_text()) for path in sorted((folder / "templates").iterdir())}
        for name, file in list(self._files.items()):
            for part in file.body:
                if isinstance(part, Block) and part.word == "define":
                    self._defined[json.loads(part.expression)] = part
            if name.endswith(".tpl"):
                del self._files[name]

    def render(self, release: str = "test", namespace: str = "default", **values: Any) -> dict[tuple[str, str], dict[str, Any]]:
        """Objects by kind and name. `values` go over the chart's, mappings key by key."""
        texts = self.texts(release, namespace, **values)
        found = {}
        for name, text in texts.items():
            if name.endswith(".yaml"):
                for manifest in yaml.safe_load_all(text):
                    if manifest is not None:
                        found[manifest["kind"], manifest["metadata"]["name"]] = manifest
        return found

    def texts(self, release: str = "test", namespace: str = "default", **values: Any) -> dict[str, str]:
        root = {
            "Values": _over(self.defaults, values),
            "Release": {"Name": release, "Namespace": namespace},
            "Chart": {"Name": self.metadata["name"], "AppVersion": self.metadata["appVersion"]},
        }
        return {name: "".join(self._run(file.body, root, root)) for name, file in self._files.items()}

    def _run(self, parts: list[str | Block], dot: Any, root: Any) -> Iterator[str]:
        for part in parts:
            if isinstance(part, str):
                yield part
            elif part.word == "":
                yield _text(self._value(part.expression, dot, root))
            elif part.word != "define":
                value = self._value(part.expression, dot, root)
                if not value:
                    yield from self._run(part.otherwise, dot, root)
                elif part.word == "range":
                    for item in value:
                        yield from self._run(part.body, item, root)
                else:
                    yield from self._run(part.body, value if part.word == "with" else dot, root)

    def _value(self, expression: str, dot: Any, root: Any) -> Any:
        value: tuple[Any, ...] = ()
        for command in expression.split(" | "):
            words = _TOKEN.findall(command)
            if words[0] in FUNCTIONS or words[0] == "include":
                arguments = [*(self._operand(word, dot, root) for word in words[1:]), *value]
                if words[0] == "include":
                    defined = self._defined[arguments[0]]
                    value = ("".join(self._run(defined.body, arguments[1], root)),)
                else:
                    value = (FUNCTIONS[words[0]](*arguments),)
            else:
                (word,) = words
                value = (self._operand(word, dot, root),)
        return value[0]

    def _operand(self, word: str, dot: Any, root: Any) -> Any:
        if word.startswith('"'):
            return json.loads(word)
        if word.isdecimal():
            return int(word)
        path = re.fullmatch(r"(\$?)((?:\.\w+)*)\.?", word)
        if path is None:
            raise ValueError(f"{word!r} is beyond this renderer")
        found = root if path[1] else dot
        for key in path[2].split(".")[1:]:
            found = found[key]
        return found


def _parse(text: str) -> Block:
    """The tree of a template."""
    stack = [Block()]
    position, trims = 0, ""
    for match in _ACTION.finditer(text):
        trims_before, inside, trims_after = match.groups()
        before = text[position : match.start()]
        before = before.lstrip() if trims else before
        stack[-1].add(before.rstrip() if trims_before else before)
        position, trims = match.end(), trims_after
        word, _, rest = inside.partition(" ")
        if word in ("if", "with", "range", "define"):
            stack.append(Block(word, rest))
        elif word == "else" and not rest:
            stack[-1].in_else = True
        elif word == "end":
            block = stack.pop()
            stack[-1].add(block)
        elif not inside.startswith("/*"):
            stack[-1].add(Block("", inside))
    stack[-1].add(text[position:].lstrip() if trims else text[position:])
    (whole,) = stack
    return whole


def _over(base: Any, changes: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(changes, dict):
        return changes
    return base | {key: _over(base.get(key), value) for key, value in changes.items()}


def _text(value: Any) -> str:
    return {True: "true", False: "false", None: ""}[value] if value is None or isinstance(value, bool) else str(value)
