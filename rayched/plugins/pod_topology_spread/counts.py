"""What PodTopologySpread compares rows with: pods by domain for each constraint, over the rows that the constraint counts.

Which rows a constraint counts depends on nodes alone, so it is found out anew only when nodes change; sums follow the bindings.

Owner: the engine, by way of the plugin's `count`. Cost: a look at each constraint's sum; where nodes changed, one pass over them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rayched.api.selectors import Requirement
from rayched.plugins.pod_topology_spread.constraint_counts import ConstraintCounts
from rayched.plugins.pod_topology_spread.constraints import Constraint, Spreading, selected, tolerated
from rayched.plugins.pod_topology_spread.groups import SpreadGroups
from rayched.snapshot.columns import BoolColumn, Log
from rayched.snapshot.domains import BlockedDomains
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot


class SpreadCounts:
    """All constraints of one key, hard and soft; brought up to date by `refresh`, read in between."""

    __slots__ = ("_built", "_positions", "_workloads", "cluster", "conditions", "groups", "hard", "revision", "soft", "state")

    def __init__(self, state: Spreading, cluster: Snapshot) -> None:
        self.state = state
        self.cluster = cluster
        self.hard: tuple[ConstraintCounts, ...] = ()
        self.soft: tuple[ConstraintCounts, ...] = ()
        self.groups: SpreadGroups | None = None
        """Rows alike in what soft constraints read of them; None where there is no soft one."""
        self.conditions: tuple[Requirement, ...] = ()
        """What default constraints select; () where they do not hold for the pod."""
        self.revision = 0
        """Grows whenever anything here may say something else."""
        self._workloads = -1
        self._positions = (-1, -1)
        self._built = 0
        """How often nodes, or what default constraints select, have changed."""

    @property
    def n_bytes(self) -> int:
        groups = 0 if self.groups is None else self.groups.n_bytes
        return groups + sum(one.n_bytes for one in (*self.hard, *self.soft))

    def refresh(self, cluster: Snapshot) -> None:
        changed = self._is_stale(cluster)
        if changed:
            self._build(cluster)
            self._built += 1
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
        self.groups = None
        if state.by_default and not self.conditions:
            self.hard = self.soft = ()
            return
        rows = Rows(cluster, slice(0, cluster.n_rows))
        self.hard = self._over(cluster, rows, state.hard, needs_all_keys=True, refuse=True)
        self.soft = self._over(cluster, rows, state.soft, needs_all_keys=state.needs_all_keys, refuse=False)
        if self.soft:
            self.groups = SpreadGroups(cluster, self.soft, needs_all_keys=state.needs_all_keys)

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
