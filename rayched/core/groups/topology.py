"""Domains of a topology: parts of the cluster whose nodes have one value of a label, of which a group takes one.

The candidates are the values that hold members already, where there are any; else all of them. Nodes without the label are in no
domain. Each candidate is tried as if its nodes were all there is. Where many could take the group only a share of them is
looked for, as with nodes in a sampled search, and the next search begins behind the last one.

Of those that take the group the one with the most members wins, then the one that is left with the least free room: large domains
stay free for large groups. Equal ones come in the order in which they were tried.

Owner: the GroupCycle. Cost: 1 µs a domain, and for each that is tried 0.1 µs a node and the group's own cycle in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

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


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """The nodes with one value of a label."""

    key: str
    value: str
    rows: RowIndex
    alive: RowIndex
    """Rows of all nodes."""

    @property
    def beyond(self) -> frozenset[int]:
        """Rows of all other nodes. Made when it is asked for: every node may be a domain of its own."""
        return frozenset(np.setdiff1d(self.alive, self.rows, assume_unique=True).tolist())

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
        alive = snapshot.alive.nonzero()[0]
        if column is None or not len(alive):
            return []
        order = column[alive].argsort(kind="stable")
        alike = alive[order]
        # Rows of one domain follow each other, in their own order.
        numbers, starts = np.unique(column[alike], return_index=True)
        ends = (*starts.tolist()[1:], len(alike))
        rows = [row for row in map(snapshot.row_of, holding) if row is not None]
        held = {int(column[row]) for row in rows} - {NO_VALUE}
        parts = zip(numbers.tolist(), starts.tolist(), ends, strict=True)
        there = [part for part in parts if part[0] != NO_VALUE and (not held or part[0] in held)]
        start = self._start % len(there) if there else 0
        return [
            Domain(key, snapshot.label_values[number], alike[first:end], alive)
            for number, first, end in there[start:] + there[:start]
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
