"""What PodTopologySpread compares rows with: pods by domain for each constraint, over the rows that the constraint counts.

Which rows a constraint counts depends on nodes alone, so it is found out anew only when nodes change; sums follow the bindings.

Owner: the engine, by way of the plugin's `count`. Cost: a look at each constraint's sum; where nodes changed, one pass over them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rayched.api.selectors import NodeSelectorMatcher, Requirement
from rayched.api.tolerations import first_untolerated
from rayched.plugins.node_selection import by_selector, with_labels
from rayched.snapshot.change_log import CHANGES_MAX
from rayched.snapshot.columns import BoolColumn, Log
from rayched.snapshot.domains import BlockedDomains, DomainSums, SumByDomain
from rayched.snapshot.moved_pods import Amounts, MovedPods
from rayched.snapshot.pod_counts import PodCounter
from rayched.snapshot.pod_selection import LabelConditions, PodSelector, hold
from rayched.snapshot.row_counter import CountColumn
from rayched.snapshot.row_groups import GROUPS_MAX, RowGroups, Values
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.table import NO_VALUE
from rayched.v1.core_pb2 import Pod, Taint, Toleration

NO_DOMAIN_MIN: Final = 2**31 - 1
"""The minimum over no domains at all: nothing is out of balance then."""
HOSTNAME: Final = "kubernetes.io/hostname"


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

    __slots__ = (
        "_emptiest",
        "_highest",
        "_sums",
        "constraint",
        "eligible",
        "has_eligible",
        "lowest",
        "n_domains",
        "own",
        "refusals",
        "selector",
        "topology",
    )

    def __init__(
        self,
        constraint: Constraint,
        conditions: LabelConditions,
        state: Spreading,
        cluster: Snapshot,
        eligible: BoolColumn,
        *,
        refuses: bool,
    ) -> None:
        """`eligible` are the rows that count. Shape (n_rows,). `refuses`: the constraint is a hard one."""
        self.constraint = constraint
        self.selector = PodSelector(frozenset((state.namespace,)), conditions, terminating=False)
        self.own = int(hold(conditions, state.labels))
        """1 where the incoming pod counts itself."""
        self.topology = cluster.topology(constraint.topology_key)
        self.eligible = eligible
        present = np.bincount(self.topology.column[: len(eligible)][eligible] + 1, minlength=self.topology.n_domains + 1)
        self.has_eligible: BoolColumn = present[1:] > 0
        """Domains with a row that counts. Shape (domains,)."""
        self.n_domains = int(np.count_nonzero(present[1:]))
        """How many of them there are."""
        self._sums: DomainSums | None = None
        if conditions:
            self._sums = DomainSums(partial(cluster.pod_counts.counter, (self.selector,)), self.topology, eligible)
        self.lowest = 0
        """Pods in the emptiest domain; 0 while there are too few domains. Of a hard constraint alone, as the next two."""
        self._emptiest = -1
        """One of the emptiest domains."""
        self._highest = -1
        """More pods than this are too many in a domain."""
        self.refusals = BlockedDomains(self.topology) if refuses else None
        """Domains that would be too full with the incoming pod."""
        if refuses and self._sums is None:
            self._refuse_anew()

    @property
    def is_by_host(self) -> bool:
        """Scores look at the pods of the row itself."""
        return self.constraint.topology_key == HOSTNAME

    @property
    def n_bytes(self) -> int:
        return self.eligible.nbytes + self.has_eligible.nbytes + (self._sums.n_bytes if self._sums is not None else 0)

    @property
    def sums(self) -> SumByDomain:
        """Pods by domain. Shape (domains + 1,)."""
        return np.zeros(self.topology.n_domains + 1, np.int64) if self._sums is None else self._sums.sums

    def refresh(self) -> bool:
        """Returns whether anything may have changed."""
        if self._sums is None or not self._sums.refresh():
            return False
        if self.refusals is not None:
            touched = self._sums.touched
            if touched is None or not self._is_lowest_known(touched):
                self._refuse_anew()
            else:
                sums = self._sums.sums
                for domain in touched:
                    self.refusals.set(domain, sums.item(domain) > self._highest)
        return True

    def _is_lowest_known(self, touched: Sequence[int]) -> bool:
        """Whether the emptiest domain is what it was, after the sums of these have changed."""
        if self._emptiest < 0:
            return True
        sums = self.sums
        if sums.item(self._emptiest) != self.lowest:
            return False
        return all(sums.item(domain) >= self.lowest or not self.has_eligible.item(domain) for domain in touched)

    def _refuse_anew(self) -> None:
        assert self.refusals is not None
        sums = self.sums
        self._emptiest = -1
        if self.n_domains < self.constraint.min_domains:
            self.lowest = 0
        elif self.n_domains:
            candidates = sums[:-1]
            if self.n_domains < len(candidates):
                candidates = np.where(self.has_eligible, candidates, NO_DOMAIN_MIN)
            self._emptiest = int(candidates.argmin())
            self.lowest = candidates.item(self._emptiest)
        else:
            self.lowest = NO_DOMAIN_MIN
        self._highest = self.constraint.max_skew - self.own + self.lowest
        refused: BoolColumn = sums > self._highest
        # A row without the label is none of those that the constraint is about.
        refused[-1] = True
        self.refusals.set_all(refused)

    def moved(self, moved: MovedPods) -> Mapping[str, Amounts]:
        """Pods that the constraint counts."""
        return {"": moved.selected((self.selector,)).astype(np.int64)}

    def on_node(self, cluster: Snapshot) -> CountColumn:
        """Pods on each row, whichever rows count. Shape (capacity,)."""
        if not self.selector.conditions:
            return np.zeros(cluster.capacity, np.int32)
        return cluster.pod_counts.counter((self.selector,)).column

    def on_unlabelled(self, cluster: Snapshot) -> int:
        """Pods on rows that count and lack the key."""
        counts = self.eligible & (self.topology.column[: len(self.eligible)] < 0)
        return int(self.on_node(cluster)[: len(counts)][counts].sum())


class ScoreFrame(NamedTuple):
    """What scores of groups depend on besides the pods: which groups have a feasible row."""

    values: Sequence[Values]
    """Of the groups that have one."""
    scored: Sequence[bool]
    """Whether they have all keys that they need."""
    lacking: Sequence[int]
    """Groups that have not."""
    domains: Mapping[int, tuple[float, int | None]]
    """By the place of a constraint that is not by host: the weight of its pods, and the domain that rows without a label join."""


class SpreadCounts:
    """All constraints of one key, hard and soft; brought up to date by `refresh`, read in between."""

    __slots__ = (
        "_built",
        "_followed",
        "_frame",
        "_groups",
        "_positions",
        "_workloads",
        "cluster",
        "conditions",
        "hard",
        "places",
        "revision",
        "soft",
        "state",
    )

    def __init__(self, state: Spreading, cluster: Snapshot) -> None:
        self.state = state
        self.cluster = cluster
        self.hard: tuple[ConstraintCounts, ...] = ()
        self.soft: tuple[ConstraintCounts, ...] = ()
        self.conditions: tuple[Requirement, ...] = ()
        """What default constraints select; () where they do not hold for the pod."""
        self.revision = 0
        """Grows whenever anything here may say something else."""
        self._workloads = -1
        self._positions = (-1, -1)
        self._built = 0
        """How often nodes, or what default constraints select, have changed."""
        self.places: Sequence[int] = ()
        """Where each soft constraint's values begin among those of a group."""
        self._frame: tuple[RowGroups, int, Sequence[int], ScoreFrame] | None = None
        """The last one, and for which groups that have a feasible row."""
        self._groups: RowGroups | None = None
        self._followed: list[tuple[ConstraintCounts, PodCounter, int]] = []
        """Constraints whose pods on the row are one of the groups' values: their counters and positions in the counters' logs."""

    @property
    def n_bytes(self) -> int:
        groups = 0 if self._groups is None else self._groups.n_bytes
        return groups + sum(one.n_bytes for one in (*self.hard, *self.soft))

    def refresh(self, cluster: Snapshot) -> None:
        changed = self._is_stale(cluster)
        if changed:
            self._build(cluster)
            self._groups = self._frame = None
            self._built += 1
            self.places = list(accumulate((2 if one.is_by_host else 1 for one in self.soft), initial=0))[:-1]
        for one in (*self.hard, *self.soft):
            changed |= one.refresh()
        self.revision += changed

    @property
    def adds_nothing(self) -> bool:
        return not self.soft

    @property
    def verdict(self) -> Hashable:
        """Which domains are too full, and for which nodes."""
        return self._built, tuple(one.log.end for one in self.refusals)

    @property
    def refusals(self) -> tuple[BlockedDomains, ...]:
        return tuple(one.refusals for one in self.hard if one.refusals is not None)

    def groups(self) -> RowGroups | None:
        """Rows alike in what soft constraints read of them; None: they are too many to be worth it.

        The values of a group: for a constraint by host whether the row has a host name, and its pods; for others the domain.
        """
        if self._groups is None or len(self._groups.ids) != self.cluster.capacity or not self._follow():
            self._groups = self._grouped()
        if len(self._groups) > 2 * GROUPS_MAX:
            # Some may be without rows by now.
            self._groups = self._grouped()
        return self._groups if len(self._groups) <= 2 * GROUPS_MAX else None

    def frame(self, groups: RowGroups, present: Sequence[int]) -> ScoreFrame:
        """For groups of which these have a feasible row."""
        last = self._frame
        if last is not None and last[0] is groups and last[1] == self._built and last[2] == present:
            return last[3]
        values = [groups.values[group] for group in present]
        scored = [True] * len(values)
        if self.state.needs_all_keys:
            scored = [all(group[place] >= 0 for place in self.places) for group in values]
        domains: dict[int, tuple[float, int | None]] = {}
        for one, place in zip(self.soft, self.places, strict=True):
            if not one.is_by_host:
                there = {group[place] for group, found in zip(values, scored, strict=True) if found}
                empty = one.topology.domain_of("")
                empty = empty if empty in there else None
                # Rows without the label, where they count, and those whose label is empty are one domain.
                n_domains = len(there) - (empty is not None and NO_VALUE in there)
                domains[place] = math.log(n_domains + 2), empty
        lacking = [group for group, found in zip(present, scored, strict=True) if not found]
        frame = ScoreFrame(values, scored, lacking, domains)
        self._frame = groups, self._built, list(present), frame
        return frame

    def _grouped(self) -> RowGroups:
        n_rows = self.cluster.n_rows
        if not any(one.is_by_host for one in self.soft):
            return self.cluster.domain_groups([one.topology for one in self.soft])
        columns: list[NDArray[np.int64]] = []
        self._followed = []
        for one in self.soft:
            domains = one.topology.column[:n_rows].astype(np.int64)
            if one.is_by_host:
                columns += [np.minimum(domains, 0), one.on_node(self.cluster)[:n_rows].astype(np.int64)]
                if one.selector.conditions:
                    counter = self.cluster.pod_counts.counter((one.selector,))
                    self._followed.append((one, counter, counter.log.end))
            else:
                columns.append(domains)
        return RowGroups(columns, self.cluster.capacity)

    def _follow(self) -> bool:
        """Move the rows whose pods have changed. False: that is not known of all."""
        groups = self._groups
        if groups is None:
            return False
        changed: set[int] = set()
        counters = {one: counter for one, counter, _ in self._followed}
        for place, (one, counter, position) in enumerate(self._followed):
            entries = counter.log.since(position)
            if not counter.is_kept or entries is None or len(entries) > CHANGES_MAX:
                return False
            counter.is_used = True
            if entries:
                changed.update(entry if entry >= 0 else ~entry for entry in entries)
                self._followed[place] = one, counter, counter.log.end
        for row in changed:
            values: list[int] = []
            for one in self.soft:
                domain = one.topology.column.item(row)
                if one.is_by_host:
                    pods = counters[one].column.item(row) if one in counters else 0
                    values += [min(domain, 0), pods]
                else:
                    values.append(domain)
            groups.move(row, tuple(values))
        return True

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
        self.hard = self._over(cluster, rows, state.hard, needs_all_keys=True, refuse=True)
        self.soft = self._over(cluster, rows, state.soft, needs_all_keys=state.needs_all_keys, refuse=False)

    def _over(
        self, cluster: Snapshot, rows: Rows, constraints: Sequence[Constraint], *, needs_all_keys: bool, refuse: bool
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
            found.append(ConstraintCounts(constraint, conditions, self.state, cluster, eligible, refuses=refuse))
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
