"""What PodTopologySpread compares rows with: pods by domain for each constraint, over the rows that the constraint counts.

Which rows a constraint counts depends on nodes alone, so it is found out anew only when nodes change; sums follow the bindings.

Owner: the engine, by way of the plugin's `count`. Cost: a look at each constraint's sum; where nodes changed, one pass over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rayched.api.selectors import NodeSelectorMatcher, Requirement
from rayched.api.tolerations import first_untolerated
from rayched.plugins.node_selection import by_selector, with_labels
from rayched.snapshot.columns import BoolColumn, Log
from rayched.snapshot.domains import DomainSums, SumByDomain, Topology
from rayched.snapshot.pod_counts import CountColumn
from rayched.snapshot.pod_selection import LabelConditions, PodSelector, hold
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.v1.core_pb2 import Pod, Taint, Toleration

NO_DOMAIN_MIN: Final = 2**31 - 1
"""The minimum over no domains at all: nothing is out of balance then."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint, its selector compiled."""

    max_skew: int
    topology_key: str
    min_domains: int
    conditions: LabelConditions
    """None: nothing is selected. () selects every pod; none of those that are bound counts, though."""
    honors_affinity: bool
    honors_taints: bool


@dataclass(frozen=True, slots=True)
class Spreading:
    """What of the incoming pod decides."""

    pod: Pod
    namespace: str
    labels: Mapping[str, str]
    hard: tuple[Constraint, ...]
    soft: tuple[Constraint, ...]
    by_default: bool
    """The constraints are the profile's; what they select, the pod's Services and its owner say."""
    needs_all_keys: bool
    """In scores, a row that lacks one of the soft constraints' keys gets nothing at all."""
    node_labels: Mapping[str, str]
    node_selector: NodeSelectorMatcher | None
    tolerations: tuple[Toleration, ...]


class ConstraintCounts:
    """One constraint over one cluster."""

    __slots__ = ("_sums", "constraint", "eligible", "has_eligible", "own", "selector", "topology")

    def __init__(
        self, constraint: Constraint, conditions: LabelConditions, state: Spreading, cluster: Snapshot, eligible: BoolColumn
    ) -> None:
        """`eligible` are the rows that count. Shape (n_rows,)."""
        self.constraint = constraint
        self.selector = PodSelector(frozenset((state.namespace,)), conditions, terminating=False)
        self.own = int(hold(conditions, state.labels))
        """1 where the incoming pod counts itself."""
        self.topology = cluster.topology(constraint.topology_key)
        self.eligible = eligible
        present = np.bincount(self.topology.column[: len(eligible)][eligible] + 1, minlength=self.topology.n_domains + 1)
        self.has_eligible: BoolColumn = present[1:] > 0
        """Domains with a row that counts. Shape (domains,)."""
        self._sums: DomainSums | None = None
        if conditions:
            self._sums = DomainSums(cluster.pod_counts, (self.selector,), self.topology, eligible)

    @property
    def n_bytes(self) -> int:
        return self.eligible.nbytes + self.has_eligible.nbytes + (self._sums.n_bytes if self._sums is not None else 0)

    @property
    def sums(self) -> SumByDomain:
        """Pods by domain. Shape (domains + 1,)."""
        return np.zeros(self.topology.n_domains + 1, np.int64) if self._sums is None else self._sums.sums

    @property
    def n_domains(self) -> int:
        return int(np.count_nonzero(self.has_eligible))

    def refresh(self) -> None:
        if self._sums is not None:
            self._sums.refresh()

    def on_node(self, cluster: Snapshot) -> CountColumn:
        """Pods on each row, whichever rows count. Shape (capacity,)."""
        if not self.selector.conditions:
            return np.zeros(cluster.capacity, np.int32)
        return cluster.pod_counts.counter((self.selector,)).column

    def on_unlabelled(self, cluster: Snapshot) -> int:
        """Pods on rows that count and lack the key."""
        counts = self.eligible & (self.topology.column[: len(self.eligible)] < 0)
        return int(self.on_node(cluster)[: len(counts)][counts].sum())


class SpreadCounts:
    """All constraints of one key, hard and soft; brought up to date by `refresh`, read in between."""

    __slots__ = ("_positions", "_topologies", "_workloads", "cluster", "conditions", "hard", "soft", "state")

    def __init__(self, state: Spreading, cluster: Snapshot) -> None:
        self.state = state
        self.cluster = cluster
        self.hard: tuple[ConstraintCounts, ...] = ()
        self.soft: tuple[ConstraintCounts, ...] = ()
        self.conditions: tuple[Requirement, ...] = ()
        """What default constraints select; () where they do not hold for the pod."""
        self._workloads = -1
        self._positions = (-1, -1)
        self._topologies: tuple[Topology, ...] = ()

    @property
    def n_bytes(self) -> int:
        return sum(one.n_bytes for one in (*self.hard, *self.soft))

    def refresh(self, cluster: Snapshot) -> None:
        if self._is_stale(cluster):
            self._build(cluster)
        for one in (*self.hard, *self.soft):
            one.refresh()

    def _is_stale(self, cluster: Snapshot) -> bool:
        """Whether nodes, or what default constraints select, have changed."""
        positions = cluster.logs[Log.LABELS].end, cluster.logs[Log.TAINTS].end
        stale = positions != self._positions
        self._positions = positions
        if self.state.by_default and self._workloads != cluster.surroundings.workloads_revision:
            self._workloads = cluster.surroundings.workloads_revision
            conditions = cluster.surroundings.siblings_of(self.state.pod)
            stale = stale or conditions != self.conditions
            self.conditions = conditions
        return stale

    def _build(self, cluster: Snapshot) -> None:
        state = self.state
        if state.by_default and not self.conditions:
            self.hard = self.soft = ()
            return
        rows = Rows(cluster, slice(0, cluster.n_rows))
        self.hard = self._over(cluster, rows, state.hard, needs_all_keys=True)
        self.soft = self._over(cluster, rows, state.soft, needs_all_keys=state.needs_all_keys)

    def _over(
        self, cluster: Snapshot, rows: Rows, constraints: Sequence[Constraint], *, needs_all_keys: bool
    ) -> tuple[ConstraintCounts, ...]:
        there: BoolColumn = rows.alive.copy()
        if needs_all_keys:
            for constraint in constraints:
                there &= rows.label(constraint.topology_key) >= 0
        found = []
        for constraint in constraints:
            eligible = there
            if constraint.honors_affinity:
                eligible = eligible & selected(self.state, rows)
            if constraint.honors_taints:
                eligible = eligible & tolerated(self.state, rows)
            conditions = self.conditions if self.state.by_default else constraint.conditions
            found.append(ConstraintCounts(constraint, conditions, self.state, cluster, eligible))
        return tuple(found)


def selected(state: Spreading, rows: Rows) -> BoolColumn:
    """Rows that the pod's node selector and required node affinity select. Shape (rows,)."""
    found = with_labels(state.node_labels, rows)
    return found if state.node_selector is None else found & by_selector(state.node_selector, rows)


def tolerated(state: Spreading, rows: Rows) -> BoolColumn:
    """Rows without a taint that would keep the pod off. Shape (rows,)."""
    sets: Sequence[Sequence[Taint]] = rows.snapshot.taint_sets
    passing: NDArray[np.bool_] = np.zeros(len(sets) + 1, np.bool_)
    for number in np.unique(rows.taint_set).tolist():
        if number >= 0:
            passing[number] = first_untolerated(state.tolerations, sets[number]) is None
    return passing[rows.taint_set]
