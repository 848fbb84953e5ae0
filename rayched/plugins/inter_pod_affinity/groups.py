"""Rows that are alike in what InterPodAffinity's score reads of them, as groups.

A row's raw score is a sum over topology keys. A key with few domains, as the zone, gives a group one value: the row's domain. All
keys that have few rows a domain, as the host name, give one value together: what is preferred of the row by them. Most rows have
the same, however many domains there are, and a binding changes it for the few rows of its domain, which move to another group.

Owner: the AffinityCounts of one incoming pod. Cost: 2 µs for each row that moves, and nothing while nobody asks for groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from rayched.framework.plugin import MAX_NODE_SCORE
from rayched.plugins.inter_pod_affinity.sums import ByKey
from rayched.snapshot.change_log import FEW
from rayched.snapshot.row_groups import GROUPS_MAX, RowGroups
from rayched.snapshot.snapshot import Snapshot

ROWS_A_DOMAIN_MAX: Final = 4
"""Keys with more rows a domain are not told apart by what is preferred: too many rows would move at once."""
DOMAINS_MAX: Final = 64
"""All keys that are told apart by their domains have so many together at most."""
SCALED_MAX: Final = 1_024
"""Scores that are kept."""
PAUSE: Final = 256
"""So many times after it was found that there are too many groups nobody looks again."""

_FULL: Final = float(MAX_NODE_SCORE)


class PreferenceGroups:
    """The groups for one set of preferences."""

    __slots__ = ("_bounds", "_cluster", "_coarse", "_fine", "_groups", "_made_of", "_pause", "_preferences", "_scaled")

    def __init__(self, cluster: Snapshot, preferences: ByKey) -> None:
        self._cluster = cluster
        self._preferences = preferences
        self._groups: RowGroups | None = None
        """None: nobody asked since they were made last, or there are none."""
        self._made_of: tuple[int, int] | None = None
        """Rows and capacity of the table as the groups were made."""
        self._coarse: list[str] = []
        """Keys told apart by their domains; a group has a value for each."""
        self._fine: list[str] = []
        """Keys told apart by what is preferred; where there are any, a group's last value is the sum."""
        self._pause = 0
        self._bounds: tuple[int, int] | None = None
        self._scaled: dict[int, int] = {}
        """Scores by what is preferred, between the least and the most that were asked about last."""

    @property
    def n_bytes(self) -> int:
        return 0 if self._groups is None else self._groups.n_bytes

    def follow(self) -> None:
        """The preferences were brought up to date, and say what has changed."""
        groups, preferences = self._groups, self._preferences
        if groups is None:
            return
        moved: set[int] = set()
        fine = self._fine
        for key, touched in preferences.touched.items():
            if touched is None:
                self._groups = None
                return
            if key in fine:
                rows_of = preferences.topology(key).rows_of
                for domain in set(touched):
                    rows = rows_of(domain)
                    assert rows is not None, "a row of it has changed"
                    moved.update(range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist())
        if len(moved) > FEW:
            self._groups = None
            return
        domains = [preferences.topology(key).column for key in self._coarse]
        preferred = [(preferences.topology(key).column, preferences.vector(key)) for key in fine]
        for row in moved:
            total = 0
            for column, vector in preferred:
                total += vector.item(column.item(row))
            groups.move(row, (*[column.item(row) for column in domains], total))

    def groups(self) -> RowGroups | None:
        """None: there are too many. The same object for as long as groups keep their numbers."""
        groups, table = self._groups, self._cluster
        # A row that comes without a label moves in no topology, and has no group yet.
        if groups is not None and (table.n_rows, table.capacity) == self._made_of and len(groups) <= 2 * GROUPS_MAX:
            return groups
        self._groups = None
        if self._pause:
            self._pause -= 1
            return None
        if self._choose_keys():
            made = self._made()
            if len(made) <= GROUPS_MAX:
                self._made_of = table.n_rows, table.capacity
                self._groups = made
                return made
        self._pause = PAUSE
        return None

    def scores(self, groups: RowGroups, present: Sequence[int]) -> Sequence[int]:
        """Of a row of each of these groups, which `groups` gave: 0..100 between the least and the most preferred of them."""
        raw = self.raw_scores(groups, present)
        low, high = min(raw), max(raw)
        if (low, high) != self._bounds or len(self._scaled) > SCALED_MAX:
            self._bounds, self._scaled = (low, high), {}
        scaled = self._scaled
        try:
            return [scaled[one] for one in raw]
        except KeyError:
            # Floats in the order of 1.34: the share first.
            scaled.update({one: int(_FULL * ((one - low) / float(high - low))) if low < high else 0 for one in raw})
        return [scaled[one] for one in raw]

    def raw_scores(self, groups: RowGroups, present: Sequence[int]) -> list[int]:
        """What is preferred of a row of each group."""
        known = groups.values
        values = [known[group] for group in present]
        raw = [group[-1] for group in values] if self._fine else [0] * len(values)
        for place, key in enumerate(self._coarse):
            vector = self._preferences.vector(key)
            raw = [one + vector.item(group[place]) for one, group in zip(raw, values, strict=True)]
        return raw

    def _choose_keys(self) -> bool:
        """Which keys are told apart in which way. False: some can be told apart in neither."""
        self._coarse, self._fine = [], []
        places = DOMAINS_MAX
        topologies = sorted((self._preferences.topology(key) for key in self._preferences.keys), key=lambda one: one.n_domains)
        for topology in topologies:
            if topology.n_domains > FEW and topology.n_domains * ROWS_A_DOMAIN_MAX >= self._cluster.n_rows:
                self._fine.append(topology.key)
            elif topology.n_domains <= places:
                places -= topology.n_domains
                self._coarse.append(topology.key)
            else:
                return False
        return True

    def _made(self) -> RowGroups:
        preferences, n_rows = self._preferences, self._cluster.n_rows
        if not self._fine:
            return self._cluster.domain_groups([preferences.topology(key) for key in self._coarse])
        columns = [preferences.topology(key).column[:n_rows].astype(np.int64) for key in self._coarse]
        preferred = np.zeros(n_rows, np.int64)
        for key in self._fine:
            preferred += preferences.vector(key)[preferences.topology(key).column[:n_rows]]
        return RowGroups([*columns, preferred], self._cluster.capacity)
