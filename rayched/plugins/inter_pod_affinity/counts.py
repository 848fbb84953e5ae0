"""What InterPodAffinity compares rows with: who is bound in which domain, as far as one incoming pod is concerned.

Three things keep a pod off a row: its own terms of affinity, its own terms of anti-affinity, and those that bound pods carry
against it. Each is a number of pods by domain for each topology key, kept from cycle to cycle.

Owner: the engine, by way of the plugin's `count`. Cost: when a term is new to the cluster one comparison with it; else a look at
each sum in use.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final, NamedTuple

import numpy as np

from rayched.plugins.inter_pod_affinity.groups import PreferenceGroups
from rayched.plugins.inter_pod_affinity.sums import ByKey
from rayched.snapshot.carried_terms import TermShape, TermTarget
from rayched.snapshot.columns import BoolColumn
from rayched.snapshot.domains import BlockedDomains
from rayched.snapshot.moved_pods import Amounts, MovedPods
from rayched.snapshot.pod_selection import CarriedTerm, PodSelector, TermKind, hold, terms_of_bound
from rayched.snapshot.snapshot import Snapshot

WEIGHTS_MAX: Final = 8
"""Preferences by topology key and weight that are counted each on its own; further ones are added up together."""
_ROLES_MAX: Final = 4_096
"""Kinds, weights and topology keys of terms that are remembered."""
NO_LABELS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Incoming:
    """What of the incoming pod decides."""

    namespace: str
    labels: Mapping[str, str]
    affinity: tuple[CarriedTerm, ...]
    anti_affinity: tuple[CarriedTerm, ...]
    preferred: tuple[CarriedTerm, ...]
    unfinished: list[AffinityCounts] = field(default_factory=list, compare=False)
    """What was counted for an attempt that took too long; the next one goes on from there."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """What the plugin's arguments say about counting."""

    required_affinity: int
    """The weight of required affinity of bound pods."""
    needs_preferences: bool
    """Only a pod with preferred terms is scored at all."""
    selectors_of_namespaces_end: bool
    """A selector of namespaces means the namespaces it selects, and nothing else.

    Without this one that selects what has no labels selects every namespace, as in 1.34.
    """


class RoleKind(enum.Enum):
    """What a term of a bound pod is to an incoming one."""

    REFUSES = "refuses"
    PREFERS = "prefers"
    WEIGHS = "weighs"
    """As PREFERS, for terms of any weight: these are added up, not counted."""

    __hash__ = object.__hash__


class Role(NamedTuple):
    """Terms of bound pods that mean the same for an incoming one."""

    kind: RoleKind
    topology_key: str
    weight: int
    """Of each, where they prefer."""


