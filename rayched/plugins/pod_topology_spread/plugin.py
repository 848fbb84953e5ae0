"""PodTopologySpread: keep the pods that a selector selects evenly spread over the domains of a topology key.

Filter, for constraints with DoNotSchedule: with the pod, the row's domain may exceed the emptiest domain by maxSkew at most; the
emptiest counts as 0 while there are fewer than minDomains. A row without one of the keys is UNSCHEDULABLE_AND_UNRESOLVABLE, a row
that would be too full is UNSCHEDULABLE.
Score, for constraints with ScheduleAnyway: the pods of each of the row's domains, weighted by the logarithm of the number of
domains that have a feasible row; turned around, so that the emptiest wins. Rows without all keys get 0.

Domains are made of nodes that have all keys of the hard (or of the soft) constraints, that the pod's node affinity selects
(nodeAffinityPolicy Honor, the default) and whose taints it tolerates (nodeTaintsPolicy Honor; the default is Ignore). Only pods
of the same namespace count, not those that are being deleted. An empty selector counts no bound pod, yet the incoming one.
A pod without constraints has those of the profile, as far as Services or its owner say which pods belong together: System (zone
5, hostname 3, both soft; there a node without a zone is scored by its host alone) or the list in the arguments.

Source: pod.spec.topologySpreadConstraints (core/v1), PodTopologySpreadArgs, kube-scheduler 1.34. Floats as there.
Cost: a gather for each constraint, and the minimum over its domains.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rayched.api.selectors import NodeSelectorMatcher, Operator, Requirement
from rayched.framework import names
from rayched.framework.accelerated import DomainFilterPlugin, GroupingScorePlugin
from rayched.framework.plugin import MAX_NODE_SCORE, PodPart, PodReadingPlugin, RegisteringPlugin
from rayched.framework.plugin_args import SYSTEM_DEFAULTING, PodTopologySpreadArgs
from rayched.framework.queueing_hints import Registration
from rayched.framework.status import Code
from rayched.plugins.pod_topology_spread import hints as pod_topology_spread_hints
from rayched.plugins.pod_topology_spread.constraint_counts import NO_DOMAIN_MIN, ConstraintCounts
from rayched.plugins.pod_topology_spread.constraints import DO_NOT_SCHEDULE, HONOR, HOSTNAME, Constraint, Spreading
from rayched.plugins.pod_topology_spread.counts import SpreadCounts
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, ScoreColumn
from rayched.snapshot.domains import BlockedDomains
from rayched.snapshot.pod_selection import LabelConditions, conditions_of
from rayched.snapshot.row_groups import RowGroups
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.v1.core_pb2 import Pod, TopologySpreadConstraint

REASON_SKEW: Final = "node(s) didn't match pod topology spread constraints"
REASON_LABEL: Final = "node(s) didn't match pod topology spread constraints (missing required label)"

ZONE: Final = "topology.kubernetes.io/zone"
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"

SYSTEM_DEFAULTS: Final = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY),
)


class PodTopologySpread(DomainFilterPlugin, GroupingScorePlugin, PodReadingPlugin, RegisteringPlugin):
    name: Final = names.POD_TOPOLOGY_SPREAD
    reads: Final = Log.LABELS | Log.TAINTS
    reads_pod: Final = PodPart.LEAST

    def __init__(self, args: PodTopologySpreadArgs) -> None:
        self._is_system = args.defaulting_type == SYSTEM_DEFAULTING
        self._defaults: Sequence[TopologySpreadConstraint] = SYSTEM_DEFAULTS if self._is_system else args.default_constraints

    def key(self, pod: Pod) -> Hashable | None:
        """Constraints and labels, and what tells which nodes count; for default constraints the owner too."""
        constraints = pod.spec.topology_spread_constraints
        if not constraints and not self._defaults:
            return None
        asked = constraints or self._defaults
        by_affinity, by_taints = any(map(_honors_affinity, asked)), any(map(_honors_taints, asked))
        required = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
        owner = next((one for one in pod.metadata.owner_references if one.controller), None)
        return (
            tuple(constraint.SerializeToString(deterministic=True) for constraint in constraints),
            pod.metadata.namespace,
            tuple(sorted(pod.metadata.labels.items())),
            tuple(sorted(pod.spec.node_selector.items())) if by_affinity else (),
            by_affinity and _has_required(pod) and required.SerializeToString(deterministic=True),
            tuple(sorted({(t.key, t.operator, t.value, t.effect) for t in pod.spec.tolerations})) if by_taints else (),
            None if constraints or owner is None else (owner.api_version, owner.kind, owner.name),
        )

    def prepare(self, pod: Pod) -> Spreading:
        own = pod.spec.topology_spread_constraints
        constraints = own or self._defaults
        required = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
        labels = dict(pod.metadata.labels)
        return Spreading(
            pod=pod,
            namespace=pod.metadata.namespace,
            labels=labels,
            hard=_compiled(constraints, DO_NOT_SCHEDULE, labels),
            soft=_compiled(constraints, SCHEDULE_ANYWAY, labels),
            by_default=not own,
            needs_all_keys=bool(own) or not self._is_system,
            node_labels=dict(pod.spec.node_selector),
            node_selector=NodeSelectorMatcher(required) if _has_required(pod) else None,
            tolerations=tuple(pod.spec.tolerations),
        )

    def count(self, state: Spreading, cluster: Snapshot, last: SpreadCounts | None) -> SpreadCounts:
        found = last or SpreadCounts(state, cluster)
        found.refresh(cluster)
        return found

    # ----------------------------------------------------------------------------------------------------------- filter

    def filter(self, state: SpreadCounts, rows: Rows) -> CodeColumn | None:
        """The first constraint that is not met decides. Shape (rows,), uint8."""
        if not state.hard:
            return None
        codes = np.zeros(rows.n, np.uint8)
        for one in reversed(state.hard):
            domains = one.topology.column[rows.selection]
            codes[_exceeds(one, domains, rows)] = Code.UNSCHEDULABLE
            codes[domains < 0] = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return codes

    def refusals(self, state: SpreadCounts) -> Sequence[BlockedDomains]:
        return state.refusals

    def reasons(self, state: SpreadCounts, rows: Rows, codes: CodeColumn) -> Sequence[tuple[str, BoolColumn]]:  # noqa: ARG002
        return (REASON_SKEW, codes == Code.UNSCHEDULABLE), (REASON_LABEL, codes == Code.UNSCHEDULABLE_AND_UNRESOLVABLE)

    # ------------------------------------------------------------------------------------------------------------ score

    def score(self, state: SpreadCounts, rows: Rows) -> ScoreColumn | None:
        """Weighted pods in the domains of each row. Shape (rows,), int64."""
        if not state.soft:
            return None
        ignored = _ignored(state, rows)
        n_scored = rows.n - int(np.count_nonzero(ignored))
        total = np.zeros(rows.n, np.float64)
        for one in state.soft:
            domains = one.topology.column[rows.selection]
            offset = float(one.constraint.max_skew - 1)
            if one.is_by_host:
                pods: NDArray[np.float64] = one.on_node(state.cluster)[rows.selection].astype(np.float64)
                total += np.where(domains >= 0, pods * math.log(n_scored + 2) + offset, 0.0)
                continue
            found = np.bincount(domains[~ignored] + 1, minlength=one.topology.n_domains + 1)
            n_domains, sums = int(np.count_nonzero(found)), one.sums
            empty = one.topology.domain_of("")
            if empty is not None and found[empty + 1]:
                # Where rows without the label count, they are one domain with those whose label is empty.
                n_domains, sums = n_domains - bool(found[0]), sums.copy()
                sums[empty] += one.on_unlabelled(state.cluster)
            by_domain = sums * math.log(n_domains + 2) + offset
            by_domain[-1] = 0.0
            total += by_domain[domains]
        total[ignored] = 0.0
        return _rounded(total)

    def normalize_rows(self, state: SpreadCounts, rows: Rows, raw: ScoreColumn) -> ScoreColumn:
        counted = ~_ignored(state, rows)
        scores = np.zeros(rows.n, np.int64)
        if counted.any():
            low, high = int(raw[counted].min()), int(raw[counted].max())
            scores[counted] = MAX_NODE_SCORE * (high + low - raw[counted]) // high if high else MAX_NODE_SCORE
        return scores

    def groups(self, state: SpreadCounts) -> RowGroups | None:
        return None if state.groups is None else state.groups.groups()

    def score_groups(
        self, state: SpreadCounts, groups: RowGroups, present: Sequence[int], feasible: BoolColumn
    ) -> Sequence[int] | None:
        """As `score` and `normalize_rows` over the feasible rows."""
        return None if state.groups is None else state.groups.scores(groups, present, feasible)

    def registrations(self) -> Sequence[Registration]:
        return pod_topology_spread_hints.registrations(self._defaults)


def _exceeds(one: ConstraintCounts, domains: NDArray[np.int32], rows: Rows) -> BoolColumn:
    """Rows whose domain would be too full with the pod. Shape (rows,)."""
    if not rows.would_be:
        assert one.refusals is not None
        return one.refusals.refused[domains]
    constraint, sums = one.constraint, one.sums
    is_short, lowest = one.n_domains < constraint.min_domains, one.lowest
    pods = sums[domains]
    counts = one.eligible[rows.selection]
    pods = pods + rows.differences(("spread", one.selector), one.moved)[""] * counts
    # What comes to a row's domain may lift it from being the emptiest, or make it so.
    others = _lowest_of_others(sums, one.has_eligible)[domains]
    lowest_then = np.where(counts, np.minimum(others, pods), lowest)
    too_full: BoolColumn = pods + one.own - (0 if is_short else lowest_then) > constraint.max_skew
    return too_full


def _lowest_of_others(sums: NDArray[np.int64], present: BoolColumn) -> NDArray[np.int64]:
    """For each domain the lowest sum among the other present ones. Shape (domains + 1,); the last place is for no domain."""
    candidates = np.where(present, sums[:-1], NO_DOMAIN_MIN)
    if not len(candidates):
        return np.full(1, NO_DOMAIN_MIN, np.int64)
    first = int(candidates.argmin())
    lowest = np.full(len(sums), candidates[first], np.int64)
    candidates[first] = NO_DOMAIN_MIN
    lowest[first] = candidates.min()
    return lowest


def _ignored(state: SpreadCounts, rows: Rows) -> BoolColumn:
    """Rows that are not scored because they lack a key. Shape (rows,)."""
    ignored = np.zeros(rows.n, np.bool_)
    if state.state.needs_all_keys:
        for one in state.soft:
            ignored |= one.topology.column[rows.selection] < 0
    return ignored


def _rounded(total: NDArray[np.float64]) -> ScoreColumn:
    """Halves go up. Adding a half to what lies just below it would round it up as well."""
    whole = np.floor(total)
    whole += (total - whole) >= 0.5
    return whole.astype(np.int64)


def _has_required(pod: Pod) -> bool:
    return pod.spec.affinity.node_affinity.HasField("required_during_scheduling_ignored_during_execution")


def _honors_affinity(constraint: TopologySpreadConstraint) -> bool:
    return (constraint.node_affinity_policy or HONOR) == HONOR


def _honors_taints(constraint: TopologySpreadConstraint) -> bool:
    return constraint.node_taints_policy == HONOR


def _compiled(constraints: Iterable[TopologySpreadConstraint], action: str, labels: Mapping[str, str]) -> tuple[Constraint, ...]:
    return tuple(
        Constraint(
            max_skew=one.max_skew,
            topology_key=one.topology_key,
            min_domains=max(1, one.min_domains),
            conditions=_conditions(one, labels),
            honors_affinity=_honors_affinity(one),
            honors_taints=_honors_taints(one),
        )
        for one in constraints
        if one.when_unsatisfiable == action
    )


def _conditions(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> LabelConditions:
    """The selector, and the pod's own values of matchLabelKeys as far as it has them. Without a selector nothing is counted."""
    found = conditions_of(constraint.label_selector if constraint.HasField("label_selector") else None)
    if found is None:
        return None
    own = tuple(Requirement(key, Operator.IN, frozenset((labels[key],))) for key in constraint.match_label_keys if key in labels)
    return tuple(dict.fromkeys((*own, *found))) if own else found
