"""Keys of pods' labels that any selector mentions: of Services and controllers, of terms of pods, of their spread constraints.

Plugins that compare pods read labels through selectors alone, so a label whose key nobody mentions makes no difference to them.
Most labels are such: a pod's own name in a StatefulSet, a version, an application that no selector is about. Without them pods of
many templates ask the same.

Keys are never forgotten while the table lives, as plans are made for those that there are. With too many, every label counts.

Owner: one table; selectors are told to it by whoever takes them in. Cost: a look-up for each key of a selector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rayched.snapshot.first_seen import FirstSeen
from rayched.snapshot.pod_selection import LabelConditions, terms_of_bound
from rayched.v1.core_pb2 import Pod

KEYS_MAX: Final = 4_096
"""With more keys all labels count."""


class MentionedLabels(FirstSeen[str]):
    """The keys."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(KEYS_MAX)

    def add(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._add(key, key)

    def add_conditions(self, conditions: LabelConditions) -> None:
        self.add(condition.key for condition in conditions or ())

    def add_of(self, pod: Pod) -> None:
        """What the pod's own terms and constraints mention."""
        spec = pod.spec
        if spec.HasField("affinity"):
            for term in terms_of_bound(pod):
                self.add_conditions(term.conditions)
        for constraint in spec.topology_spread_constraints:
            selector = constraint.label_selector
            self.add(selector.match_labels)
            self.add(one.key for one in selector.match_expressions)
            self.add(constraint.match_label_keys)

    def among(self, labels: Mapping[str, str]) -> dict[str, str]:
        """The labels that count."""
        if self.are_all:
            return dict(labels)
        known = self._keys
        return {key: value for key, value in labels.items() if key in known}
