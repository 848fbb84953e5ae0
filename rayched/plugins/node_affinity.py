"""NodeAffinity: put pods on nodes that their nodeSelector and node affinity ask for, and prefer those they would like.

PreFilter: where every required term names nodes by metadata.name, only those nodes are looked at; where the names of each term
exclude each other, the pod is rejected outright.
Filter: all labels of nodeSelector and one of the required terms must match, and the profile's addedAffinity as well, which is
looked at first and has its own reason. A required term that does not parse matches no node. The code is
UNSCHEDULABLE_AND_UNRESOLVABLE.
Score: the sum of the weights of the preferred terms that match, the pod's and addedAffinity's; normalised so that the highest
gets 100. A preferred term that does not parse ends the attempt with an error, once there is a node to score; also where the
plugin is switched off for Score alone, as its PreScore is not.

Source: pod.spec.nodeSelector, pod.spec.affinity.nodeAffinity (core/v1), NodeAffinityArgs, kube-scheduler 1.34.
Cost: a few numpy calls for each requirement; pods that ask for nothing are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rayched.api.selectors import NAME_FIELD, NodeSelectorMatcher, NodeTermMatcher
from rayched.framework import names
from rayched.framework.cluster_event import Action, ClusterEvent, Resource
from rayched.framework.plugin import (
    FilterPlugin,
    NarrowingPlugin,
    NormalizingPlugin,
    PodPart,
    PodReadingPlugin,
    PreScorePlugin,
    RegisteringPlugin,
)
from rayched.framework.plugin_args import NodeAffinityArgs
from rayched.framework.queueing_hints import PreparedHint, Registration
from rayched.framework.status import Code, Status, unresolvable
from rayched.plugins import node_affinity_hints
from rayched.plugins.coding import coded
from rayched.plugins.node_selection import by_selector, by_term, with_labels
from rayched.plugins.normalizing import most_first
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import NodeAffinity as NodeAffinityTerms
from rayched.v1.core_pb2 import NodeSelector, Pod, PreferredSchedulingTerm

REASON: Final = "node(s) didn't match Pod's node affinity/selector"
REASON_ADDED: Final = "node(s) didn't match scheduler-enforced node affinity"
REASON_CONFLICT: Final = "pod affinity terms conflict"


class InvalidPreference(ValueError):
    """A preferred term of the pod does not parse; admission lets some through that the matching refuses."""


@dataclass(frozen=True, slots=True)
class Preference:
    term: NodeTermMatcher
    weight: int


@dataclass(frozen=True, slots=True)
class Wishes:
    labels: Mapping[str, str]
    required: NodeSelectorMatcher | None
    narrowed: frozenset[str] | None
    """Names of the only nodes that can match; None: any may."""
    preferred: tuple[Preference, ...] | None
    """None: the pod prefers nothing."""
    fault: str = ""
    """What is wrong with the preferred terms."""


class NodeAffinity(NarrowingPlugin, FilterPlugin, PreScorePlugin, NormalizingPlugin, PodReadingPlugin, RegisteringPlugin):
    name: Final = names.NODE_AFFINITY
    reads: Final = Log.LABELS
    reads_pod: Final = PodPart.LEAST
    ends_attempts_at_pre_score = True

    def __init__(self, args: NodeAffinityArgs) -> None:
        added = args.added_affinity or NodeAffinityTerms()
        required = _required_of(added)
        self._added_required = None if required is None else NodeSelectorMatcher(required)
        preferred = added.preferred_during_scheduling_ignored_during_execution
        self._added_preferred = _preferences(preferred)[0] if preferred else None

    def key(self, pod: Pod) -> tuple[tuple[tuple[str, str], ...], bytes | None, tuple[bytes, ...]] | None:
        """nodeSelector and the terms; the order of preferred terms does not matter."""
        if not pod.spec.HasField("affinity") and not pod.spec.node_selector:
            # As most pods.
            return None if self._added_required is None and self._added_preferred is None else ((), None, ())
        affinity = pod.spec.affinity.node_affinity
        required = _required_of(affinity)
        key = (
            tuple(sorted(pod.spec.node_selector.items())),
            None if required is None else required.SerializeToString(deterministic=True),
            tuple(
                sorted(
                    term.SerializeToString(deterministic=True)
                    for term in affinity.preferred_during_scheduling_ignored_during_execution
                )
            ),
        )
        asks_for_something = key != ((), None, ()) or self._added_required is not None or self._added_preferred is not None
        return key if asks_for_something else None

    def prepare(self, pod: Pod) -> Wishes:
        affinity = pod.spec.affinity.node_affinity
        required = _required_of(affinity)
        preferred, fault = _preferences(affinity.preferred_during_scheduling_ignored_during_execution)
        return Wishes(
            labels=dict(pod.spec.node_selector),
            required=None if required is None else NodeSelectorMatcher(required),
            narrowed=None if required is None else _named_nodes(required),
            preferred=preferred if affinity.preferred_during_scheduling_ignored_during_execution else None,
            fault=fault,
        )

    def narrow(self, state: Wishes) -> frozenset[str] | Status | None:
        if state.narrowed is not None and not state.narrowed:
            return unresolvable(REASON_CONFLICT).by(self.name)
        return state.narrowed

    def filter(self, state: Wishes, rows: Rows) -> CodeColumn | None:
        """Shape (rows,), uint8."""
        if self._added_required is None and state.required is None and not state.labels:
            return None
        selected = with_labels(state.labels, rows)
        if state.required is not None:
            selected &= by_selector(state.required, rows)
        if self._added_required is not None:
            selected &= by_selector(self._added_required, rows)
        return coded(~selected, Code.UNSCHEDULABLE_AND_UNRESOLVABLE)

    def reasons(self, state: Wishes, rows: Rows, codes: CodeColumn) -> Sequence[tuple[str, BoolColumn]]:  # noqa: ARG002
        rejected = codes != Code.SUCCESS
        if self._added_required is None:
            return ((REASON, rejected),)
        added = by_selector(self._added_required, rows)
        return (REASON_ADDED, ~added), (REASON, rejected & added)

    def score(self, state: Wishes, rows: Rows) -> ScoreColumn | None:
        """Sum of the weights of matching preferences. Shape (rows,), int64. Raises InvalidPreference."""
        if state.fault:
            raise InvalidPreference(state.fault)
        if state.preferred is None and self._added_preferred is None:
            return None
        total = np.zeros(rows.n, np.int64)
        for preference in (*(self._added_preferred or ()), *(state.preferred or ())):
            total += by_term(preference.term, rows) * np.int64(preference.weight)
        return total

    def normalize(self, raw: ScoreColumn, low: int, high: int) -> ScoreColumn:  # noqa: ARG002
        return most_first(raw, high)

    def registrations(self) -> Sequence[Registration]:
        hint = PreparedHint(self._after_node, node_affinity_hints.look)
        return (Registration(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL), hint),)

    def _after_node(self, pod: Pod) -> node_affinity_hints.NodeAffinityNodeHint:
        required = _required_of(pod.spec.affinity.node_affinity)
        return node_affinity_hints.NodeAffinityNodeHint.of(pod.spec.node_selector, required, self._added_required)


def _required_of(affinity: NodeAffinityTerms) -> NodeSelector | None:
    """The required part where it is there; one without terms is there too, and matches no node."""
    if not affinity.HasField("required_during_scheduling_ignored_during_execution"):
        return None
    return affinity.required_during_scheduling_ignored_during_execution


def _preferences(terms: Iterable[PreferredSchedulingTerm]) -> tuple[tuple[Preference, ...], str]:
    """The terms that can add something, and what is wrong with others."""
    found: list[Preference] = []
    faults: list[str] = []
    for i, term in enumerate(terms):
        matcher = NodeTermMatcher(term.preference)
        if term.weight == 0 or matcher.empty:
            continue
        if matcher.fault is None:
            found.append(Preference(matcher, term.weight))
        else:
            faults.append(f"preferredDuringSchedulingIgnoredDuringExecution[{i}]: {matcher.fault}")
    return tuple(found), "; ".join(faults)


def _named_nodes(required: NodeSelector) -> frozenset[str] | None:
    """The union over the terms of the names that each allows; None where a term allows any name or there is no term."""
    found: frozenset[str] = frozenset()
    for term in required.node_selector_terms:
        fields = [e for e in term.match_fields if e.key == NAME_FIELD and e.operator == "In"]
        if not fields:
            return None
        found |= frozenset.intersection(*(frozenset(expression.values) for expression in fields))
    return found if required.node_selector_terms else None
