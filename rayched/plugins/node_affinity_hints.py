"""Queueing hint of NodeAffinity: a node helps when it is selected and was not before.

1.34 looks at the pod's own selection alone for what was before, and so may miss a node that addedAffinity kept out.
Source: isSchedulableAfterNodeChange of kube-scheduler 1.34. Cost: compiling the pod's terms once; then a comparison of labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rayched.api.selectors import (
    NAME_FIELD,
    FieldRequirement,
    NodeSelectorMatcher,
    NodeTermMatcher,
    Operator,
    Requirement,
    Requirements,
)
from rayched.framework.queueing_hints import Handle, Hint, Labels, Look, Way, handles_of, queue_if
from rayched.v1.core_pb2 import Node, NodeSelector

_NAME: Final = ""
"""The node's name among its labels; no label has this key."""


@dataclass(frozen=True, slots=True)
class NodeAffinityNodeHint:
    """What a pod, and its profile, ask of a node."""

    labels: Requirements
    """nodeSelector."""
    required: bytes | None
    """The terms that `own` was made of, as two matchers are never equal."""
    own: NodeSelectorMatcher | None = field(compare=False)
    added: NodeSelectorMatcher | None = field(compare=False)
    """The same for all pods of the profile."""

    @classmethod
    def of(
        cls, labels: Mapping[str, str], required: NodeSelector | None, added: NodeSelectorMatcher | None
    ) -> NodeAffinityNodeHint:
        conditions = tuple(Requirement(key, Operator.IN, frozenset((labels[key],))) for key in sorted(labels))
        if required is None:
            return cls(Requirements(conditions), None, None, added)
        content = required.SerializeToString(deterministic=True)
        return cls(Requirements(conditions), content, NodeSelectorMatcher(required), added)

    @property
    def keys(self) -> frozenset[str]:
        terms = [term for selector in (self.own, self.added) if selector is not None for term in selector.terms]
        read = (*self.labels.items, *(one for term in terms for one in term.requirements.items))
        names = (_NAME for term in terms for _ in term.fields)
        return frozenset((*(one.key for one in read), *names))

    @property
    def ways(self) -> tuple[Way, ...]:
        always = handles_of(self.labels.items)
        if self.own is None:
            return (always,)
        terms = (term for term in self.own.terms if not term.empty and term.fault is None)
        return tuple((*always, *handles_of(term.requirements.items), *_names(term)) for term in terms)

    def __call__(self, look: Look) -> Hint:
        return queue_if(self._selects(look.after) and not self._selects(look.before))

    def _selects(self, labels: Labels | None) -> bool:
        if labels is None or not self.labels.matches(labels):
            return False
        return all(selector is None or selector.matches(labels[_NAME], labels) for selector in (self.own, self.added))


def look(old: Node | None, new: Node) -> Look:
    before, after = (None if node is None else {**node.metadata.labels, _NAME: node.metadata.name} for node in (old, new))
    return Look(before=before, after=after)


def _names(term: NodeTermMatcher) -> Way:
    """The names that the term asks for."""
    return tuple(frozenset[Handle]({(None, _NAME, one.value)}) for one in term.fields if _is_name(one))


def _is_name(one: FieldRequirement) -> bool:
    return one.equal and one.key == NAME_FIELD
