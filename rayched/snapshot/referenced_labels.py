"""Pods' labels that any selector mentions: of Services and controllers, of terms of pods, of their spread constraints.

Plugins that compare pods read labels through selectors alone, so a label whose key nobody mentions makes no difference to them.
Most labels are such: a pod's own name in a StatefulSet, a version. Nor can they tell two values of a key apart that nobody
mentions: a Service for one application says nothing of all the others. Without what makes no difference pods of many templates
ask the same.

What is mentioned is never forgotten while the table lives, as plans are made for what there is. With too many values of a key
each of its values counts, with too many keys every label.

Owner: one table; selectors are told to it by whoever takes them in. Memory: MENTIONS_MAX keys and values, 6 MB. Cost: a look-up
for each key and value of a selector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rayched.api.selectors import Operator
from rayched.snapshot.grow_only import GrowOnlySet
from rayched.snapshot.pod_selection import LabelConditions, Labels, terms_of_bound
from rayched.v1.core_pb2 import Pod

KEYS_MAX: Final = 4_096
"""With more keys all labels count."""
VALUES_MAX: Final = 64
"""With more values of a key all of them count."""
MENTIONS_MAX: Final = 16_384
"""Keys and values together, some 350 bytes each. With more of them all values of a key with a further one count."""
OTHER: Final = "*"
"""Stands for the values of a key that nobody mentions. No label has such a value, and no selector that was let in names it."""

_BY_VALUES: Final = frozenset((Operator.IN, Operator.NOT_IN))
_BY_PRESENCE: Final = frozenset((Operator.EXISTS, Operator.DOES_NOT_EXIST))

Mention = tuple[str, str | None]
"""A key and a value; with None all labels with the key have to be looked at anew."""


class ReferencedLabels(GrowOnlySet[Mention]):
    """The keys, and their values."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        super().__init__(KEYS_MAX)
        self._values: dict[str, set[str] | None] = {}
        """By key; None: each value counts."""

    @property
    def are_all(self) -> bool:
        return len(self._values) > KEYS_MAX

    def add(self, keys: Iterable[str]) -> None:
        """Keys of which each value counts."""
        for key in keys:
            self._mention(key, None)

    def add_labels(self, labels: Labels) -> None:
        """Labels that something selects by."""
        for key, value in labels.items():
            self._mention(key, (value,))

    def add_conditions(self, conditions: LabelConditions) -> None:
        for condition in conditions or ():
            if condition.operator in _BY_VALUES:
                self._mention(condition.key, condition.values)
            else:
                self._mention(condition.key, () if condition.operator in _BY_PRESENCE else None)

    def add_of(self, pod: Pod) -> None:
        """What the pod's own terms and constraints mention."""
        spec = pod.spec
        if spec.HasField("affinity"):
            for term in terms_of_bound(pod):
                self.add_conditions(term.conditions)
        for constraint in spec.topology_spread_constraints:
            selector = constraint.label_selector
            self.add_labels(selector.match_labels)
            for one in selector.match_expressions:
                # Whatever the operator: it can tell no other values apart than those that it names.
                self._mention(one.key, one.values)
            # The pod's own value is what it selects by.
            self.add(constraint.match_label_keys)

    def among(self, labels: Mapping[str, str]) -> dict[str, str]:
        """The labels that count, those whose value does not with OTHER in its place."""
        if self.are_all:
            return dict(labels)
        known = self._values
        return {
            key: value if (values := known[key]) is None or value in values else OTHER
            for key, value in labels.items()
            if key in known
        }

    def _mention(self, key: str, values: Iterable[str] | None) -> None:
        """These values of a key; None: each of them."""
        if key not in self._values:
            self._add(key, (key, None))
            if self.are_all:
                return
            self._values[key] = None if values is None else set()
        known = self._values[key]
        if known is None:
            return
        for value in values or ():
            if value in known:
                continue
            if len(known) == VALUES_MAX or len(self._keys) >= MENTIONS_MAX:
                values = None
                break
            mention = (key, value)
            self._add(mention, mention)
            known.add(value)
        if values is None:
            self._add((key, None), (key, None))
            self._values[key] = None
