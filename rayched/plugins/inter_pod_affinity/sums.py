"""Pods that count, weighted and added up by domain, for each topology key that terms of affinity name.

Owner: whoever counts for one incoming pod. Cost: a look at each sum in use, and 1 µs for each domain that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rayched.snapshot.domains import DomainSums, SumByDomain, Topology
from rayched.snapshot.pod_counts import Counted
from rayched.snapshot.row_counter import RowCounter
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot


class ByKey:
    """Weighted sums by domain for each topology key."""

    __slots__ = ("_added_up", "_parts", "_vectors", "touched")

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[DomainSums, int]]] = {}
        self._vectors: dict[str, SumByDomain] = {}
        self._added_up: list[DomainSums] = []
        """Parts whose counters may be negative."""
        self.touched: dict[str, list[int] | None] = {}
        """For each key whose sums the last `refresh` changed, the domains in question; None: any may be."""

    def __bool__(self) -> bool:
        """Whether any pod counts in any domain."""
        for parts in self._parts.values():
            for part, _ in parts:
                if part.total:
                    return True
        # What is added up may cancel out over all domains.
        return any(part.sums.any() for part in self._added_up)

    @property
    def n_bytes(self) -> int:
        return sum(part.n_bytes for parts in self._parts.values() for part, _ in parts)

    @property
    def keys(self) -> Iterable[str]:
        return self._parts

    def add(self, cluster: Snapshot, key: str, what: Counted, weight: int = 1) -> None:
        self.add_counter(cluster, key, partial(cluster.pod_counts.counter, what), weight)

    def add_counter(
        self, cluster: Snapshot, key: str, source: Callable[[], RowCounter], weight: int, *, adds_up: bool = False
    ) -> None:
        """`source` as of DomainSums; `adds_up`: it may be negative."""
        # The cluster may have let go of the topology since, and another one numbers its domains in another way.
        topology = self.topology(key) if key in self._parts else cluster.topology(key)
        part = DomainSums(source, topology)
        self._parts.setdefault(key, []).append((part, weight))
        if adds_up:
            self._added_up.append(part)

    def refresh(self, *, is_followed: bool) -> bool:
        """Returns whether anything may have changed. Raises AttemptOverBudget.

        `is_followed`: whoever reads has heard of all that the refreshes before changed.
        """
        self.touched = {}
        for key, parts in self._parts.items():
            self.topology(key).refresh()
            changed = not is_followed
            touched: list[int] | None = [] if is_followed else None
            for part, _ in parts:
                if part.refresh():
                    changed = True
                    more = part.touched
                    touched = None if touched is None or more is None else touched + more
            if changed:
                self.touched[key] = touched
                self._follow(key, parts, touched)
        return bool(self.touched)

    def _follow(self, key: str, parts: Sequence[tuple[DomainSums, int]], touched: Sequence[int] | None) -> None:
        if touched is None:
            self._vectors.pop(key, None)
            return
        vector = self._vectors.get(key)
        if vector is not None:
            # Mostly the parts have changed in the same domains.
            for domain in set(touched):
                found = 0
                for part, weight in parts:
                    found += part.sums.item(domain) * weight
                vector[domain] = found

    def topology(self, key: str) -> Topology:
        """That all parts of the key share."""
        return self._parts[key][0][0].topology

    def vector(self, key: str) -> SumByDomain:
        """The sum by domain. Shape (domains + 1,), with 0 in the last place."""
        found = self._vectors.get(key)
        if found is None:
            parts = self._parts[key]
            # Sums are changed in place; what is kept here is no view of them.
            found = parts[0][0].sums * parts[0][1]
            for part, weight in parts[1:]:
                found = found + part.sums * weight
            self._vectors[key] = found
        return found

    def total(self) -> int:
        return sum(part.total for parts in self._parts.values() for part, _ in parts)

    def of_rows(self, key: str, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The sum of each row's domain, and whether it has one. Shapes (rows,)."""
        domains = self.topology(key).column[rows.selection]
        return self.vector(key)[domains], domains >= 0
