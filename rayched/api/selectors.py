"""Selectors: of labels, of nodes, of fields; compiled once, matched against plain mappings.

* `LabelSelectorMatcher`: the LabelSelector of a manifest. None matches nothing, the empty one everything.
* `NodeSelectorMatcher`, `NodeTermMatcher`: terms of node affinity. Terms are ORed, expressions of a term ANDed, an empty term
  matches nothing. They are parsed lazily: a term that does not parse keeps its fault and matches no node, the others hold.
* `parse_label_selector`, `parse_field_selector`: the texts that commands and requests carry.

Source: apimachinery's labels and fields, component-helpers' nodeaffinity, Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rayched.api.errors import quoted
from rayched.api.names import label_value_fault, qualified_fault
from rayched.v1.core_pb2 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from rayched.v1.meta_pb2 import LabelSelector

Labels = Mapping[str, str]

NAME_FIELD: Final = "metadata.name"

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_INT64_DIGITS: Final = 19


class SelectorError(ValueError):
    """A selector that means nothing."""


class Operator(Enum):
    """How a requirement compares a label's value with its own values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"

    # Members are the only ones of their kind, and Enum's own hash is worked out in Python.
    __hash__ = object.__hash__


LABEL_OPERATORS: Final = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
NODE_OPERATORS: Final = (*LABEL_OPERATORS, Operator.GT, Operator.LT)
_OPERATOR_OF: Final = {operator.value: operator for operator in Operator}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label. `bound` is the integer that Gt and Lt compare with."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()
    bound: int = 0

    def matches(self, labels: Labels) -> bool:
        found = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return found is not None and found in self.values
            case Operator.NOT_IN:
                return found is None or found not in self.values
            case Operator.EXISTS:
                return found is not None
            case Operator.DOES_NOT_EXIST:
                return found is None
            case Operator.GT | Operator.LT:
                number = None if found is None else int64(found)
                if number is None:
                    return False
                return number > self.bound if self.operator is Operator.GT else number < self.bound


@dataclass(frozen=True, slots=True)
class Requirements:
    """Conditions that must all hold; none at all hold everywhere."""

    items: tuple[Requirement, ...] = ()

    def matches(self, labels: Labels) -> bool:
        return all(item.matches(labels) for item in self.items)

    @property
    def empty(self) -> bool:
        return not self.items


def int64(text: str) -> int | None:
    """The integer that a text of digits with an optional sign stands for, or None: no int64."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    if len(digits.lstrip("0")) > _INT64_DIGITS:
        return None
    number = int(text)
    return number if _INT64_MIN <= number <= _INT64_MAX else None


def requirement(key: str, operator: str, values: Sequence[str], allowed: Sequence[Operator] = NODE_OPERATORS) -> Requirement:
    """A requirement; raises SelectorError where Kubernetes would refuse it."""
    known = _OPERATOR_OF.get(operator)
    if known is None or known not in allowed:
        names = ", ".join(one.value for one in allowed)
        raise SelectorError(f"operator {quoted(operator)} is not known; allowed are {names}")
    fault = qualified_fault(key)
    if fault is not None:
        raise SelectorError(f"key: {fault}")
    bound = 0
    if known in (Operator.IN, Operator.NOT_IN):
        if not values:
            raise SelectorError(f"operator {operator} needs at least one value")
    elif known in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
        if values:
            raise SelectorError(f"operator {operator} takes no values")
    else:
        number = int64(values[0]) if len(values) == 1 else None
        if number is None:
            found = ", ".join(map(quoted, values)) or "none"
            raise SelectorError(f"operator {operator} needs exactly one value, an integer; found {found}")
        bound = number
    for value in values:
        fault = label_value_fault(value)
        if fault is not None:
            raise SelectorError(fault)
    return Requirement(key, known, frozenset(values), bound)


# ------------------------------------------------------------------------------------------------------ label selectors


class LabelSelectorMatcher:
    """A LabelSelector, compiled. Raises SelectorError for one that admission would refuse."""

    __slots__ = ("nothing", "requirements")

    def __init__(self, selector: LabelSelector | None) -> None:
        self.nothing = selector is None
        """The selector was absent: it matches no labels, not even none."""
        items: list[Requirement] = []
        if selector is not None:
            for key, wanted in sorted(selector.match_labels.items()):
                items.append(requirement(key, "In", (wanted,), LABEL_OPERATORS))
            for expression in selector.match_expressions:
                items.append(requirement(expression.key, expression.operator, expression.values, LABEL_OPERATORS))
        self.requirements = Requirements(tuple(items))

    @property
    def empty(self) -> bool:
        """Whether it matches everything."""
        return not self.nothing and self.requirements.empty

    def matches(self, labels: Labels) -> bool:
        return not self.nothing and self.requirements.matches(labels)


def matches_all(wanted: Labels, labels: Labels) -> bool:
    """Whether each wanted label is there: the plain selectors of pods, services and replication controllers."""
    return all(labels.get(key) == text for key, text in wanted.items())


# ------------------------------------------------------------------------------------------------------- node selectors


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """metadata.name is (or is not) one value; any other field of a node counts as empty."""

    key: str
    equal: bool
    value: str

    def matches(self, name: str) -> bool:
        return ((name if self.key == NAME_FIELD else "") == self.value) is self.equal


class NodeTermMatcher:
    """A NodeSelectorTerm, compiled. One that does not parse has a fault and matches no node."""

    __slots__ = ("empty", "fault", "fields", "requirements")

    def __init__(self, term: NodeSelectorTerm) -> None:
        self.empty = not (term.match_expressions or term.match_fields)
        self.fault: str | None = None
        self.requirements = Requirements()
        self.fields: tuple[FieldRequirement, ...] = ()
        try:
            self.requirements = Requirements(tuple(requirement(e.key, e.operator, e.values) for e in term.match_expressions))
            self.fields = tuple(field_requirement(expression) for expression in term.match_fields)
        except SelectorError as error:
            self.fault = str(error)

    def matches(self, name: str, labels: Labels) -> bool:
        if self.empty or self.fault is not None:
            return False
        return self.requirements.matches(labels) and all(field.matches(name) for field in self.fields)


class NodeSelectorMatcher:
    """A NodeSelector, compiled: one of its terms must match. Without a term it matches no node."""

    __slots__ = ("terms",)

    def __init__(self, selector: NodeSelector) -> None:
        self.terms = tuple(NodeTermMatcher(term) for term in selector.node_selector_terms)

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(term.fault for term in self.terms if term.fault is not None)

    def matches(self, name: str, labels: Labels) -> bool:
        return any(term.matches(name, labels) for term in self.terms)


def field_requirement(expression: NodeSelectorRequirement) -> FieldRequirement:
    """A condition on a node's field; raises SelectorError."""
    if expression.operator not in ("In", "NotIn"):
        raise SelectorError(f"operator {quoted(expression.operator)} is not allowed on a field; allowed are In, NotIn")
    if len(expression.values) != 1:
        raise SelectorError(f"operator {expression.operator} on a field needs exactly one value")
    return FieldRequirement(expression.key, expression.operator == "In", expression.values[0])


