"""Rows: what a plugin sees of the cluster, for any set of rows.

The selection is a slice of row numbers (columns are views, nothing is copied) or an array of them (columns are gathered on first
use and kept). All columns have the length `n` of the selection, in its order. Rows are read-only and short-lived: made for one
evaluation, void after any change of the table.

Source: fwk.NodeInfo of kube-scheduler 1.34, turned by 90 degrees.
Cost: with a slice about 0.2 µs a column; with an array one gather a column.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeAlias

import numpy as np

from rayched.snapshot.columns import BoolColumn, IdColumn, ResourceTable, RowIndex, ScoreColumn
from rayched.snapshot.moved_pods import Amounts, Differences, MovedPods
from rayched.snapshot.table import NO_VALUE, NodeTable
from rayched.snapshot.templates import PodTemplate
from rayched.snapshot.wide_sums import added

Selection = slice | RowIndex
"""A slice with start and stop (and no step), or row numbers."""

PodsChange: TypeAlias = tuple[PodTemplate, int | ScoreColumn]
"""A template, and how many pods of it come to each row (go, where negative): one number, or one a row."""


def compact(rows: RowIndex) -> Selection:
    """Ascending row numbers, one at least, as a slice where none is missing between them: that saves copying columns."""
    first, last = rows.item(0), rows.item(-1)
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows


class Rows:
    """Columns of the selected rows. Shape of a column: (n,)."""

    __slots__ = ("_allocatable", "_index", "_non_zero", "_requested", "n", "selection", "snapshot")

    def __init__(self, snapshot: NodeTable, selection: Selection) -> None:
        self.snapshot = snapshot
        """The table: interned values (taint_sets, image_sets, label_value_id), image_state, n_nodes, row_of."""
        self.selection = selection
        self.n: int = selection.stop - selection.start if isinstance(selection, slice) else len(selection)
        self._allocatable: ResourceTable | None = None
        self._requested: ResourceTable | None = None
        self._non_zero: ResourceTable | None = None
        self._index: RowIndex | None = None

    # ------------------------------------------------------------------------------------------------------------- rows

    @property
    def index(self) -> RowIndex:
        """Row numbers in the table. Shape (n,), intp."""
        if self._index is None:
            selection = self.selection
            self._index = np.arange(selection.start, selection.stop, dtype=np.intp) if isinstance(selection, slice) else selection
        return self._index

    @property
    def alive(self) -> BoolColumn:
        """Rows that are nodes; what is answered for others is not used."""
        return self.snapshot.alive_rows[self.selection]

    @property
    def changes(self) -> tuple[PodsChange, ...]:
        """How pods on each row differ from those that are bound there, looking at that row alone."""
        return ()

    @property
    def would_be(self) -> bool:
        """Whether pods would come to some of the rows, or go from them."""
        return False

    def differences(self, key: Hashable, count: Callable[[MovedPods], Mapping[str, Amounts]]) -> Differences:  # noqa: ARG002
        """What pods that would come or go add to each row.

        `count` says how much a pod of each template counts, in as many respects as it likes; equal keys say the same.
        """
        return {}

    def only(self, places: RowIndex) -> Rows:
        """Some of these rows, by their places here."""
        return self if len(places) == self.n else Rows(self.snapshot, self.index[places])

    # ------------------------------------------------------------------------------------------------------------ usage

    def resource(self, name: str) -> int | None:
        """The place of a resource in the resource tables; None where no node offers it and no bound pod takes it."""
        return self.snapshot.resources.get(name)

    @property
    def allocatable(self) -> ResourceTable:
        """Shape (resources, n), int64: milli-CPU, bytes or counts."""
        if self._allocatable is None:
            self._allocatable = self._resources(self.snapshot.allocatable)
        return self._allocatable

    @property
    def requested(self) -> ResourceTable:
        """What bound pods take up. Shape (resources, n), int64: milli-CPU, bytes or counts; "pods" counts the pods."""
        if self._requested is None:
            self._requested = self._resources(self.snapshot.requested)
        return self._requested

    @property
    def non_zero_requested(self) -> ResourceTable:
        """As `requested`, with defaults where a container names no request. Shape (2, n), int64: milli-CPU, bytes."""
        if self._non_zero is None:
            self._non_zero = self._resources(self.snapshot.non_zero_requested)
        return self._non_zero

    # ----------------------------------------------------------------------------------------------------------- labels

    def label(self, key: str) -> IdColumn:
        """Numbers of the values of a label; -1 where a node lacks it."""
        column = self.snapshot.labels.get(key)
        return np.full(self.n, NO_VALUE, np.int32) if column is None else column[self.selection]

    def label_int(self, key: str) -> tuple[ScoreColumn, BoolColumn]:
        """Values of a label read as int64, and where that is possible. Shapes (n,)."""
        numbers = self.label(key)
        integers, valid = self.snapshot.label_integers()
        if not len(integers):
            return np.zeros(self.n, np.int64), np.zeros(self.n, np.bool_)
        # A missing label has number -1 and would read the last value; it is masked out.
        return integers[numbers], valid[numbers] & (numbers >= 0)

    # ---------------------------------------------------------------------------------------------- taints, images, flags

    @property
    def unschedulable(self) -> BoolColumn:
        """spec.unschedulable."""
        return self.snapshot.unschedulable[self.selection]

    @property
    def taint_set(self) -> IdColumn:
        """Numbers into snapshot.taint_sets; -1 for a row that is no node."""
        return self.snapshot.taint_set[self.selection]

    @property
    def image_set(self) -> IdColumn:
        """Numbers into snapshot.image_sets; -1 for a row that is no node."""
        return self.snapshot.image_set[self.selection]

    # ------------------------------------------------------------------------------------------------------------ ports

    def port_users(self, protocol: str, port: int, ip: str) -> ScoreColumn:
        """How many bound pods hold exactly this host port (no address: 0.0.0.0). Shape (n,), int64."""
        found = np.zeros(self.n, np.int64)
        users = self.snapshot.port_use.get((protocol, port), {}).get(ip)
        if not users:
            return found
        selection = self.selection
        if not isinstance(selection, slice):
            for place, row in enumerate(selection.tolist()):
                found[place] = users.get(row, 0)
        elif self.n < len(users):
            for place in range(self.n):
                found[place] = users.get(selection.start + place, 0)
        else:
            for row, count in users.items():
                if selection.start <= row < selection.stop:
                    found[row - selection.start] = count
        return found

    def port_ips(self, protocol: str, port: int) -> tuple[str, ...]:
        """The addresses for which a bound pod holds this port, on whatever row; sorted."""
        return tuple(sorted(self.snapshot.port_use.get((protocol, port), ())))

    def _resources(self, table: ResourceTable) -> ResourceTable:
        selection = self.selection
        return table[:, selection] if isinstance(selection, slice) else table.take(selection, 1)


class WhatIfRows(Rows):
    """Rows as they would be with more, or fewer, pods of some templates bound to them.

    Each row is asked about on its own: what would be if these pods came to it, and to no other row.
    """

    __slots__ = ("_changes", "_moved")

    def __init__(self, snapshot: NodeTable, selection: Selection, *changes: PodsChange) -> None:
        super().__init__(snapshot, selection)
        for template, _ in changes:
            # A resource that nobody knew widens the tables; better before any column is read than between two of them.
            snapshot.vectors_of(template)
        self._changes = changes
        self._moved = MovedPods([template for template, _ in changes])

    @property
    def changes(self) -> tuple[PodsChange, ...]:
        return self._changes

    @property
    def would_be(self) -> bool:
        return bool(self._changes)

    def differences(self, key: Hashable, count: Callable[[MovedPods], Mapping[str, Amounts]]) -> Differences:
        found: dict[str, ScoreColumn] = {}
        for name, amounts in self._moved.amounts(key, count).items():
            column = found[name] = np.zeros(self.n, np.int64)
            for (_, pods), amount in zip(self._changes, amounts, strict=True):
                column += amount * pods
        return found

    def only(self, places: RowIndex) -> Rows:
        changes = [(template, count if isinstance(count, int) else count[places]) for template, count in self._changes]
        return WhatIfRows(self.snapshot, self.index[places], *changes)

    @property
    def requested(self) -> ResourceTable:
        if self._requested is None:
            self._requested = self._resources(self.snapshot.requested).copy()
            for template, count in self._changes:
                self._requested = self._with(self._requested, template, 0, count)
        return self._requested

    @property
    def non_zero_requested(self) -> ResourceTable:
        if self._non_zero is None:
            self._non_zero = self._resources(self.snapshot.non_zero_requested).copy()
            for template, count in self._changes:
                self._non_zero = self._with(self._non_zero, template, 1, count)
        return self._non_zero

    def _with(self, table: ResourceTable, template: PodTemplate, kind: int, count: int | ScoreColumn) -> ResourceTable:
        """The table, which may be written, with so many pods more."""
        taken = self.snapshot.vectors_of(template)[kind]
        if self.snapshot.wide_sums.is_large(template.id):
            return added(table, taken, count)
        table += taken[:, None] * count
        return table

    def port_users(self, protocol: str, port: int, ip: str) -> ScoreColumn:
        users = super().port_users(protocol, port, ip)
        for template, count in self._changes:
            if (protocol, port, ip) in template.host_ports:
                users += count
        return users

    def port_ips(self, protocol: str, port: int) -> tuple[str, ...]:
        own = {
            used[2] for template, _ in self._changes for used in template.host_ports if used[0] == protocol and used[1] == port
        }
        return tuple(sorted(own.union(super().port_ips(protocol, port))))
