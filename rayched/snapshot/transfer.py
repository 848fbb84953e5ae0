"""Rows on their way to a worker: what changed since last time, as plain arrays, and what was interned meanwhile.

A worker holds a NodeTable with some of the rows (its shard) and no objects: neither nodes nor pods. After each update its rows
equal the snapshot's, with the same row numbers and the same numbers of interned values, so plugins answer the same. What concerns
the whole cluster (number of nodes, images) comes with every update in which it changed.

Updates are made for one worker at a time and form a chain: each begins where the one before ended. One that does not fit raises
OutOfStep; the sender then starts anew with `since=None`, which carries everything.

Cost: about 100 bytes for each row that only pods changed, on both sides a few numpy calls; rows whose node changed add 4 bytes
for each label key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rayched.snapshot.columns import Log, RowIndex
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.spec_facts import HostPort
from rayched.snapshot.table import NO_VALUE, ImageSet, NodeTable, TaintKey

_ROW_NUMBERS: Final = np.int32
"""On the way, row numbers take four bytes."""


class OutOfStep(Exception):
    """An update does not begin where the copy stands."""


@dataclass(frozen=True, slots=True)
class TransferPosition:
    """Where a copy stands: everything up to here has reached it."""

    generation: int
    rows: tuple[int, int]
    """The shard: first row and the one after the last."""
    ends: tuple[int, ...]
    """Position in each change log."""
    interned: tuple[int, int, int, int]
    """How many resources, label values, taint sets and image sets are known."""


@dataclass(frozen=True, slots=True)
class UsageRows:
    """allocatable and requested are (resources, rows), non_zero is (2, rows)."""

    rows: NDArray[np.int32]
    allocatable: NDArray[np.int64]
    requested: NDArray[np.int64]
    non_zero: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LabelRows:
    """Names, and the numbers of label values: values is (keys, rows). A key that is not listed has no value on these rows."""

    rows: NDArray[np.int32]
    names: tuple[str, ...]
    keys: tuple[str, ...]
    values: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class ColumnRows:
    """One column."""

    rows: NDArray[np.int32]
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class PortRows:
    """All host ports in use on these rows."""

    rows: NDArray[np.int32]
    uses: tuple[tuple[int, HostPort, int], ...]
    """(row, host port, number of pods)."""


@dataclass(frozen=True, slots=True)
class RowsUpdate:
    """What a copy lacks; None: nothing changed there."""

    since: TransferPosition | None
    """Where the copy has to stand; None: anywhere, it starts anew."""
    upto: TransferPosition
    n_rows: int
    n_nodes: int
    resources: tuple[str, ...] = ()
    label_values: tuple[str, ...] = ()
    taint_sets: tuple[TaintKey, ...] = ()
    image_sets: tuple[ImageSet, ...] = ()
    usage: UsageRows | None = None
    labels: LabelRows | None = None
    taints: ColumnRows | None = None
    unschedulable: ColumnRows | None = None
    images: ColumnRows | None = None
    ports: PortRows | None = None
    image_states: dict[str, tuple[int, int]] | None = field(default=None)

    @property
    def n_changed(self) -> int:
        """Rows in it, once for each aspect that changed."""
        parts = (self.usage, self.labels, self.taints, self.unschedulable, self.images, self.ports)
        return sum(len(part.rows) for part in parts if part is not None)


# ------------------------------------------------------------------------------------------------------------- sending


def export_rows(snapshot: Snapshot, rows: slice, since: TransferPosition | None = None) -> RowsUpdate:
    """What a copy of these rows that stands at `since` lacks. A copy of other rows, or of another generation, gets everything."""
    if since is not None and (since.generation != snapshot.generation or since.rows != (rows.start, rows.stop)):
        since = None
    upto = _position(snapshot, rows)
    changed = {
        aspect: _changed(snapshot, rows, None if since is None else since.ends[place], aspect) for place, aspect in enumerate(Log)
    }
    known = (0, 0, 0, 0) if since is None else since.interned
    images_changed = since is None or upto.ends[_IMAGES_PLACE] != since.ends[_IMAGES_PLACE]
    return RowsUpdate(
        since=since,
        upto=upto,
        n_rows=snapshot.n_rows,
        n_nodes=snapshot.n_nodes,
        resources=tuple(snapshot.resources)[known[0] :],
        label_values=tuple(snapshot.label_interner.keys_from(known[1])),
        taint_sets=tuple(snapshot.taint_interner.keys_from(known[2])),
        image_sets=tuple(snapshot.image_interner.keys_from(known[3])),
        usage=_usage(snapshot, changed[Log.USAGE]),
        labels=_labels(snapshot, changed[Log.LABELS]),
        taints=_column(snapshot.taint_set, changed[Log.TAINTS]),
        unschedulable=_column(snapshot.unschedulable, changed[Log.UNSCHEDULABLE]),
        images=_column(snapshot.image_set, changed[Log.IMAGES]),
        ports=_ports(snapshot, changed[Log.PORTS]),
        image_states=dict(snapshot.image_states) if images_changed else None,
    )


_IMAGES_PLACE: Final = list(Log).index(Log.IMAGES)


def _position(snapshot: Snapshot, rows: slice) -> TransferPosition:
    return TransferPosition(
        generation=snapshot.generation,
        rows=(rows.start, rows.stop),
        ends=tuple(snapshot.logs[aspect].end for aspect in Log),
        interned=(
            len(snapshot.resources),
            len(snapshot.label_interner),
            len(snapshot.taint_interner),
            len(snapshot.image_interner),
        ),
    )


def _changed(snapshot: Snapshot, rows: slice, position: int | None, aspect: Log) -> RowIndex:
    """Rows of the shard that changed in one aspect, ascending."""
    stop = min(rows.stop, snapshot.n_rows)
    entries = None if position is None else snapshot.logs[aspect].since(position)
    if entries is None:
        return np.arange(min(rows.start, stop), stop, dtype=np.intp)
    found: RowIndex = np.unique(np.array(entries, np.intp))
    inside: RowIndex = found[(found >= rows.start) & (found < stop)]
    return inside


def _usage(snapshot: Snapshot, rows: RowIndex) -> UsageRows | None:
    if not len(rows):
        return None
    return UsageRows(
        rows.astype(_ROW_NUMBERS),
        snapshot.allocatable.take(rows, 1),
        snapshot.requested.take(rows, 1),
        snapshot.non_zero_requested.take(rows, 1),
    )


def _labels(snapshot: Snapshot, rows: RowIndex) -> LabelRows | None:
    if not len(rows):
        return None
    keys = tuple(snapshot.labels)
    values = np.stack([snapshot.labels[key][rows] for key in keys]) if keys else np.zeros((0, len(rows)), np.int32)
    return LabelRows(rows.astype(_ROW_NUMBERS), tuple(snapshot.name_of(row) for row in rows.tolist()), keys, values)


def _column(column: NDArray[Any], rows: RowIndex) -> ColumnRows | None:
    return ColumnRows(rows.astype(_ROW_NUMBERS), column[rows]) if len(rows) else None


def _ports(snapshot: Snapshot, rows: RowIndex) -> PortRows | None:
    if not len(rows):
        return None
    uses: list[tuple[int, HostPort, int]] = []
    for row in rows.tolist():
        counts: dict[HostPort, int] = {}
        for template in snapshot.pods_on(snapshot.name_of(row)).values():
            for host_port in template.host_ports:
                counts[host_port] = counts.get(host_port, 0) + 1
        uses.extend((row, host_port, count) for host_port, count in counts.items())
    return PortRows(rows.astype(_ROW_NUMBERS), tuple(uses))


# ------------------------------------------------------------------------------------------------------------ receiving


class TableCopy(NodeTable):
    """A worker's copy of some rows."""

    def __init__(self) -> None:
        super().__init__()
        self._position: TransferPosition | None = None

    @property
    def position(self) -> TransferPosition | None:
        """What the next update has to begin with; None: nothing has arrived yet."""
        return self._position

    def import_rows(self, update: RowsUpdate) -> None:
        """Take an update over. Raises OutOfStep, and then changes nothing."""
        if update.since is None:
            generation = self.generation
            super().__init__()
            # Whatever was derived from the rows before is void, whoever derived it.
            self.generation = generation + 1
        elif update.since != self._position:
            raise OutOfStep(f"the copy stands at {self._position}, the update begins at {update.since}")
        self._position = update.upto
        self.n_nodes = update.n_nodes
        self.reserve(update.n_rows)
        for name in update.resources:
            self.resource_place(name)
        for text in update.label_values:
            self.label_interner.intern(text, text)
        for key in update.taint_sets:
            self.intern_taints(key)
        for images in update.image_sets:
            self.image_interner.intern(images, images)
        self._take_usage(update.usage)
        self._take_labels(update.labels)
        self._take_column(self.taint_set, update.taints, Log.TAINTS)
        self._take_column(self.unschedulable, update.unschedulable, Log.UNSCHEDULABLE)
        self._take_column(self.image_set, update.images, Log.IMAGES)
        self._take_ports(update.ports)
        if update.image_states is not None:
            # Whenever it changes for rows whose own images do not, all rows of the shard are in the update and so in the log.
            self.image_states.clear()
            self.image_states.update(update.image_states)

    def _take_usage(self, part: UsageRows | None) -> None:
        if part is not None:
            self.allocatable[:, part.rows] = part.allocatable
            self.requested[:, part.rows] = part.requested
            self.non_zero_requested[:, part.rows] = part.non_zero
            self.wide_sums.received(part.rows, part.requested)
            self._record_all(Log.USAGE, part.rows.tolist())

    def _take_labels(self, part: LabelRows | None) -> None:
        if part is None:
            return
        rows = part.rows.tolist()
        for row, name in zip(rows, part.names, strict=True):
            if self.names[row]:
                del self.rows_by_name[self.names[row]]
            self.names[row] = name
        # After all old names are gone: a node may have moved from one of these rows to another.
        for row, name in zip(rows, part.names, strict=True):
            if name:
                self.rows_by_name[name] = row
        self.alive_rows[part.rows] = [bool(name) for name in part.names]
        for column in self.labels.values():
            column[part.rows] = NO_VALUE
        for key, values in zip(part.keys, part.values, strict=True):
            self.label_column(key)[part.rows] = values
        self._record_all(Log.LABELS, rows)

    def _take_column(self, column: NDArray[Any], part: ColumnRows | None, aspect: Log) -> None:
        if part is not None:
            column[part.rows] = part.values
            self._record_all(aspect, part.rows.tolist())

    def _take_ports(self, part: PortRows | None) -> None:
        if part is None:
            return
        rows = part.rows.tolist()
        changed = set(rows)
        held = [
            ((protocol, port, ip), row, count)
            for (protocol, port), by_ip in self.port_use.items()
            for ip, users in by_ip.items()
            for row, count in users.items()
            if row in changed
        ]
        for host_port, row, count in held:
            self.add_port_users(host_port, row, -count)
        for row, host_port, count in part.uses:
            self.add_port_users(host_port, row, count)
        self._record_all(Log.PORTS, rows)

    def _record_all(self, aspect: Log, rows: Sequence[int]) -> None:
        for row in rows:
            self.record(aspect, row)
