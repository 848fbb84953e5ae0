"""InterPodAffinity: put pods together, or apart, by node, zone or any other domain.

Filter: each required term of affinity needs a bound pod in the row's domain, and one bound pod has to match all terms to count
for any of them. The first pod of a group that matches its own terms may go anywhere its topology keys are, as long as no pod
matches in the whole cluster. Nothing can help a row here, so the code is UNSCHEDULABLE_AND_UNRESOLVABLE. A required term of
anti-affinity, the pod's or a bound pod's, keeps it out of the domain; the code is UNSCHEDULABLE, as removing pods can help.
Score: the weights of preferred terms that bound pods of the domain match, less those of anti-affinity; the other way round the
terms of bound pods that the pod matches, where required affinity counts as well, with hardPodAffinityWeight. Stretched to 0..100
between the lowest and the highest feasible row. Skipped while no term has a match, and, with
ignorePreferredTermsOfExistingPods, for pods without preferred terms.

Pods that are being deleted count. `matchLabelKeys` and `mismatchLabelKeys` are part of the selectors since admission.
Source: pod.spec.affinity.podAffinity and podAntiAffinity (core/v1), InterPodAffinityArgs, kube-scheduler 1.34. As there, a
namespaceSelector of the pod that selects namespaces without labels selects every namespace; `fixUpstreamBugs` ends that.
Cost: nothing while no term concerns the pod; else a gather for each topology key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from rayched.framework import names
from rayched.framework.accelerated import DomainFilterPlugin, GroupingScorePlugin
from rayched.framework.plugin import MAX_NODE_SCORE, PodPart, PodReadingPlugin, RegisteringPlugin
from rayched.framework.plugin_args import InterPodAffinityArgs
from rayched.framework.queueing_hints import Registration
from rayched.framework.status import Code
from rayched.plugins.coding import coded
from rayched.plugins.inter_pod_affinity import hints as inter_pod_affinity_hints
from rayched.plugins.inter_pod_affinity.counts import AffinityCounts, Incoming, Weighing
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, ScoreColumn
from rayched.snapshot.domains import BlockedDomains
from rayched.snapshot.pod_selection import TermKind, of_kind, terms_of
from rayched.snapshot.row_groups import RowGroups
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.work_budget import AttemptOverBudget
from rayched.v1.core_pb2 import Pod

REASON_AFFINITY: Final = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
REASON_CARRIED: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

AffinityKey: TypeAlias = tuple[str, tuple[tuple[str, str], ...], bytes, bytes]


class InterPodAffinity(DomainFilterPlugin, GroupingScorePlugin, PodReadingPlugin, RegisteringPlugin):
    name: Final = names.INTER_POD_AFFINITY
    reads: Final = Log.LABELS
    reads_pod: Final = PodPart.LEAST

    def __init__(self, args: InterPodAffinityArgs) -> None:
        needs_preferences = args.ignore_preferred_terms_of_existing_pods
        self._weighing = Weighing(args.hard_pod_affinity_weight, needs_preferences, args.fix_upstream_bugs)

    def key(self, pod: Pod) -> AffinityKey:
        """Whom the pod asks for, and what others may ask for in it."""
        affinity = pod.spec.affinity
        return (
            pod.metadata.namespace,
            tuple(sorted(pod.metadata.labels.items())),
            affinity.pod_affinity.SerializeToString(deterministic=True),
            affinity.pod_anti_affinity.SerializeToString(deterministic=True),
        )

    def prepare(self, pod: Pod) -> Incoming:
        terms = terms_of(pod)
        return Incoming(
            namespace=pod.metadata.namespace,
            labels=dict(pod.metadata.labels),
            affinity=of_kind(terms, TermKind.REQUIRED_AFFINITY),
            anti_affinity=of_kind(terms, TermKind.REQUIRED_ANTI_AFFINITY),
            preferred=tuple(term for term in terms if term.weight),
        )

    def count(self, state: Incoming, cluster: Snapshot, last: AffinityCounts | None) -> AffinityCounts:
        unfinished = state.unfinished
        found = last or (unfinished.pop() if unfinished else AffinityCounts(state, self._weighing))
        try:
            found.refresh(cluster)
        except AttemptOverBudget:
            unfinished.append(found)
            raise
        return found

    # ----------------------------------------------------------------------------------------------------------- filter

    def filter(self, state: AffinityCounts, rows: Rows) -> CodeColumn | None:
        """Shape (rows,), uint8."""
        if not state.incoming.affinity and not state.incoming.anti_affinity and not state.carried:
            return None
        codes = coded(_refused_by_own(state, rows) | _refused_by_carried(state, rows), Code.UNSCHEDULABLE)
        if state.incoming.affinity:
            codes[_alone(state, rows)] = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return codes

    def refusals(self, state: AffinityCounts) -> Sequence[BlockedDomains]:
        return state.refusals

    def reasons(self, state: AffinityCounts, rows: Rows, codes: CodeColumn) -> Sequence[tuple[str, BoolColumn]]:
        """The first of the three that holds for a row is its only reason."""
        alone, refused = codes == Code.UNSCHEDULABLE_AND_UNRESOLVABLE, codes == Code.UNSCHEDULABLE
        own = _refused_by_own(state, rows)
        return (REASON_AFFINITY, alone), (REASON_ANTI_AFFINITY, refused & own), (REASON_CARRIED, refused & ~own)

    # ------------------------------------------------------------------------------------------------------------ score

    def score(self, state: AffinityCounts, rows: Rows) -> ScoreColumn | None:
        """Weights of the terms that are met in each row's domains. Shape (rows,), int64."""
        if state.adds_nothing:
            return None
        total = np.zeros(rows.n, np.int64)
        for key in state.preferences.keys:
            total += state.preferences.of_rows(key, rows)[0]
        return total

    def normalize_rows(self, state: AffinityCounts, rows: Rows, raw: ScoreColumn) -> ScoreColumn:  # noqa: ARG002
        low, high = int(raw.min()), int(raw.max())
        if low == high:
            return np.zeros(rows.n, np.int64)
        # Floats in the order of 1.34: the share first.
        return (float(MAX_NODE_SCORE) * ((raw - low) / float(high - low))).astype(np.int64)

    def groups(self, state: AffinityCounts) -> RowGroups | None:
        return None if state.groups is None or state.adds_nothing else state.groups.groups()

    def score_groups(
        self,
        state: AffinityCounts,
        groups: RowGroups,
        present: Sequence[int],
        feasible: BoolColumn,  # noqa: ARG002
    ) -> Sequence[int] | None:
        """As `score` and `normalize_rows` over the feasible rows."""
        if state.groups is None or state.adds_nothing:
            return None
        return state.groups.scores(groups, present)

    def registrations(self) -> Sequence[Registration]:
        return inter_pod_affinity_hints.registrations()


