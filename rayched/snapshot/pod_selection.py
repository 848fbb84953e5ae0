"""Which bound pods count: conditions on a pod's labels and namespace, and the terms of affinity that pods carry.

A `PodSelector` is a condition on pods. Selectors of namespaces are resolved before, so that it reads nothing but the pod: when
namespaces change, another selector takes its place. A `CarriedTerm` is a term of pod affinity or anti-affinity as compiled from
the pod that carries it; equal terms of different pods are one.

Both are values and serve as keys of counters.

Source: AffinityTerm and its Matches, kube-scheduler 1.34.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from rayched.api.selectors import LabelSelectorMatcher, Requirement, SelectorError
from rayched.v1.core_pb2 import Affinity, Pod, PodAffinityTerm
from rayched.v1.meta_pb2 import LabelSelector

Labels = Mapping[str, str]

_TERMS_MAX: Final = 4_096
"""Affinities whose terms are kept as compiled, of some KB each."""
_SERIALISED_MAX: Final = 2_048
"""Bytes of an affinity; the terms of a larger one are not kept."""

LabelConditions: TypeAlias = tuple[Requirement, ...] | None
"""Conditions that must all hold; () holds everywhere, None (no selector) nowhere."""


def conditions_of(selector: LabelSelector | None) -> LabelConditions:
    """A selector's conditions. Raises SelectorError."""
    matcher = LabelSelectorMatcher(selector)
    return None if matcher.nothing else matcher.requirements.items


def hold(conditions: LabelConditions, labels: Labels) -> bool:
    return conditions is not None and all(condition.matches(labels) for condition in conditions)


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Pods of some namespaces whose labels meet the conditions."""

    namespaces: frozenset[str] | None
    """None: all."""
    conditions: LabelConditions
    terminating: bool = True
    """Whether pods that are being deleted count."""

    def matches(self, namespace: str, labels: Labels) -> bool:
        """Whatever the pod's state."""
        return (self.namespaces is None or namespace in self.namespaces) and hold(self.conditions, labels)


class TermKind(enum.Enum):
    """Where a term stands in spec.affinity."""

    REQUIRED_AFFINITY = "required affinity"
    REQUIRED_ANTI_AFFINITY = "required anti-affinity"
    PREFERRED_AFFINITY = "preferred affinity"
    PREFERRED_ANTI_AFFINITY = "preferred anti-affinity"

    # Members are the only ones of their kind, and Enum's own hash is worked out in Python.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class CarriedTerm:
    """A term of a pod's affinity."""

    kind: TermKind
    weight: int
    """0 where the term is required."""
    topology_key: str
    namespaces: frozenset[str]
    namespace_conditions: LabelConditions
    """On the labels of other namespaces."""
    conditions: LabelConditions
    _hash: int = field(init=False, repr=False, compare=False)
    """Each pod that comes or goes is counted by its terms, and to hash all of one takes 2 µs."""

    def __post_init__(self) -> None:
        content = self.kind, self.weight, self.topology_key, self.namespaces, self.namespace_conditions, self.conditions
        object.__setattr__(self, "_hash", hash(content))

    def __hash__(self) -> int:
        return self._hash

    def matches(self, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        """Whether it is about a pod of this namespace, which has these labels itself."""
        if namespace not in self.namespaces and not hold(self.namespace_conditions, namespace_labels):
            return False
        return hold(self.conditions, labels)


def terms_of(pod: Pod) -> tuple[CarriedTerm, ...]:
    """All terms of a pod, in the order of their fields. Raises SelectorError.

    Cost: 2 µs where a pod with the same affinity was asked about before; else some 25 for each term.
    """
    if not pod.spec.HasField("affinity"):
        return ()
    serialised = pod.spec.affinity.SerializeToString(deterministic=True)
    compiled = _terms if len(serialised) <= _SERIALISED_MAX else _terms.__wrapped__
    return compiled(pod.metadata.namespace, serialised)


@lru_cache(maxsize=_TERMS_MAX)
def _terms(namespace: str, serialised: bytes) -> tuple[CarriedTerm, ...]:
    """The terms of a pod in this namespace with this affinity."""
    affinity = Affinity.FromString(serialised)
    together, apart = affinity.pod_affinity, affinity.pod_anti_affinity
    found: list[CarriedTerm] = []
    for kind, terms in (
        (TermKind.REQUIRED_AFFINITY, together.required_during_scheduling_ignored_during_execution),
        (TermKind.REQUIRED_ANTI_AFFINITY, apart.required_during_scheduling_ignored_during_execution),
    ):
        found.extend(_compiled(kind, 0, term, namespace) for term in terms)
    for kind, preferences in (
        (TermKind.PREFERRED_AFFINITY, together.preferred_during_scheduling_ignored_during_execution),
        (TermKind.PREFERRED_ANTI_AFFINITY, apart.preferred_during_scheduling_ignored_during_execution),
    ):
        found.extend(_compiled(kind, one.weight, one.pod_affinity_term, namespace) for one in preferences)
    return tuple(found)


def terms_of_bound(pod: Pod) -> tuple[CarriedTerm, ...]:
    """The same for a pod that is bound already: one whose terms do not compile has none, as nobody can be told any more."""
    try:
        return terms_of(pod)
    except SelectorError:
        return ()


def of_kind(terms: Iterable[CarriedTerm], kind: TermKind) -> tuple[CarriedTerm, ...]:
    return tuple(term for term in terms if term.kind is kind)


def _compiled(kind: TermKind, weight: int, term: PodAffinityTerm, namespace: str) -> CarriedTerm:
    has_selector = term.HasField("namespace_selector")
    own_only = not term.namespaces and not has_selector
    return CarriedTerm(
        kind=kind,
        weight=weight,
        topology_key=term.topology_key,
        namespaces=frozenset((namespace,) if own_only else term.namespaces),
        namespace_conditions=conditions_of(term.namespace_selector if has_selector else None),
        conditions=conditions_of(term.label_selector if term.HasField("label_selector") else None),
    )
