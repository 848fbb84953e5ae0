"""Node selectors evaluated over rows: which of these nodes do a pod's nodeSelector and affinity terms select?

The same rules as `api.selectors` has for a single node, column by column. A compiled selector holds texts, never numbers of
interned values, so it is valid for every table. No plugin of its own; NodeName, NodeAffinity and PodTopologySpread ask it.

Cost: a few numpy calls a requirement, and one look-up for each value that an In or NotIn names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from rayched.api.selectors import NAME_FIELD, FieldRequirement, NodeSelectorMatcher, NodeTermMatcher, Operator, Requirement
from rayched.snapshot.change_log import FEW
from rayched.snapshot.columns import BoolColumn
from rayched.snapshot.rows import Rows


def named(name: str, rows: Rows) -> BoolColumn:
    """Rows of the node with this name. Shape (rows,)."""
    row = rows.snapshot.row_of(name)
    return np.zeros(rows.n, np.bool_) if row is None else rows.index == row


def with_labels(wanted: Mapping[str, str], rows: Rows) -> BoolColumn:
    """Rows of the nodes that have all these labels. Shape (rows,)."""
    selected = np.ones(rows.n, np.bool_)
    for key, value in wanted.items():
        selected &= _with_any(key, (value,), rows)
    return selected


def by_selector(selector: NodeSelectorMatcher, rows: Rows) -> BoolColumn:
    """Rows that at least one term selects; without terms none. Shape (rows,)."""
    selected = np.zeros(rows.n, np.bool_)
    for term in selector.terms:
        selected |= by_term(term, rows)
    return selected


def by_term(term: NodeTermMatcher, rows: Rows) -> BoolColumn:
    """Rows that one term selects; a term that is empty or does not parse selects none. Shape (rows,)."""
    if term.empty or term.fault is not None:
        return np.zeros(rows.n, np.bool_)
    selected = np.ones(rows.n, np.bool_)
    for requirement in term.requirements.items:
        selected &= _meeting(requirement, rows)
    for field in term.fields:
        selected &= _meeting_field(field, rows)
    return selected


def _meeting(requirement: Requirement, rows: Rows) -> BoolColumn:
    key = requirement.key
    match requirement.operator:
        case Operator.IN:
            return _with_any(key, requirement.values, rows)
        case Operator.NOT_IN:
            return ~_with_any(key, requirement.values, rows)
        case Operator.EXISTS:
            return rows.label(key) >= 0
        case Operator.DOES_NOT_EXIST:
            return rows.label(key) < 0
        case Operator.GT:
            numbers, valid = rows.label_int(key)
            return valid & (numbers > requirement.bound)
        case Operator.LT:
            numbers, valid = rows.label_int(key)
            return valid & (numbers < requirement.bound)


def _with_any(key: str, values: Iterable[str], rows: Rows) -> BoolColumn:
    """Rows whose label has one of the values."""
    known = [number for number in map(rows.snapshot.label_value_id, values) if number is not None]
    if not known:
        return np.zeros(rows.n, np.bool_)
    column = rows.label(key)
    if len(known) > FEW:
        return np.isin(column, known)
    found: BoolColumn = column == known[0]
    for number in known[1:]:
        found |= column == number
    return found


def _meeting_field(field: FieldRequirement, rows: Rows) -> BoolColumn:
    if field.key != NAME_FIELD:
        # Any other field of a node reads as the empty text.
        return np.full(rows.n, field.matches(""))
    selected = named(field.value, rows)
    return selected if field.equal else ~selected
