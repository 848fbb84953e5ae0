"""Which objects a list or a watch is about: kind, namespace, labels and fields, compiled once a call.

`covers` looks at a key alone, so that objects of other kinds and namespaces are never decoded.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass
from typing import Final

from rayched.api import fields
from rayched.api.errors import quoted
from rayched.api.kinds import EVENT, AnyObject, Kind, by_name
from rayched.api.selectors import FieldSelector, Requirements, SelectorError, parse_field_selector, parse_label_selector
from rayched.store.keys import ObjectKey

SELECTOR_CHARACTERS_MAX: Final = 4_096
REQUIREMENTS_MAX: Final = 64
"""Each is asked of each object that is covered."""
_NAME_FIELD: Final = "metadata.name"
_FIELDS_OF_ALL: Final = (_NAME_FIELD, "metadata.namespace")


class UnreadablePolicy(enum.Enum):
    """What a watch makes of objects that cannot be read."""

    SKIPPED = enum.auto()
    """They count as none."""
    TOLD = enum.auto()
    """That they are there is all that is told."""
    REFUSED = enum.auto()
    """The watch fails: who watches would take them for gone."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects asked for. `kind` None: every kind but Event; `namespace` "": all namespaces."""

    kind: Kind | None
    namespace: str
    labels: Requirements
    fields: FieldSelector

    @property
    def by_key(self) -> bool:
        """Whether keys alone decide."""
        return self.labels.empty and not self.fields.terms

    @property
    def names(self) -> frozenset[str] | None:
        """The names that the object can have, one at most; None: any."""
        asked = frozenset(term.value for term in self.fields.terms if term.field == _NAME_FIELD and term.equal)
        return None if not asked else asked if len(asked) == 1 else frozenset()

    @property
    def unreadable(self) -> UnreadablePolicy:
        return UnreadablePolicy.SKIPPED

    def covers(self, key: ObjectKey) -> bool:
        if self.kind is None:
            return key.kind not in ("", EVENT.name) and (not self.namespace or key.namespace == self.namespace)
        return key.kind == self.kind.name and (not self.namespace or key.namespace == self.namespace)

    def matches(self, item: AnyObject) -> bool:
        """Whether an object that is covered satisfies the selectors."""
        return self.labels.matches(item.metadata.labels) and fields.matches(self.fields, item)

    def digest(self) -> bytes:
        """Tells selections apart; equal for equal ones in every replica."""
        name = self.kind.name if self.kind else ""
        labels = [(item.key, item.operator.value, sorted(item.values), item.bound) for item in self.labels.items]
        terms = [(term.field, term.equal, term.value) for term in self.fields.terms]
        return hashlib.sha256(repr((name, self.namespace, labels, terms)).encode()).digest()[:8]


def select(kind: str, namespace: str, label_selector: str, field_selector: str) -> Selection:
    """The selection of a request's texts; raises SelectorError and UnknownKind, whose text is for the caller."""
    found = by_name(kind) if kind else None
    if found is not None and not found.namespaced and namespace:
        raise SelectorError(f"namespace: {found.plural} belong to no namespace, found {quoted(namespace)}")
    for name, text in (("label_selector", label_selector), ("field_selector", field_selector)):
        if len(text) > SELECTOR_CHARACTERS_MAX:
            raise SelectorError(f"{name}: {len(text)} characters, at most {SELECTOR_CHARACTERS_MAX} are allowed")
    terms, labels = parse_field_selector(field_selector), parse_label_selector(label_selector)
    for name, count in (("label_selector", len(labels.items)), ("field_selector", len(terms.terms))):
        if count > REQUIREMENTS_MAX:
            raise SelectorError(f"{name}: {count} requirements, at most {REQUIREMENTS_MAX} are allowed")
    if found is not None:
        fields.check(terms, found)
    elif any(term.field not in _FIELDS_OF_ALL for term in terms.terms):
        raise SelectorError(f"field_selector: without a kind only {' and '.join(_FIELDS_OF_ALL)} can be selected by")
    return Selection(found, namespace, labels, terms)
