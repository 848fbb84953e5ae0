"""YAML read field by field: typed values come out, all errors are collected, and each path knows its line.

A `Document` holds what was found out about one text; a `Section` is one mapping of it. Every field must be asked for: `close`
reports those that nobody knows. A field given as null counts as absent. Nothing here knows what the fields mean.

Invariants: reading never raises for what a user wrote; after an error the reader gets the default and goes on.
Limits: TEXT_MAX_BYTES a text, DEPTH_MAX nested levels and VALUES_MAX values (an alias may refer to what contains it).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from rayched.api.durations import duration_seconds
from rayched.api.errors import FieldError, bounded_line, did_you_mean, join, one_of, quoted

TEXT_MAX_BYTES: Final = 1 << 20
DEPTH_MAX: Final = 32
VALUES_MAX: Final = 100_000
"""Values read from one text, aliases expanded."""
INT32_MAX: Final = 2**31 - 1
INT32_MIN: Final = -(2**31)

_NULL: Final = "tag:yaml.org,2002:null"
_INTEGER: Final = "tag:yaml.org,2002:int"
_BOOLEAN: Final = "tag:yaml.org,2002:bool"
_TEXT: Final = "tag:yaml.org,2002:str"
_MERGE: Final = "tag:yaml.org,2002:merge"

_DECIMAL: Final = re.compile(r"[-+]?(0|[1-9][0-9]{0,29})", re.ASCII)
_TRUE: Final = ("true", "yes", "on")


@dataclass(slots=True)
class Document:
    """Errors, warnings and positions of one text; filled while its sections are read."""

    errors: list[FieldError] = field(default_factory=list)
    warnings: list[FieldError] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    """Line, counted from 1, of each path that occurs."""
    values: int = 0
    """How many values were read so far."""

    def error(self, path: str, message: str) -> None:
        self.errors.append(FieldError(path, message))

    def warn(self, path: str, message: str) -> None:
        self.warnings.append(FieldError(path, message))

    def line_of(self, path: str) -> int:
        """The line of a path, or of the innermost part of it that occurs in the text."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["))] if "." in path or "[" in path else ""
        return self.lines.get(path, 1)


class Section:
    """One mapping. Values that are wrong are reported to the document and read as absent."""

    __slots__ = ("_asked", "_document", "_fields", "path")

    def __init__(self, document: Document, node: yaml.MappingNode, path: str) -> None:
        self._document = document
        self._fields: dict[str, yaml.Node] = {}
        self._asked: set[str] = set()
        self.path = path
        document.lines.setdefault(path, node.start_mark.line + 1)
        if _depth(path) > DEPTH_MAX:
            document.error(path, f"is nested deeper than {DEPTH_MAX} levels")
            return
        for key, value in node.value:
            self._take(key, value)

    def _take(self, key: yaml.Node, value: yaml.Node) -> None:
        if key.tag == _MERGE:
            self._document.error(self.path, "merge keys (<<) are not read; write the fields out")
        elif not isinstance(key, yaml.ScalarNode):
            self._document.error(self.path, "a field's name must be text")
        elif key.value in self._fields:
            self._document.error(join(self.path, key.value), "occurs twice")
        else:
            self._fields[key.value] = value
            self._document.lines[join(self.path, key.value)] = key.start_mark.line + 1

    def at(self, name: str) -> str:
        return join(self.path, name)

    def error(self, name: str, message: str) -> None:
        self._document.error(self.at(name), message)

    def warn(self, name: str, message: str) -> None:
        self._document.warn(self.at(name), message)

    def has(self, name: str) -> bool:
        """Whether the field is given and not null."""
        return name in self._fields and self._fields[name].tag != _NULL

    def close(self) -> None:
        """Reports the fields that nobody asked for."""
        for name in self._fields:
            if name not in self._asked:
                self.error(name, f"is not a known field{did_you_mean(name, sorted(self._asked))}")

    # ---------------------------------------------------------------------------------------------------- scalars

    def text(self, name: str, default: str = "", allowed: Sequence[str] = ()) -> str:
        node = self._scalar(name, _TEXT, "text")
        if node is None:
            return default
        if allowed and node.value not in allowed:
            self.error(name, f"must be {one_of(allowed)}, found {quoted(node.value)}")
            return default
        return str(node.value)

    def integer(self, name: str, default: int, low: int = INT32_MIN, high: int = INT32_MAX) -> int:
        value = self.optional_integer(name, low, high)
        return default if value is None else value

    def optional_integer(self, name: str, low: int = INT32_MIN, high: int = INT32_MAX) -> int | None:
        node = self._scalar(name, _INTEGER, "an integer")
        if node is None:
            return None
        if not _DECIMAL.fullmatch(node.value):
            self.error(name, f"must be a decimal integer, found {quoted(node.value)}")
            return None
        value = int(node.value)
        if not low <= value <= high:
            self.error(name, f"must be in {low} to {high}, found {value}")
            return None
        return value

    def boolean(self, name: str, default: bool) -> bool:
        node = self._scalar(name, _BOOLEAN, "true or false")
        return default if node is None else node.value.lower() in _TRUE

    def optional_duration(self, name: str) -> float | None:
        """Seconds of a duration such as 15s, 1m30s or 500ms; 0 needs no unit."""
        node = self._scalar(name, _TEXT, 'a duration such as "15s"')
        if node is None:
            return None
        seconds = duration_seconds(node.value)
        if seconds is None:
            self.error(name, f'must be a duration such as "15s", found {quoted(node.value)}')
        return seconds

    def _scalar(self, name: str, tag: str, wanted: str) -> yaml.ScalarNode | None:
        node = self._given(name)
        if node is None or (isinstance(node, yaml.ScalarNode) and node.tag == tag):
            return node
        self.error(name, f"must be {wanted}, found {_found(node)}")
        return None

    def _given(self, name: str) -> Any:
        self._asked.add(name)
        return self._fields[name] if self.has(name) else None

    # -------------------------------------------------------------------------------------------------- structure

    def section(self, name: str) -> Section | None:
        node = self._given(name)
        if node is None:
            return None
        if isinstance(node, yaml.MappingNode):
            return Section(self._document, node, self.at(name))
        self.error(name, f"must be a mapping, found {_found(node)}")
        return None

    def sections(self, name: str) -> list[Section]:
        """The mappings of a list."""
        found: list[Section] = []
        for i, item in enumerate(self._items(name)):
            if isinstance(item, yaml.MappingNode):
                found.append(Section(self._document, item, f"{self.at(name)}[{i}]"))
            else:
                self.error(f"{name}[{i}]", f"must be a mapping, found {_found(item)}")
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        found: list[str] = []
        for i, item in enumerate(self._items(name)):
            if isinstance(item, yaml.ScalarNode) and item.tag == _TEXT:
                found.append(item.value)
            else:
                self.error(f"{name}[{i}]", f"must be text, found {_found(item)}")
        return tuple(found)

    def _items(self, name: str) -> list[yaml.Node]:
        node = self._given(name)
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.error(name, f"must be a list, found {_found(node)}")
            return []
        for i, item in enumerate(node.value):
            self._document.lines[f"{self.at(name)}[{i}]"] = item.start_mark.line + 1
        return list(node.value)

    def plain(self, name: str) -> Any:
        """The value as plain dicts, lists and scalars, whatever it is; None where it is absent."""
        node = self._given(name)
        return None if node is None else _plain(self._document, node, self.at(name))