# ---------------------------------------------------------------------------------------------------- textual selectors


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """A field must equal (or differ from) a text."""

    field: str
    equal: bool
    value: str


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Terms that must all hold; an absent field counts as empty."""

    terms: tuple[FieldTerm, ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all((fields.get(term.field, "") == term.value) is term.equal for term in self.terms)


def parse_label_selector(text: str) -> Requirements:
    """A selector as commands write it: `app=web,tier!=db,env in (a,b),team notin (c),canary,!old,cores>4`.

    The empty text selects everything. Raises SelectorError.
    """
    if not text.strip():
        return Requirements()
    return Requirements(tuple(_text_requirement(part.strip(), text) for part in _split(text)))


def parse_field_selector(text: str) -> FieldSelector:
    """A selector such as `spec.nodeName=node-1,status.phase!=Running`. Raises SelectorError."""
    terms = []
    for part in text.split(",") if text.strip() else ():
        equal = "!=" not in part
        field, sign, value = part.partition("=" if equal else "!=")
        if not sign:
            raise SelectorError(f"{quoted(part)} is no condition on a field; allowed are field=value and field!=value")
        if not field.strip():
            raise SelectorError(f"{quoted(part)} names no field")
        terms.append(FieldTerm(field.strip(), equal, value.removeprefix("=").strip()))
    return FieldSelector(tuple(terms))


def _split(text: str) -> list[str]:
    """The parts between commas that stand outside of parentheses."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
        if depth not in (0, 1):
            break
    if depth != 0:
        raise SelectorError(f"parentheses of {quoted(text)} do not match")
    return [*parts, text[start:]]


def _text_requirement(part: str, text: str) -> Requirement:
    for read in _READERS:
        found = read(part)
        if found is not None:
            return found
    raise SelectorError(
        f"{quoted(part or text)} is no condition on a label; allowed are key=value, key!=value, key in (a,b), "
        "key notin (a,b), key, !key, key>number and key<number"
    )


def _read_set(part: str) -> Requirement | None:
    head, parenthesis, tail = part.partition("(")
    if not parenthesis or not tail.endswith(")"):
        return None
    words = head.split()
    if len(words) != 2 or words[1] not in ("in", "notin"):
        return None
    values = [one.strip() for one in tail[:-1].split(",")]
    return requirement(words[0], "In" if words[1] == "in" else "NotIn", values)


def _read_comparison(part: str) -> Requirement | None:
    for sign, operator in (("!=", "NotIn"), ("==", "In"), ("=", "In"), (">", "Gt"), ("<", "Lt")):
        key, found, wanted = part.partition(sign)
        if found:
            return requirement(key.strip(), operator, (wanted.strip(),))
    return None


def _read_presence(part: str) -> Requirement | None:
    absent = part.startswith("!")
    key = part[1:].strip() if absent else part
    if not key or " " in key or "(" in key:
        return None
    return requirement(key, "DoesNotExist" if absent else "Exists", ())


_READERS: Final[tuple[Callable[[str], Requirement | None], ...]] = (_read_set, _read_comparison, _read_presence)
