"""Domains: rows grouped by the value of a label, and counters added up over them.

A `Topology` numbers the values of one label key 0, 1, 2, ... in the order in which they were first seen, and knows each row's
domain; a row without the label has -1. `DomainSums` adds a counter up over each domain, and follows the counter's log, so that a
binding changes one number. Arrays by domain have one more place at their end, which -1 reads and which holds nothing.
`BlockedDomains` say which domains are out of the question, and log those that come to be so or no longer are.

Owner: topologies belong to one Snapshot, sums and refusals to whoever made them. Cost: one pass over the rows where the label
changed anywhere or more rows changed than that is worth; else 0.2 µs for each change of the counter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rayched.snapshot.change_log import CHANGES_MAX, ChangeLog
from rayched.snapshot.columns import BoolColumn, IdColumn, Log, RowIndex
from rayched.snapshot.row_counter import RowCounter
from rayched.snapshot.rows import Selection, compact
from rayched.snapshot.table import NO_VALUE, NodeTable

SPARE_DOMAINS: Final = 64
"""Domains without a row that may stay, besides as many as there are rows, before domains are numbered anew."""

SumByDomain = NDArray[np.int64]
"""Shape (domains + 1,); the last place holds 0."""


class Topology:
    """Which domain of one topology key each row belongs to."""

    __slots__ = ("_ids", "_order", "_ordered", "_position", "_starts", "_table", "column", "key", "n_domains", "version")

    def __init__(self, table: NodeTable, key: str) -> None:
        self.key = key
        self.column: IdColumn = np.full(0, NO_VALUE, np.int32)
        """Shape (capacity,); -1 where a row lacks the label."""
        self.n_domains = 0
        """Domains numbered so far, also those that have no row any more."""
        self.version = 0
        """Grows whenever any row moves to another domain."""
        self._table = table
        self._ids: dict[int, int] = {}
        """Number of the label's value to number of the domain."""
        self._position = -1
        self._ordered = -1
        """The version for which rows were put in the order of their domains."""
        self._order: RowIndex = np.zeros(0, np.intp)
        self._starts: RowIndex = np.zeros(1, np.intp)

    def refresh(self) -> None:
        """Follow the nodes' labels."""
        table = self._table
        log = table.logs[Log.LABELS]
        if self._position == log.end and len(self.column) == table.capacity:
            return
        rows = log.since(self._position) if self._position >= 0 else None
        values = table.labels.get(self.key)
        is_crowded = len(self._ids) > 2 * table.n_rows + SPARE_DOMAINS
        if rows is None or len(self.column) != table.capacity or len(rows) > table.n_rows or is_crowded:
            self._rebuild(values)
        else:
            for row in set(rows):
                value = NO_VALUE if values is None else values.item(row)
                domain = NO_VALUE if value == NO_VALUE else self._ids.setdefault(value, len(self._ids))
                if self.column.item(row) != domain:
                    self.column[row] = domain
                    self.version += 1
            self.n_domains = len(self._ids)
        self._position = log.end

    def domain_of(self, value: str) -> int | None:
        """The number of a value's domain; None where no row has had that value."""
        number = self._table.label_value_id(value)
        return None if number is None else self._ids.get(number)

    def rows_of(self, domain: int) -> Selection | None:
        """The rows of a domain, -1 for those without one; None where there are none."""
        if self._ordered != self.version:
            self._order = self.column.argsort(kind="stable")
            self._starts = np.searchsorted(self.column[self._order], np.arange(NO_VALUE, self.n_domains + 1))
            self._ordered = self.version
        place = domain - NO_VALUE
        first, end = self._starts.item(place), self._starts.item(place + 1)
        return compact(self._order[first:end]) if end > first else None

    def _rebuild(self, values: IdColumn | None) -> None:
        self.version += 1
        self.column = np.full(self._table.capacity, NO_VALUE, np.int32)
        self._ids = {}
        if values is not None:
            there = values >= 0
            found, domains = np.unique(values[there], return_inverse=True)
            self.column[there] = domains
            self._ids = {value: domain for domain, value in enumerate(found.tolist())}
        self.n_domains = len(self._ids)


