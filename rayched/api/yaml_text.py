"""YAML and JSON text as plain data, and back: dictionaries, lists, strings, numbers, booleans, None.

Reading is PyYAML's safe subset of YAML 1.1, with the scalars that Kubernetes' tools see: no dates (they stay strings), no
numbers of base 60, `1e3` is a number. Keys are strings. It is strict where guessing would hide a mistake (a key that occurs
twice) and bounded against hostile text: depth, size and the number of values that aliases expand to. Every fault is a
TextError with a line. JSON is tried first where the text begins like JSON, as its tabs are none in YAML.

Writing quotes whatever any reader of YAML 1.1 or 1.2 might take for something else than a string.

Cost: one pass over the parser's events, in C where PyYAML was built with libyaml; no recursion.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.events import AliasEvent, Event, MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent
from yaml.nodes import ScalarNode
from yaml.resolver import Resolver

from rayched.api import printable
from rayched.api.errors import quoted

MAX_TEXT_BYTES: Final = 32 * 1024 * 1024
MAX_DEPTH: Final = 48
"""A pod needs 14 levels; a List of pods two more."""
MAX_VALUES: Final = 2_000_000
"""Scalars and containers in all documents of one text, aliases expanded."""

_PARSER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0o[0-7_]+|0[0-7_]+|0|[1-9][0-9_]*)$", re.ASCII)
_FLOAT = re.compile(
    r"(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
    re.ASCII,
)
_BEGINS_AS_JSON: Final = re.compile(r"\s*[\[{]\s*[\"\[{]")
_SCALAR_TAGS: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float"))
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
_INT: Final = "tag:yaml.org,2002:int"
_REAL: Final = "tag:yaml.org,2002:float"
_STRING: Final = "tag:yaml.org,2002:str"
_MERGE: Final = "tag:yaml.org,2002:merge"
_MERGE_KEY: Final = object()
"""What a plain << is until it is known to be a key."""
_INTEGER_DIGITS_MAX: Final = 1_000


class TextError(ValueError):
    """Text that is no YAML or JSON, or too much of it. The message is one line and names the line of the fault."""


class _Scalars(Resolver):
    """Which plain scalars are what: YAML 1.1 without dates and base 60."""


_Scalars.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_TIMESTAMP, _INT, _REAL)]
    for first, resolvers in Resolver.yaml_implicit_resolvers.items()
}
_Scalars.add_implicit_resolver(_INT, _INTEGER, list("-+0123456789"))
_Scalars.add_implicit_resolver(_REAL, _FLOAT, list("-+0123456789."))


class _Writer(yaml.SafeDumper):
    """Quotes what either reader, this one or a plain YAML 1.1 one, would not read back as a string."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(writer: yaml.SafeDumper, text: str) -> ScalarNode:
    """Several lines as a block, in double quotes what is not printable, the rest as PyYAML thinks best."""
    style = None
    if not text.replace("\n", "").isprintable():
        style = '"'
    elif "\n" in text.strip("\n"):
        style = "|"
    return writer.represent_scalar(_STRING, text, style=style)


_Writer.add_representer(str, _text)
_Writer.yaml_implicit_resolvers = {first: list(found) for first, found in Resolver.yaml_implicit_resolvers.items()}
_Writer.add_implicit_resolver(_INT, _INTEGER, list("-+0123456789"))
_Writer.add_implicit_resolver(_REAL, _FLOAT, list("-+0123456789."))
_Writer.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"[yYnN]$"), list("yYnN"))


def load_all(text: str, source: str) -> list[Any]:
    """The documents of a text, empty ones left out. Raises TextError, whose message begins with the source."""
    if len(text) > MAX_TEXT_BYTES:
        raise TextError(f"{source}: {len(text)} characters of text; at most {MAX_TEXT_BYTES} are read")
    no_json = None
    if text.lstrip()[:1] in ("{", "["):
        try:
            return _load_json(text, source)
        except json.JSONDecodeError as error:
            no_json = error
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise TextError(f"{source}: not UTF-8 text")
    builder = _Builder(source)
    parser = _PARSER(text)
    try:
        while parser.check_event():
            builder.take(parser.get_event())
    except yaml.YAMLError as error:
        if no_json is not None and (source.endswith(".json") or _BEGINS_AS_JSON.match(text)):
            raise TextError(f"{source}, line {no_json.lineno}: not JSON: {no_json.msg}") from None
        raise TextError(_sentence(error, source, text)) from None
    finally:
        parser.dispose()
    return [document for document in builder.documents if document is not None]


def dump_all(documents: list[Any]) -> str:
    """The documents as YAML text, keys in the order given. What is not printable is escaped."""
    return printable.lines(
        yaml.dump_all(documents, Dumper=_Writer, sort_keys=False, default_flow_style=False, allow_unicode=True, width=1_000_000)
    )