def _alone(state: AffinityCounts, rows: Rows) -> BoolColumn:
    """Rows where the pod misses those it wants to be with. Shape (rows,)."""
    counted = np.ones(rows.n, np.bool_)
    labelled = np.ones(rows.n, np.bool_)
    coming = rows.differences(("affinity", state.affinity_pods), state.moved_affinity).get("", np.zeros(rows.n, np.int64))
    # Pods that would come count once for each topology key that the row has, as bound ones do.
    anywhere = np.full(rows.n, state.affinity.total(), np.int64)
    for key in state.affinity.keys:
        pods, has_label = state.affinity.of_rows(key, rows)
        pods = pods + coming * has_label
        anywhere += coming * has_label
        counted &= pods > 0
        labelled &= has_label
    met = labelled & counted
    if state.matches_itself:
        met |= labelled & (anywhere == 0)
    return ~met


def _refused_by_own(state: AffinityCounts, rows: Rows) -> BoolColumn:
    """Rows with pods that the incoming one wants to be away from. Shape (rows,)."""
    refused = np.zeros(rows.n, np.bool_)
    coming = rows.differences(("anti-affinity", state.anti_affinity_pods), state.moved_anti_affinity)
    for key in state.anti_affinity.keys:
        pods, has_label = state.anti_affinity.of_rows(key, rows)
        if key in coming:
            pods = pods + coming[key] * has_label
        refused |= pods > 0
    return refused


def _refused_by_carried(state: AffinityCounts, rows: Rows) -> BoolColumn:
    """Rows with pods that want to be away from the incoming one. Shape (rows,)."""
    refused = np.zeros(rows.n, np.bool_)
    coming = rows.differences(("carried", state), state.moved_carried)
    for key in dict.fromkeys((*state.carried.keys, *coming)):
        if key in state.carried.keys:
            pods, has_label = state.carried.of_rows(key, rows)
        else:
            pods, has_label = np.zeros(rows.n, np.int64), rows.label(key) >= 0
        if key in coming:
            pods = pods + coming[key] * has_label
        refused |= pods > 0
    return refused