class DomainSums:
    """A counter added up over the domains of a topology, over all rows or over those that are eligible."""

    __slots__ = ("_counter", "_eligible", "_position", "_source", "_topology", "_version", "sums", "total", "touched")

    def __init__(self, source: Callable[[], RowCounter], topology: Topology, eligible: BoolColumn | None = None) -> None:
        """`source` gives the counter, at first and whenever it is no longer kept.

        `eligible` has the shape (n_rows,), as of the topology's version now; None: all rows.
        """
        self.sums: SumByDomain = np.zeros(1, np.int64)
        self.total = 0
        """Over all domains."""
        self.touched: list[int] | None = None
        """Domains of which the last `refresh` that returned True changed the sum, with repetitions; None: any may have."""
        self._source = source
        self._topology = topology
        self._eligible = eligible
        self._counter: RowCounter | None = None
        self._version = -1
        self._position = 0

    @property
    def topology(self) -> Topology:
        return self._topology

    @property
    def n_bytes(self) -> int:
        return self.sums.nbytes

    def refresh(self) -> bool:
        """Follow the counter and the topology, which is refreshed already. Returns whether anything may have changed."""
        counter, topology = self._counter, self._topology
        if counter is None or not counter.is_kept:
            counter = self._source()
        counter.is_used = True
        log = counter.log
        if counter is self._counter and topology.version == self._version and self._position == log.end:
            return False
        if counter is not self._counter or topology.version != self._version:
            self._rebuild(counter)
        else:
            changes = log.since(self._position)
            if changes is None or len(changes) > CHANGES_MAX:
                self._rebuild(counter)
            else:
                self._follow(changes)
        self._counter, self._version, self._position = counter, topology.version, log.end
        return True

    def _follow(self, changes: list[int]) -> None:
        column, eligible, sums = self._topology.column, self._eligible, self.sums
        touched = self.touched = []
        for entry in changes:
            row, change = (entry, 1) if entry >= 0 else (~entry, -1)
            domain = column.item(row)
            if domain >= 0 and (eligible is None or (row < len(eligible) and eligible.item(row))):
                sums[domain] += change
                self.total += change
                touched.append(domain)

    def _rebuild(self, counter: RowCounter) -> None:
        self.sums = sums_over(counter.column, self._topology, self._eligible)
        self.total = int(self.sums.sum())
        self.touched = None


class BlockedDomains:
    """Which domains of a topology are out of the question."""

    __slots__ = ("log", "n_refused", "refused", "topology")

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.refused: BoolColumn = np.zeros(0, np.bool_)
        """Shape (domains + 1,); the last place is for rows without a domain."""
        self.n_refused = 0
        """Places that are refused."""
        self.log = ChangeLog(CHANGES_MAX)
        """Domains that changed."""

    def set(self, domain: int, refused: bool) -> None:
        if self.refused.item(domain) is not refused:
            self.refused[domain] = refused
            self.n_refused += 1 if refused else -1
            self.log.append(domain)

    def set_all(self, refused: BoolColumn) -> None:
        """Shape (domains + 1,); from now on the array is this object's own."""
        if len(refused) != len(self.refused):
            self.log.cut()
        else:
            changed = (refused != self.refused).nonzero()[0]
            if not len(changed):
                return
            if len(changed) > CHANGES_MAX:
                self.log.cut()
            else:
                last = len(refused) - 1
                for domain in changed.tolist():
                    self.log.append(NO_VALUE if domain == last else domain)
        self.refused = refused
        self.n_refused = int(np.count_nonzero(refused))


def sums_over(column: NDArray[np.int32], topology: Topology, eligible: BoolColumn | None) -> SumByDomain:
    """A column added up over each domain, over eligible rows alone. Shape (domains + 1,)."""
    n = len(topology.column) if eligible is None else len(eligible)
    domains, values = topology.column[:n], column[:n]
    if eligible is not None:
        domains, values = domains[eligible], values[eligible]
    sums = np.bincount(domains + 1, weights=values, minlength=topology.n_domains + 1).astype(np.int64)
    # bincount takes no -1: everything stands one place further, and what has no domain comes first.
    sums = np.roll(sums, -1)
    sums[-1] = 0
    return sums
