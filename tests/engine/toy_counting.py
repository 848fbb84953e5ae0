"""A counting plugin that refuses domains and scores groups, and the same rules once more over a plain list of pods."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, ScoreColumn
from rayched.snapshot.domains import BlockedDomains, Topology, sums_over
from rayched.snapshot.pod_selection import PodSelector
from rayched.snapshot.row_groups import RowGroups
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.v1.core_pb2 import Node, Pod
from tests.engine.toy_plugins import NO, NaiveCluster

EVERYBODY = (PodSelector(None, ()),)


class Wish(NamedTuple):
    """What a pod says of zones."""

    limit: int
    """No zone may have more pods than this before it; 0: any number."""
    is_shy: bool
    """It prefers zones, and of these nodes, with few pods."""


@dataclass
class ZonesNow:
    """What was counted for one wish."""

    wish: Wish
    topology: Topology
    in_zone: NDArray[np.int64]
    """Pods of each zone; the last place is for nodes without one."""
    on_row: NDArray[np.int64]
    refused: BlockedDomains
    groups: RowGroups
    n_rows: int
    """That have a group."""
    n_bytes: int = 64

    @property
    def revision(self) -> Hashable:
        return self.topology.version, self.in_zone.tobytes(), self.on_row.tobytes()

    @property
    def verdict(self) -> Hashable:
        return self.topology.version, self.refused.refused.tobytes()

    @property
    def adds_nothing(self) -> bool:
        return not self.wish.is_shy or not self.on_row.any()

    def raw(self, domain: int, pods: int) -> int:
        return 3 * int(self.in_zone[domain]) + pods


class Zones:
    """Filter: no more pods in a zone than the label "limit". Score: the fewer pods the better, min-max."""

    name = "Zones"
    reads = Log.LABELS
    reason = "zone is full"

    def key(self, pod: Pod) -> Wish | None:
        wish = Wish(int(pod.metadata.labels.get("limit", "0")), "alone" in pod.metadata.labels)
        return wish if any(wish) else None

    def prepare(self, pod: Pod) -> Any:
        return self.key(pod)

    def count(self, state: Wish, cluster: Snapshot, last: ZonesNow | None) -> ZonesNow:
        topology = cluster.topology("zone")
        on_row = cluster.pod_counts.counter(EVERYBODY).column.astype(np.int64)
        in_zone = sums_over(on_row.astype(np.int32), topology, None)
        refused = BlockedDomains(topology) if last is None or last.refused.topology is not topology else last.refused
        refused.set_all(np.array([*(in_zone[:-1] >= state.limit), False]) & (state.limit > 0))
        n_rows, values = cluster.n_rows, (topology.column.astype(np.int64), on_row)
        groups = None if last is None else last.groups
        if last is None or groups is None or last.n_rows != n_rows or len(groups.ids) != cluster.capacity:
            groups = RowGroups([column[:n_rows] for column in values], cluster.capacity)
        for row in range(n_rows):
            groups.move(row, (int(values[0][row]), int(values[1][row])))
        return ZonesNow(state, topology, in_zone, on_row, refused, groups, n_rows)

    def filter(self, state: ZonesNow, rows: Rows) -> CodeColumn | None:
        if not state.wish.limit:
            return None
        domains = state.topology.column[rows.index]
        there = state.in_zone[domains] + sum(np.asarray(count) for _, count in rows.changes)
        return np.where((domains >= 0) & (there >= state.wish.limit), NO, 0)

    def reasons(self, state: ZonesNow, rows: Rows, codes: CodeColumn) -> Sequence[tuple[str, BoolColumn]]:
        return ((self.reason, codes != 0),)

    def refusals(self, state: ZonesNow) -> Sequence[BlockedDomains]:
        return (state.refused,)

    def score(self, state: ZonesNow, rows: Rows) -> ScoreColumn | None:
        if state.adds_nothing:
            return None
        places = zip(state.topology.column[rows.index].tolist(), state.on_row[rows.index].tolist(), strict=True)
        return np.array([state.raw(*place) for place in places], np.int64)

    def normalize_rows(self, state: ZonesNow, rows: Rows, raw: ScoreColumn) -> ScoreColumn:
        return np.array(stretched(raw.tolist()), np.int64)

    def groups(self, state: ZonesNow) -> RowGroups | None:
        return None if state.adds_nothing else state.groups

    def score_groups(
        self, state: ZonesNow, groups: RowGroups, present: Sequence[int], feasible: BoolColumn
    ) -> Sequence[int] | None:
        if state.adds_nothing:
            return None
        assert set(groups.ids[: len(feasible)][feasible].tolist()) == set(present), "groups with a feasible row, and no others"
        return stretched([state.raw(domain, pods) for domain, pods in (groups.values[group] for group in present)])


class RowsOfZones(Zones):
    """The same without groups and refusals: rows are asked about one by one."""

    refusals: Any = None
    groups: Any = None


def stretched(raw: Sequence[int]) -> list[int]:
    low, high = min(raw), max(raw)
    return [100 * (high - one) // (high - low) if high > low else 100 for one in raw]


class CountingCluster(NaiveCluster):
    """The naive cluster with these rules besides, which come last."""

    weight = 2

    def in_zone_of(self, node: Node) -> int:
        zone = node.metadata.labels.get("zone")
        return sum(len(self.on(name)) for name, other in self.nodes.items() if other.metadata.labels.get("zone") == zone)

    def rejecting(self, pod: Pod, node: Node) -> tuple[str, int, str] | None:
        limit = int(pod.metadata.labels.get("limit", "0"))
        found = super().rejecting(pod, node)
        if found is None and limit and "zone" in node.metadata.labels and self.in_zone_of(node) >= limit:
            return "Zones", NO, Zones.reason
        return found

    def totals(self, pod: Pod) -> dict[str, int]:
        totals = super().totals(pod)
        if totals and "alone" in pod.metadata.labels and any(self.on(name) for name in self.nodes):
            # A node without a zone has nobody beside it but its own pods.
            raw = [
                3 * (self.in_zone_of(self.nodes[name]) if "zone" in self.nodes[name].metadata.labels else 0) + len(self.on(name))
                for name in totals
            ]
            for name, score in zip(totals, stretched(raw), strict=True):
                totals[name] += self.weight * score
        return totals
