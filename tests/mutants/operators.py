"""The mutants of a source: small changes of its text, each of which a test should notice.

A change replaces one expression or statement where it stands, so the text that is run is the text that the report shows. Left
alone is what no test should pin: annotations, decorators, assertions (`zip(strict=...)` is one), texts and what is logged,
numbers of an Enum's members, and the numbers of named constants, which are limits and tuning: so is whether one that is called
MAX or MIN in its own module is the last that is allowed or the first that is not, and by how much a revision, a version or a
generation grows: whoever reads one asks whether it is another one. So is -1 in an attribute of which position or version was
last seen: any number below zero stands for none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Final

COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
PAIRS: Final = {"min": "max", "any": "all", "bisect_left": "bisect_right"}
OPPOSITES: Final = PAIRS | {other: one for one, other in PAIRS.items()}
GROWING: Final = re.compile(r"(.*_)?(revision|version|generation)")
"""What such a number says is that something has changed since."""
SEEN: Final = re.compile(r"(.*_)?(position|seen|moves|ordered|revision|version|generation)")
"""A place in a log, or such a number, up to which something is known."""
LOGS: Final = re.compile(r"(self\.)?_?log(ger)?\.\w+")


@dataclass(frozen=True)
class Mutant:
    file: str
    line: int
    within: str
    """The qualified name of the function or class around it; empty at the top of the module."""
    function_line: int
    """Where the code of the innermost function begins, its decorators included; 0 outside of functions."""
    source: bytes
    begin: int
    end: int
    replacement: str
    """What stands between `begin` and `end` instead, offsets in bytes."""

    @property
    def text(self) -> str:
        return (self.source[: self.begin] + self.replacement.encode() + self.source[self.end :]).decode()

    @property
    def change(self) -> tuple[str, str]:
        """The changed lines before and after, without indentation: this names the mutant wherever its lines move."""
        begin = self.source.rfind(b"\n", 0, self.begin) + 1
        end = self.source.find(b"\n", self.end)
        was = self.source[begin:end].decode()
        becomes = (self.source[begin : self.begin] + self.replacement.encode() + self.source[self.end : end]).decode()
        return _stripped(was), _stripped(becomes)

    def diff(self) -> str:
        return "\n".join(f"{sign} {line}" for sign, lines in zip("-+", self.change, strict=True) for line in lines.splitlines())

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.within or 'top of the module'})"


def _stripped(lines: str) -> str:
    return "\n".join(line.strip() for line in lines.splitlines())


def mutants(file: str, source: str) -> list[Mutant]:
    """All mutants of a file, in the order of its lines."""
    return sorted(_Walk(file, source).all(), key=lambda mutant: mutant.line)


class _Walk:
    def __init__(self, file: str, source: str) -> None:
        self._file = file
        self._tree = ast.parse(source)
        self._source = source.encode()
        self._starts = [0]
        for line in self._source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def all(self) -> Iterator[Mutant]:
        seen: set[tuple[int, int, str]] = set()
        for node, other, within, function_line in self._visit(self._tree, "", 0):
            begin = self._starts[node.lineno - 1] + node.col_offset
            end = self._starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            text = _text(other)
            if text.encode() != self._source[begin:end] and (begin, end, text) not in seen:
                seen.add((begin, end, text))
                yield Mutant(self._file, node.lineno, within, function_line, self._source, begin, end, text)

    def _visit(self, node: ast.AST, within: str, function_line: int) -> Iterator[tuple[ast.stmt | ast.expr, ast.AST, str, int]]:
        """Each node that may change and what it may become."""
        match node:
            case ast.Assert() | ast.JoinedStr() | ast.arg() | ast.Import() | ast.ImportFrom():
                return
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                within = f"{within}.{node.name}" if within else node.name
                if not isinstance(node, ast.ClassDef):
                    function_line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            case _ if _is_log(node):
                return
        if isinstance(node, ast.If | ast.While) and not isinstance(node.test, ast.Constant):
            for value in (True, False) if isinstance(node, ast.If) else (False,):
                yield node.test, ast.Constant(value), within, function_line
        if isinstance(node, ast.stmt | ast.expr):
            for other in _changes(node):
                yield node, other, within, function_line
        for child in _children(node, within, function_line):
            yield from self._visit(child, within, function_line)


def _text(node: ast.AST) -> str:
    text = ast.unparse(node)
    return f"({text})" if isinstance(node, ast.expr) and not isinstance(node, ast.Name | ast.Constant) else text


def _children(node: ast.AST, within: str, function_line: int) -> Iterator[ast.AST]:
    match node:
        case ast.Raise() | ast.Pass():
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from (default for default in (*node.args.defaults, *node.args.kw_defaults) if default is not None)
            yield from node.body
        case ast.ClassDef() if any("Enum" in ast.unparse(base) or "Flag" in ast.unparse(base) for base in node.bases):
            yield from (statement for statement in node.body if isinstance(statement, ast.FunctionDef))
        case ast.ClassDef():
            yield from node.body
        case ast.AnnAssign(target=target, value=value) | ast.Assign(targets=[target], value=value) if not function_line:
            if value is not None and not (isinstance(target, ast.Name) and _is_quantity(value)):
                yield value
        case ast.Assign() if _is_unseen(node):
            return
        case ast.AugAssign(target=ast.Attribute(attr=name) | ast.Name(id=name), op=ast.Add()) if GROWING.fullmatch(name):
            yield from () if isinstance(node.value, ast.Constant) else (node.value,)
        case ast.Call(func=ast.Name(id="zip")):
            yield from node.args
        case ast.AnnAssign():
            yield from (part for part in (node.target, node.value) if part is not None)
        case _:
            yield from ast.iter_child_nodes(node)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare():
            for place, operator in enumerate(node.ops):
                others = COMPARISONS[type(operator)]
                limited = any(_is_limit(side) for side in ([node.left, *node.comparators])[place : place + 2])
                for other in others[1:] if limited and len(others) > 1 else others:
                    yield _with(node, ops=[*node.ops[:place], other(), *node.ops[place + 1 :]])
        case ast.BoolOp():
            yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
            for place in range(len(node.values)):
                left = [*node.values[:place], *node.values[place + 1 :]]
                yield left[0] if len(left) == 1 else _with(node, values=left)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.BinOp() | ast.AugAssign() if type(node.op) in ARITHMETIC:
            yield _with(node, op=ARITHMETIC[type(node.op)]())
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(node.value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in OPPOSITES:
            yield _with(node, func=ast.Name(OPPOSITES[name]))
        case ast.Break() | ast.Continue() | ast.Raise() | ast.Return(value=None):
            yield ast.Pass()
    match node:
        case ast.AugAssign() | ast.Delete() | ast.Expr(value=ast.Call() | ast.Await()):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
            if _is_unseen(node):
                yield _with(node, value=ast.Constant(1))
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            for place, loop in enumerate(node.generators):
                if loop.ifs:
                    yield _with(node, generators=[*node.generators[:place], _with(loop, ifs=[]), *node.generators[place + 1 :]])
        case ast.IfExp():
            yield node.body
            yield node.orelse


def _is_limit(node: ast.expr) -> bool:
    """A limit of a named constant, such as `EVENTS_MAX`; what another module promises (`limits.LABELS`) is none."""
    return isinstance(node, ast.Name) and node.id.isupper() and node.id.endswith(("_MAX", "_MIN"))


def _with(node: ast.AST, **fields: object) -> ast.AST:
    other = copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def _is_unseen(node: ast.Assign) -> bool:
    """Whether it says that nothing was seen yet."""
    match node.targets:
        case [ast.Attribute(attr=name)]:
            return SEEN.fullmatch(name) is not None and ast.unparse(node.value) == "-1"
    return False


def _is_log(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=function)):
            return LOGS.fullmatch(ast.unparse(function)) is not None
        case ast.Expr(value=ast.Constant()):
            return True
    return False


def _is_quantity(value: ast.expr) -> bool:
    """Whether an expression consists of numbers alone."""
    return all(
        isinstance(node, ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop)
        or (isinstance(node, ast.Constant) and not isinstance(node.value, bool))
        for node in ast.walk(value)
    )
