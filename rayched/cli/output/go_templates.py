"""`-o go-template=TEMPLATE`: templates of Go's text/template, as far as kubectl's users write them. Pure.

    {{range .items}}{{.metadata.name}}{{"\\n"}}{{end}}
    {{if eq .status.phase "Running"}}yes{{else}}no{{end}}
    {{range $key, $value := .metadata.labels}}{{$key}}={{$value}} {{end}}

if, else if, range, with, break, continue, variables, pipelines, `{{-` and `-}}`, comments, and the functions of go_functions.py.
Not here: define, template, block, methods. A field that is not there is `<no value>`, as with kubectl. A whole number is printed
with all its digits, where kubectl, to which every number is a float, writes 1e+06; for the same reason `eq .spec.replicas 3`
holds here and is an error there.

Source: text/template of Go 1.24, and what kubectl 1.34 adds. Loops go through what the document holds, so they end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rayched.cli.output.go_expressions import DEPTH_MAX, Pipeline, Scope, TemplateRun, pipeline
from rayched.cli.output.go_functions import MISSING, GoFault, is_true, printed
from rayched.cli.output.json_path import PathFault

_ACTION: Final = re.compile(
    r"""\{\{(?P<left>-(?=\s))?"""
    r"""(?P<inner>(?:"(?:[^"\\\n]|\\.)*"|`[^`]*`|(?!\}\})[^"`])*?)"""
    r"""(?P<right>(?<=\s)-)?\}\}""",
    re.DOTALL,
)
_COMMENT: Final = re.compile(r"\{\{(?P<left>-(?=\s))?\s*/\*")
_COMMENT_END: Final = re.compile(r"\*/\s*(?P<right>(?<=\s)-)?\}\}")
_OPENING: Final = ("if", "range", "with")
_UNKNOWN: Final = ("define", "template", "block")

Node = Callable[[TemplateRun], None]


class _Break(Exception):
    """{{break}}"""


class _Continue(Exception):
    """{{continue}}"""


@dataclass(frozen=True, slots=True)
class GoTemplate:
    """A template that was understood."""

    _nodes: tuple[Node, ...]

    def text(self, document: Any) -> str:
        """Raises PathFault where a function is given what it cannot be given."""
        run = TemplateRun(document, Scope(), [])
        run.variables.declare("$", document)
        try:
            _all(self._nodes, run)
        except GoFault as error:
            raise PathFault(str(error)) from None
        return "".join(run.text)


def go_template(text: str) -> GoTemplate:
    """Raises PathFault."""
    nodes, end = _Parser(text).block(0, {"$"}, in_range=False)
    if end:
        raise PathFault(f"{{{{{end}}}}} stands where nothing is open")
    return GoTemplate(nodes)


def _all(nodes: Sequence[Node], run: TemplateRun) -> None:
    for node in nodes:
        node(run)


@dataclass(frozen=True, slots=True)
class _OpenedBlock:
    """if, range or with."""

    head: Pipeline
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]
    moves: bool
    """The value is the dot inside."""


class _Parser:
    """One pass over texts and actions, in order."""

    def __init__(self, text: str) -> None:
        self._parts = iter(list(_parts(text)))

    def block(self, depth: int, known: set[str], *, in_range: bool) -> tuple[tuple[Node, ...], str]:
        """What stands up to the end, or an else, and the words of that action; empty at the end of the text."""
        if depth > DEPTH_MAX:
            raise PathFault(f"more than {DEPTH_MAX} blocks lie in each other")
        nodes: list[Node] = []
        known = set(known)
        for part, is_action in self._parts:
            if not is_action:
                nodes.append(_constant(part))
                continue
            word = part.split(maxsplit=1)[0] if part else ""
            if word in ("end", "else"):
                return tuple(nodes), part
            if word in _OPENING:
                nodes.append(self._opened(word, part.removeprefix(word), depth, known, in_range))
            elif in_range and part in ("break", "continue"):
                nodes.append(_raising(_Break if part == "break" else _Continue))
            else:
                nodes.append(_action(part, word, known))
        return tuple(nodes), ""

    def _opened(self, word: str, rest: str, depth: int, known: set[str], in_range: bool) -> Node:
        inner = set(known)
        head = pipeline(rest, inner)
        if len(head.names) > (2 if word == "range" else 1):
            raise PathFault(f"{{{{{word}{rest}}}}}: has too many variables")
        body, end = self.block(depth + 1, inner, in_range=in_range or word == "range")
        otherwise: tuple[Node, ...] = ()
        if end == "else":
            otherwise, end = self.block(depth + 1, inner, in_range=in_range)
        elif end.startswith("else"):
            again = end.removeprefix("else").strip()
            follow = again.split(maxsplit=1)[0]
            if follow not in ("if", "with") or word == "range":
                raise PathFault(f"{{{{{end}}}}} is not read here")
            # Its {{end}} is the one of the whole.
            otherwise, end = (self._opened(follow, again.removeprefix(follow), depth + 1, inner, in_range),), "end"
        if end != "end":
            where = f"a {{{{{word}}}}} has no {{{{end}}}}"
            raise PathFault(where if not end else f"{where}, and {{{{{end}}}}} stands where it means nothing")
        return (_range if word == "range" else _branch)(_OpenedBlock(head, body, otherwise, moves=word == "with"))


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Texts and actions, each with whether it is an action; white space is trimmed where an action says so."""
    place, trims = 0, False
    while (begin := text.find("{{", place)) >= 0:
        comment = _COMMENT.match(text, begin)
        opened = comment or _ACTION.match(text, begin)
        closed = opened if comment is None else _end_of_comment(text, comment.end())
        if opened is None or closed is None:
            raise PathFault(f"{text[begin:][:40]!r} is not closed")
        before = text[place:begin]
        before = before.lstrip() if trims else before
        yield before.rstrip() if opened["left"] else before, False
        if comment is None:
            yield opened["inner"].strip(), True
        place, trims = closed.end(), bool(closed["right"])
    yield text[place:].lstrip() if trims else text[place:], False


def _end_of_comment(text: str, begin: int) -> re.Match[str] | None:
    end = text.find("*/", begin)
    return None if end < 0 else _COMMENT_END.match(text, end)


def _action(part: str, word: str, known: set[str]) -> Node:
    if word in _UNKNOWN or not part:
        raise PathFault(f"{{{{{part}}}}} is not read here")
    if part in ("break", "continue"):
        raise PathFault(f"{{{{{part}}}}} stands outside of range")
    found = pipeline(part, known)
    if len(found.names) > 1:
        raise PathFault(f"{{{{{part}}}}}: two variables are for range alone")
    if found.names:
        return lambda run: found.set(run, [found.value(run)])
    return lambda run: run.text.append(printed(found.value(run)))


def _constant(text: str) -> Node:
    return lambda run: run.text.append(text)


def _raising(signal: type[Exception]) -> Node:
    def node(_: TemplateRun) -> None:
        raise signal

    return node


def _branch(block: _OpenedBlock) -> Node:
    def node(run: TemplateRun) -> None:
        value = block.head.value(run)
        chosen = is_true(value)
        inside = run.inside(value if block.moves and chosen else run.dot)
        block.head.set(inside, [value] * len(block.head.names))
        _all(block.body if chosen else block.otherwise, inside)

    return node


def _range(block: _OpenedBlock) -> Node:
    n_names = len(block.head.names)

    def node(run: TemplateRun) -> None:
        pairs = _pairs(block.head.value(run))
        for key, value in pairs:
            inside = run.inside(value)
            block.head.set(inside, (key, value)[2 - n_names :])
            try:
                _all(block.body, inside)
            except _Break:
                break
            except _Continue:
                continue
        if not pairs:
            _all(block.otherwise, run.inside(run.dot))

    return node


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    if value is None or value is MISSING:
        return []
    if isinstance(value, dict):
        return sorted(value.items())
    if isinstance(value, list):
        return list(enumerate(value))
    raise GoFault(f"range: {printed(value)} is no list and no map")
