"""Domains of a topology: parts of the cluster whose nodes have one value of a label, of which a group takes one.

The candidates are the values that hold members already, where there are any; else all of them. Nodes without the label are in no
domain. Each candidate is tried as if its nodes were all there is. Where many could take the group only a share of them is
looked for, as with nodes in a sampled search, and the next search begins behind the last one.

Of those that take the group the one with the most members wins, then the one that is left with the least free room: large domains
stay free for large groups. Equal ones come in the order in which they were tried.

Owner: the GroupCycle. Cost: 1 µs a node for each domain, and the group's own cycle in each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from rayched.api.resources import CPU, MEMORY
from rayched.snapshot.columns import RowIndex
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.table import NO_VALUE

SHARE_MAX: Final = 100
SHARE_LOST: Final = 90
SHARE_MIN: Final = 5
NODES_FOR_ALL_OF_IT: Final = 5_000
"""The share of domains in percent: it falls by SHARE_LOST on the way to so many nodes, and never below SHARE_MIN."""
ENOUGH_MIN: Final = 4
"""So many domains that take the group are looked for at least."""


class Domain(NamedTuple):
    """The nodes with one value of a label."""

    key: str
    value: str
    rows: RowIndex
    beyond: frozenset[int]
    """Rows of all other nodes."""

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


def n_domains_to_find(n_domains: int, n_nodes: int) -> int:
    """How many domains that take the group are enough among so many."""
    share = max(SHARE_MIN, SHARE_MAX - SHARE_LOST * n_nodes // NODES_FOR_ALL_OF_IT)
    return min(n_domains, max(ENOUGH_MIN, -(-n_domains * share // 100)))


class Domains:
    """Domains of the nodes in a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._start = 0

    def candidates(self, key: str, holding: Iterable[str]) -> list[Domain]:
        """In the order in which they are to be tried. `holding`: names of nodes that members are on."""
        snapshot = self._snapshot
        column = snapshot.labels.get(key)
        if column is None:
            return []
        alive = snapshot.alive.nonzero()[0]
        numbers = column[alive]
        rows = [row for row in map(snapshot.row_of, holding) if row is not None]
        held = {int(column[row]) for row in rows} - {NO_VALUE}
        there = [number for number in np.unique(numbers).tolist() if number != NO_VALUE and (not held or number in held)]
        start = self._start % len(there) if there else 0
        return [
            Domain(key, snapshot.label_values[number], alive[numbers == number], frozenset(alive[numbers != number].tolist()))
            for number in there[start:] + there[:start]
        ]

    def tried(self, count: int) -> None:
        """So many of the candidates were looked at."""
        self._start += count

    def free_share(self, rows: RowIndex) -> float:
        """What is free on these nodes, of CPU and memory together, as a share from 0 to 1."""
        snapshot, shares = self._snapshot, list[float]()
        for name in (CPU, MEMORY):
            place = snapshot.resources.get(name)
            if place is None:
                continue
            total = int(snapshot.allocatable[place, rows].sum())
            if total:
                shares.append(1.0 - int(snapshot.requested[place, rows].sum()) / total)
        return sum(shares) / len(shares) if shares else 0.0