@dataclass(slots=True, eq=False)
class AffinityCounts:
    """Brought up to date by `refresh`; read in between."""

    incoming: Incoming
    weighing: Weighing
    affinity_pods: tuple[PodSelector, ...] = ()
    """A bound pod must match all of them to count for any term of affinity."""
    anti_affinity_pods: tuple[tuple[str, PodSelector], ...] = ()
    """Topology key and selector of each term of anti-affinity."""
    matches_itself: bool = False
    affinity: ByKey = field(default_factory=ByKey)
    anti_affinity: ByKey = field(default_factory=ByKey)
    carried: ByKey = field(default_factory=ByKey)
    """Bound pods that refuse this one."""
    preferences: ByKey = field(default_factory=ByKey)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    revision: int = 0
    """Grows whenever anything here may say something else."""
    _namespaces_revision: int = -1
    _terms_generation: int = -1
    _target: TermTarget[Role] | None = None
    """What bound pods carry about this one."""
    _taken: set[Role] = field(default_factory=set)
    """Roles whose counters are among the sums."""
    _weights: set[Role] = field(default_factory=set)
    """Roles of terms of one weight."""
    _begun: int = 0
    groups: PreferenceGroups | None = None
    """Rows alike in the preferences."""
    _refusals: dict[tuple[int, str], BlockedDomains] = field(default_factory=dict)
    """By the place in `_parts` and the topology key."""
    _is_whole: bool = True
    """The last `refresh` came to its end."""
    _is_first: bool = False
    """The pod matches its own terms, and no bound one does: it may go anywhere that has the labels."""

    @property
    def n_bytes(self) -> int:
        groups = 0 if self.groups is None else self.groups.n_bytes
        groups += 0 if self._target is None else self._target.n_bytes
        return groups + sum(part.n_bytes for part in (self.affinity, self.anti_affinity, self.carried, self.preferences))

    def refresh(self, cluster: Snapshot) -> None:
        """Where it does not come to its end it goes on from there the next time. Raises AttemptOverBudget."""
        terms, namespaces = cluster.pod_counts.terms, cluster.surroundings.namespaces_revision
        is_followed, self._is_whole = self._is_whole, False
        changed = not is_followed
        target = self._target
        if target is None or self._namespaces_revision != namespaces or self._terms_generation != terms.generation:
            changed = True
            self._begin(cluster)
            incoming = self.incoming
            target = self._target = TermTarget(terms, incoming.namespace, incoming.labels, self.namespace_labels)
            self._taken.clear()
            self._weights.clear()
            self._namespaces_revision, self._terms_generation = namespaces, terms.generation
        if target.refresh(self._role, cluster.capacity, cluster.work) or changed:
            self._take_carried(cluster, target)
            changed = True
        for part in (self.affinity, self.anti_affinity, self.carried, self.preferences):
            if part.keys:
                changed |= part.refresh(is_followed=is_followed)
        if self.groups is not None:
            self.groups.follow()
        self.revision += changed
        if changed and any(part.keys for part in self._parts):
            self._refuse()
        self._is_whole = True

    @property
    def _parts(self) -> tuple[ByKey, ByKey, ByKey]:
        """What the filter asks about."""
        return self.affinity, self.anti_affinity, self.carried

    @property
    def refusals(self) -> Sequence[BlockedDomains]:
        """Domains with pods that keep this one off, or without those it wants to be with."""
        return list(self._refusals.values())

    def _refuse(self) -> None:
        was_first, self._is_first = self._is_first, self.matches_itself and self.affinity.total() == 0
        for place, part in enumerate(self._parts):
            if part is self.affinity and self._is_first is not was_first:
                for key in part.keys:
                    self._refuse_by(place, part, key, None)
            else:
                for key, touched in part.touched.items():
                    self._refuse_by(place, part, key, touched)

    def _refuse_by(self, place: int, part: ByKey, key: str, touched: Sequence[int] | None) -> None:
        found = self._refusals.get((place, key))
        if found is None:
            found = self._refusals[place, key] = BlockedDomains(part.topology(key))
        wants, vector = part is self.affinity, part.vector(key)
        if touched is None:
            refused: BoolColumn = np.zeros(len(vector), np.bool_) if wants and self._is_first else (vector > 0) ^ wants
            # Those it wants to be with are missing where the label is; those it avoids are not there.
            refused[-1] = wants
            found.set_all(refused)
        else:
            for domain in touched:
                found.set(domain, not self._is_first and vector.item(domain) <= 0 if wants else vector.item(domain) > 0)

    @property
    def adds_nothing(self) -> bool:
        return not self.preferences or (self.weighing.needs_preferences and not self.incoming.preferred)

    @property
    def verdict(self) -> Hashable:
        """Where there are pods of each kind, as far as the filter asks."""
        return self._begun, tuple((one.topology.version, one.log.end) for one in self._refusals.values())

    def carried_against(self, terms: Iterable[CarriedTerm]) -> dict[str, int]:
        """How many of the terms that a pod carries keep the incoming one away, by topology key."""
        found: dict[str, int] = {}
        for term in terms:
            if term.kind is TermKind.REQUIRED_ANTI_AFFINITY and self._is_about_incoming(term):
                found[term.topology_key] = found.get(term.topology_key, 0) + 1
        return found

    def moved_affinity(self, moved: MovedPods) -> Mapping[str, Amounts]:
        """Pods that count for the affinity, whatever the topology key."""
        return {"": moved.selected(self.affinity_pods).astype(np.int64)}

    def moved_anti_affinity(self, moved: MovedPods) -> Mapping[str, Amounts]:
        """For how many terms of anti-affinity pods count, by topology key."""
        found: dict[str, Amounts] = {}
        for key, selector in self.anti_affinity_pods:
            found[key] = found.get(key, 0) + moved.selected((selector,)).astype(np.int64)
        return found

    def moved_carried(self, moved: MovedPods) -> Mapping[str, Amounts]:
        """How many terms of the pods keep the incoming one away, by topology key."""
        found: dict[str, Amounts] = {}
        for number, template in enumerate(moved.templates):
            if template.has_affinity:
                for key, terms in self.carried_against(terms_of_bound(template.pod)).items():
                    found.setdefault(key, np.zeros(len(moved.templates), np.int64))[number] = terms
        return found

    def _begin(self, cluster: Snapshot) -> None:
        incoming = self.incoming
        self._begun += 1
        self.namespace_labels = dict(cluster.surroundings.labels_of(incoming.namespace))
        self.affinity, self.anti_affinity, self.carried, self.preferences = ByKey(), ByKey(), ByKey(), ByKey()
        self.groups = PreferenceGroups(cluster, self.preferences)
        self._refusals, self._is_first = {}, False
        self.affinity_pods = tuple(self._selector(cluster, term) for term in incoming.affinity)
        self.matches_itself = all(one.matches(incoming.namespace, incoming.labels) for one in self.affinity_pods)
        for key in dict.fromkeys(term.topology_key for term in incoming.affinity):
            self.affinity.add(cluster, key, self.affinity_pods)
        self.anti_affinity_pods = tuple((term.topology_key, self._selector(cluster, term)) for term in incoming.anti_affinity)
        for key, selector in self.anti_affinity_pods:
            self.anti_affinity.add(cluster, key, (selector,))
        for term in incoming.preferred:
            sign = 1 if term.kind is TermKind.PREFERRED_AFFINITY else -1
            self.preferences.add(cluster, term.topology_key, (self._selector(cluster, term),), sign * term.weight)

    def _take_carried(self, cluster: Snapshot, target: TermTarget[Role]) -> None:
        """Sums of what is carried in roles that are new."""
        for role in [role for role in target.counters if role not in self._taken]:
            part = self.carried if role.kind is RoleKind.REFUSES else self.preferences
            weight = role.weight if role.kind is RoleKind.PREFERS else 1
            source = partial(target.counters.__getitem__, role)
            part.add_counter(cluster, role.topology_key, source, weight, adds_up=role.kind is RoleKind.WEIGHS)
            self._taken.add(role)

    def _role(self, term: TermShape) -> tuple[Role, int] | None:
        """What a bound pod's term about this one means for it, and how much."""
        role, added_up = _roles(term, self.weighing.required_affinity)
        if role is None or role.kind is RoleKind.REFUSES:
            return role and (role, 1)
        if role in self._weights or len(self._weights) < WEIGHTS_MAX:
            self._weights.add(role)
            return role, 1
        return added_up, role.weight

    def _is_about_incoming(self, term: CarriedTerm) -> bool:
        return term.matches(self.incoming.namespace, self.incoming.labels, self.namespace_labels)

    def _selector(self, cluster: Snapshot, term: CarriedTerm) -> PodSelector:
        """The pods that a term of the incoming pod is about, its selector of namespaces resolved."""
        conditions = term.namespace_conditions
        if conditions is None:
            return PodSelector(term.namespaces, term.conditions)
        if not conditions or (not self.weighing.selectors_of_namespaces_end and hold(conditions, NO_LABELS)):
            return PodSelector(None, term.conditions)
        return PodSelector(term.namespaces | cluster.surroundings.namespaces_meeting(conditions), term.conditions)


@lru_cache(maxsize=_ROLES_MAX)
def _roles(term: TermShape, required_affinity: int) -> tuple[Role | None, Role]:
    """What a bound pod's term is to an incoming one where its weight counts on its own, and where it is added up with others."""
    added_up = Role(RoleKind.WEIGHS, term.topology_key, 0)
    match term.kind:
        case TermKind.REQUIRED_ANTI_AFFINITY:
            return Role(RoleKind.REFUSES, term.topology_key, 0), added_up
        case TermKind.REQUIRED_AFFINITY:
            weight = required_affinity
            if weight <= 0:
                return None, added_up
        case TermKind.PREFERRED_AFFINITY:
            weight = term.weight
        case TermKind.PREFERRED_ANTI_AFFINITY:
            weight = -term.weight
    return Role(RoleKind.PREFERS, term.topology_key, weight), added_up
