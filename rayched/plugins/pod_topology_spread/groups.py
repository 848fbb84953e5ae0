"""Rows that are alike in what PodTopologySpread's score reads of them, as groups, and what these are scored.

The values of a group are for a constraint by host whether the row has a host name, and the pods on it; for others the domain.

Owner: the SpreadCounts of one key, for as long as nodes and constraints stay what they are. Cost: 2 µs for each row whose pods
have changed, 1 µs for each group that is scored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rayched.framework.plugin import MAX_NODE_SCORE
from rayched.plugins.pod_topology_spread.constraint_counts import ConstraintCounts
from rayched.snapshot.change_log import CHANGES_MAX
from rayched.snapshot.columns import BoolColumn
from rayched.snapshot.pod_counts import PodCounter
from rayched.snapshot.row_groups import GROUPS_MAX, RowGroups, Values
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.table import NO_VALUE


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


class SpreadGroups:
    """The groups for soft constraints, of which there is one at least."""

    __slots__ = ("_cluster", "_followed", "_frame", "_groups", "_needs_all_keys", "_places", "_soft")

    def __init__(self, cluster: Snapshot, soft: Sequence[ConstraintCounts], *, needs_all_keys: bool) -> None:
        """`needs_all_keys`: a row that lacks one of the constraints' keys gets nothing at all."""
        self._cluster = cluster
        self._soft = soft
        self._needs_all_keys = needs_all_keys
        self._places = list(accumulate((2 if one.is_by_host else 1 for one in soft), initial=0))[:-1]
        """Where each constraint's values begin among those of a group."""
        self._groups: RowGroups | None = None
        self._followed: list[tuple[ConstraintCounts, PodCounter, int]] = []
        """Constraints whose pods on the row are one of the groups' values: their counters and positions in the counters' logs."""
        self._frame: tuple[RowGroups, Sequence[int], ScoreFrame] | None = None
        """The last one, and for which groups that have a feasible row."""

    @property
    def n_bytes(self) -> int:
        return 0 if self._groups is None else self._groups.n_bytes

    def groups(self) -> RowGroups | None:
        """None: they are too many to be worth it. The same object for as long as groups keep their numbers."""
        groups = self._groups
        # Of very many some may be without rows by now.
        if groups is None or not self._follow(groups) or len(groups) > 2 * GROUPS_MAX:
            groups = self._groups = self._grouped()
        return groups if len(groups) <= 2 * GROUPS_MAX else None

    def scores(self, groups: RowGroups, present: Sequence[int], feasible: BoolColumn) -> Sequence[int]:
        """Of a row of each of these groups, which `groups` gave and which have a feasible row: 0..100, more for fewer pods.

        `feasible` has the shape (n_rows,).
        """
        frame = self._framed(groups, present)
        raw = [math.floor(one) + (one - math.floor(one) >= 0.5) for one in self._weighted_pods(groups, frame, feasible)]
        counted = [one for one, scored in zip(raw, frame.scored, strict=True) if scored]
        if not counted:
            return [0] * len(raw)
        low, high = min(counted), max(counted)
        return [
            0 if not scored else MAX_NODE_SCORE * (high + low - one) // high if high else MAX_NODE_SCORE
            for one, scored in zip(raw, frame.scored, strict=True)
        ]

    def _weighted_pods(self, groups: RowGroups, frame: ScoreFrame, feasible: BoolColumn) -> Sequence[float]:
        """Of each group of the frame."""
        total = [0.0] * len(frame.values)
        for one, place in zip(self._soft, self._places, strict=True):
            offset = float(one.constraint.max_skew - 1)
            if one.is_by_host:
                counted = feasible
                if frame.lacking:
                    counted = feasible & ~np.isin(groups.ids[: len(feasible)], frame.lacking)
                weight = math.log(int(np.count_nonzero(counted)) + 2)
                for i, group in enumerate(frame.values):
                    if group[place] >= 0:
                        total[i] += group[place + 1] * weight + offset
            else:
                weight, empty = frame.domains[place]
                # Where rows without the label count, they are one domain with those whose label is empty.
                joined = 0 if empty is None else one.on_unlabelled(self._cluster)
                pods_in = one.sums.item
                for i, group in enumerate(frame.values):
                    domain = group[place]
                    if domain >= 0:
                        pods = pods_in(domain)
                        total[i] += (pods + joined if domain == empty else pods) * weight + offset
        return total

    def _framed(self, groups: RowGroups, present: Sequence[int]) -> ScoreFrame:
        last = self._frame
        if last is not None and last[0] is groups and last[1] == present:
            return last[2]
        values = [groups.values[group] for group in present]
        scored = [not self._needs_all_keys or all(group[place] >= 0 for place in self._places) for group in values]
        domains: dict[int, tuple[float, int | None]] = {}
        for one, place in zip(self._soft, self._places, strict=True):
            if not one.is_by_host:
                there = {group[place] for group, found in zip(values, scored, strict=True) if found}
                empty = one.topology.domain_of("")
                empty = empty if empty in there else None
                # Rows without the label, where they count, and those whose label is empty are one domain.
                n_domains = len(there) - (empty is not None and NO_VALUE in there)
                domains[place] = math.log(n_domains + 2), empty
        lacking = [group for group, found in zip(present, scored, strict=True) if not found]
        frame = ScoreFrame(values, scored, lacking, domains)
        self._frame = groups, list(present), frame
        return frame

    def _grouped(self) -> RowGroups:
        n_rows = self._cluster.n_rows
        if not any(one.is_by_host for one in self._soft):
            return self._cluster.domain_groups([one.topology for one in self._soft])
        columns: list[NDArray[np.int64]] = []
        self._followed = []
        for one in self._soft:
            domains = one.topology.column[:n_rows].astype(np.int64)
            if one.is_by_host:
                columns += [np.minimum(domains, 0), one.on_node(self._cluster)[:n_rows].astype(np.int64)]
                if one.selector.conditions:
                    counter = self._cluster.pod_counts.counter((one.selector,))
                    self._followed.append((one, counter, counter.log.end))
            else:
                columns.append(domains)
        return RowGroups(columns, self._cluster.capacity)

    def _follow(self, groups: RowGroups) -> bool:
        """Move the rows whose pods have changed. False: that is not known of all."""
        changed: set[int] = set()
        counters = {one: counter for one, counter, _ in self._followed}
        for place, (one, counter, position) in enumerate(self._followed):
            entries = counter.log.since(position)
            if not counter.is_kept or entries is None or len(entries) > CHANGES_MAX:
                return False
            counter.is_used = True
            changed.update(entry if entry >= 0 else ~entry for entry in entries)
            self._followed[place] = one, counter, counter.log.end
        for row in changed:
            values: list[int] = []
            for one in self._soft:
                domain = one.topology.column.item(row)
                if one.is_by_host:
                    pods = counters[one].column.item(row) if one in counters else 0
                    values += [min(domain, 0), pods]
                else:
                    values.append(domain)
            groups.move(row, tuple(values))
        return True