@dataclass(slots=True)
class _Open:
    """A mapping or sequence whose end has not been seen, and where it began."""

    value: dict[str, Any] | list[Any]
    line: int
    anchor: str | None
    size: int = 1
    key: str | None = None
    merged: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Builder:
    """Turns parser events into values, on a stack of its own."""

    source: str
    documents: list[Any] = field(default_factory=list)
    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    """anchor -> (value, number of values in it)"""
    count: int = 0
    scalars: Any = field(default_factory=_Scalars)
    construct: Any = field(default_factory=SafeConstructor)

    def take(self, event: Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark is not None else 0
        match event:
            case ScalarEvent():
                self.add(self.scalar(event, line), 1, line, event.anchor)
            case AliasEvent():
                if event.anchor not in self.anchors:
                    raise self.fault(line, f"alias {quoted(str(event.anchor))} stands for nothing that was complete before it")
                value, size = self.anchors[event.anchor]
                self.add(value, size, line, None)
            case MappingStartEvent() | SequenceStartEvent():
                if len(self.stack) >= MAX_DEPTH:
                    raise self.fault(line, f"values are nested more than {MAX_DEPTH} levels deep")
                if event.tag is not None and event.tag not in ("!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
                    raise self.fault(line, f"tag {quoted(event.tag)} is not allowed")
                self.stack.append(_Open({} if isinstance(event, MappingStartEvent) else [], line, event.anchor))
            case MappingEndEvent() | SequenceEndEvent():
                done = self.stack.pop()
                if isinstance(done.value, dict):
                    done.value = {**done.merged, **done.value}
                self.add(done.value, done.size, done.line, done.anchor)
            case _:
                if isinstance(event, yaml.events.DocumentStartEvent):
                    self.anchors.clear()

    def add(self, value: Any, size: int, line: int, anchor: str | None) -> None:
        """Put a complete value where it belongs."""
        if value is _MERGE_KEY and not (self.stack and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None):
            value = "<<"
        if anchor is not None:
            self.anchors[anchor] = (value, size)
        if not self.stack:
            self.documents.append(value)
            self.count += size
        else:
            parent = self.stack[-1]
            parent.size += size
            if self.count + parent.size > MAX_VALUES:
                raise self.fault(line, f"more than {MAX_VALUES} values, aliases counted in full")
            if isinstance(parent.value, list):
                parent.value.append(value)
            elif parent.key is None:
                parent.key = self.key(value, parent, line)
            else:
                self.enter(parent, parent.key, value, line)
                parent.key = None

    def key(self, value: Any, parent: _Open, line: int) -> str:
        """A mapping's key as a string: numbers and booleans as JSON writes them."""
        if value is _MERGE_KEY:
            return _MERGE
        if isinstance(value, bool) or value is None:
            value = {True: "true", False: "false", None: "null"}[value]
        elif isinstance(value, int | float):
            value = str(value)
        if not isinstance(value, str):
            raise self.fault(line, "a key must be a string")
        if value in parent.value:
            raise self.fault(line, f"key {quoted(value)} occurs twice; the mapping begins in line {parent.line}")
        return value

    def enter(self, parent: _Open, key: str, value: Any, line: int) -> None:
        if key == _MERGE:
            for more in value if isinstance(value, list) else [value]:
                if not isinstance(more, dict):
                    raise self.fault(line, "<<: needs a mapping or a list of mappings")
                parent.merged = {**more, **parent.merged}
        elif isinstance(parent.value, dict):
            parent.value[key] = value

    def scalar(self, event: ScalarEvent, line: int) -> Any:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self.scalars.resolve(ScalarNode, event.value, event.implicit)
        if tag in (_STRING, _TIMESTAMP):
            return event.value
        if tag == _MERGE:
            return _MERGE_KEY
        if tag not in _SCALAR_TAGS:
            raise self.fault(line, f"tag {quoted(tag)} is not allowed")
        try:
            if tag == _INT:
                return _integer(event.value)
            return SafeConstructor.yaml_constructors[tag](self.construct, ScalarNode(tag, event.value))
        except (ConstructorError, ValueError, KeyError):
            raise self.fault(line, f"{quoted(event.value)} is no {tag.rpartition(':')[2]}") from None

    def fault(self, line: int, sentence: str) -> TextError:
        return TextError(f"{self.source}, line {line}: {sentence}")


def _integer(text: str) -> int:
    """An integer of YAML 1.1: 0x, 0b, 0o and a leading 0 (octal) give the base."""
    plain = text.replace("_", "")
    digits = plain.lstrip("+-")
    octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    if len(digits) > _INTEGER_DIGITS_MAX:
        raise ValueError("too many digits")
    number = int(digits, 8) if octal else int(digits, 0)
    return -number if plain.startswith("-") else number


def _load_json(text: str, source: str) -> list[Any]:
    """The document of a JSON text. Raises JSONDecodeError where it is none: YAML may know better."""

    def mapping(pairs: list[tuple[Hashable, Any]]) -> dict[Hashable, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[Hashable] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise TextError(f"{source}: key {quoted(str(twice))} occurs twice in one object")
        return found

    try:
        document = json.loads(text, object_pairs_hook=mapping)
    except RecursionError:
        raise TextError(f"{source}: values are nested more than {MAX_DEPTH} levels deep") from None
    except TextError:
        raise
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        # A number that is too long.
        raise json.JSONDecodeError(str(error), text, 0) from None
    if depth_exceeds(document, MAX_DEPTH):
        raise TextError(f"{source}: values are nested more than {MAX_DEPTH} levels deep")
    return [document]


def depth_exceeds(document: Any, limit: int) -> bool:
    """Whether dictionaries and lists lie in each other on more levels."""
    level = [document]
    for _ in range(limit + 1):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return False
    return True


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from (one for one in value.values() if isinstance(one, dict | list))
    elif isinstance(value, list):
        yield from (one for one in value if isinstance(one, dict | list))


def _sentence(error: yaml.YAMLError, source: str, text: str) -> str:
    """PyYAML's error on one line, with the line of the text."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    where = f", line {mark.line + 1}" if mark is not None else ""
    if mark is not None and _line_of(text, mark.line)[mark.column : mark.column + 1] == "\t":
        problem = "a tab stands where YAML allows blanks alone"
    return f"{source}{where}: not YAML: {problem}"


def _line_of(text: str, number: int) -> str:
    """A line by its number from 0 on; "" where there is none."""
    lines = text.splitlines()
    return lines[number] if number < len(lines) else ""