def read_document(text: str) -> tuple[Document, Section | None]:
    """The one mapping that a text holds; None and an error where it holds anything else."""
    document = Document()
    if len(text.encode()) > TEXT_MAX_BYTES:
        document.error("", f"is larger than {TEXT_MAX_BYTES} bytes")
        return document, None
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        document.lines[""] = mark.line + 1 if mark else 1
        document.error("", bounded_line(f"is not valid YAML: {problem.problem or problem.context}"))
        return document, None
    except (yaml.YAMLError, RecursionError) as problem:
        document.error("", bounded_line(f"is not valid YAML: {str(problem).splitlines()[0]}"))
        return document, None
    nodes = [node for node in nodes if node is not None and node.tag != _NULL]
    if len(nodes) != 1:
        document.error("", "is empty" if not nodes else f"holds {len(nodes)} documents; one is allowed")
        return document, None
    if not isinstance(nodes[0], yaml.MappingNode):
        document.error("", f"must be a mapping, found {_found(nodes[0])}")
        return document, None
    return document, Section(document, nodes[0], "")


def _plain(document: Document, node: yaml.Node, path: str) -> Any:
    document.lines.setdefault(path, node.start_mark.line + 1)
    document.values += 1
    if _depth(path) > DEPTH_MAX:
        document.error(path, f"is nested deeper than {DEPTH_MAX} levels")
        return None
    if document.values > VALUES_MAX:
        if document.values == VALUES_MAX + 1:
            document.error(path, f"is beyond the {VALUES_MAX} values that a file may hold")
        return None
    if isinstance(node, yaml.MappingNode):
        found: dict[Any, Any] = {}
        for key, value in node.value:
            document.lines.setdefault(join(path, str(key.value)), key.start_mark.line + 1)
            found[str(key.value)] = _plain(document, value, join(path, str(key.value)))
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_plain(document, item, f"{path}[{i}]") for i, item in enumerate(node.value)]
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError) as problem:
        document.error(path, f"cannot be read: {str(problem).splitlines()[0]}")
        return None


def _depth(path: str) -> int:
    return path.count(".") + path.count("[")


def _found(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return quoted(str(node.value))
