"""The nodes of a cluster as columns: one row a node, numpy arrays over rows, interning tables, and a change log for each aspect.

This is what plugins see through Rows and what engines follow through the logs. It knows no node object and no pod: a Snapshot
fills it from objects, a worker's copy is filled from RowsUpdates. Both are read in the same way and give the same answers.

Axes: arrays have `capacity` rows, of which the first `n_rows` are in use or free again; `alive` tells which. A free row holds
zeros and -1. Resource tables are (resources, rows).

Invariants:

* A change of an aspect of a row is followed by an entry in that aspect's log before anybody reads.
* A number given by an interning table, and a row's number, mean the same for as long as `generation` stays; when it changes,
  whatever was derived from the table is void.
* Arrays are replaced when the table grows. Keep no reference to them, nor a Rows, over a change.

Owner: one Snapshot, or one worker. Cost: growth is amortised O(1) a row.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from rayched.snapshot.change_log import ChangeLog
from rayched.snapshot.columns import BoolColumn, IdColumn, Log, ResourceTable
from rayched.snapshot.interning import Interner
from rayched.snapshot.present_taints import PresentTaints
from rayched.snapshot.referenced_labels import ReferencedLabels
from rayched.snapshot.spec_facts import HostPort
from rayched.snapshot.template_amounts import TemplateAmounts
from rayched.snapshot.templates import PodTemplate
from rayched.snapshot.wide_sums import INT64_MAX, WideSums
from rayched.snapshot.work_budget import WorkBudget
from rayched.v1.core_pb2 import Taint

CPU: Final = 0
MEMORY: Final = 1
EPHEMERAL_STORAGE: Final = 2
PODS: Final = 3
BASIC_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage", "pods")
"""The resources that every table has, at these places."""

CAPACITY_MIN: Final = 64
NO_VALUE: Final = -1
"""In an id column: the row has no such value."""
ALL_ASPECTS: Final = Log.USAGE | Log.LABELS | Log.TAINTS | Log.UNSCHEDULABLE | Log.IMAGES | Log.PORTS

TaintKey = tuple[tuple[str, str, str], ...]
"""(key, value, effect) of each taint, in the node's order."""
ImageSet = frozenset[str]
"""Names of the images on a node."""

_NON_ZERO: Final = 2
"""Amounts in `non_zero_requested`."""

Vectors = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""What a pod adds to a row of `requested`, of `non_zero_requested` and of `used`. Shapes (resources,), (2,), (2 + resources,)."""

T = TypeVar("T", bound=np.generic)
Amounts = TypeVar("Amounts", ResourceTable, list[int])


class NodeTable:
    """Columns, interning tables and logs. Public arrays are for Rows and for the engine; everybody else reads through Rows."""

    def __init__(self) -> None:
        self.work = WorkBudget()
        """Of the thread that owns the table."""
        self.resources: dict[str, int] = {name: place for place, name in enumerate(BASIC_RESOURCES)}
        self.n_rows = 0
        """Rows in use or free again; the length of every column that is derived from the table."""
        self.capacity = 0
        self.n_nodes = 0
        """Nodes of the whole cluster, also where this table holds a shard of them."""
        self.revision = 0
        """Grows with every change."""
        self.generation = 0
        """Grows when rows or interned values are numbered anew."""
        self.alive_rows: BoolColumn = np.zeros(0, np.bool_)
        self._use_amounts(np.zeros((_NON_ZERO + 2 * len(BASIC_RESOURCES), 0), np.int64))
        self.unschedulable: BoolColumn = np.zeros(0, np.bool_)
        self.taint_set: IdColumn = np.zeros(0, np.int32)
        self.image_set: IdColumn = np.zeros(0, np.int32)
        self.labels: dict[str, IdColumn] = {}
        """A column of value numbers for each label key that a node has; keys that no node has any more may be missing."""
        self.port_use: dict[tuple[str, int], dict[str, dict[int, int]]] = {}
        """(protocol, port) to ip to row to the number of bound pods that hold it there. Sparse: few nodes use any one port."""
        self.names: list[str] = []
        """Node's name by row; "" for a free row."""
        self.rows_by_name: dict[str, int] = {}
        self.label_interner: Interner[str, str] = Interner()
        self.taint_interner: Interner[TaintKey, tuple[Taint, ...]] = Interner()
        self.image_interner: Interner[ImageSet, ImageSet] = Interner()
        self.image_states: dict[str, tuple[int, int]] = {}
        """Image to (size in bytes, nodes that have it), over the whole cluster."""
        self.mentioned_labels = ReferencedLabels()
        """Labels of pods that count where pods are compared."""
        self.known_taints = PresentTaints()
        """Taints that tolerations can be about."""
        self.logs: dict[Log, ChangeLog] = {aspect: ChangeLog() for aspect in Log}
        self._log_groups: dict[Log, tuple[ChangeLog, ...]] = {}
        self.usage_log = self.logs[Log.USAGE]
        self._label_ints = np.zeros(0, np.int64)
        self._label_is_int = np.zeros(0, np.bool_)
        self.wide_sums = WideSums()
        self._vectors: dict[int, Vectors] = {}
        self._vectors_by_amounts: dict[Hashable, Vectors] = {}
        self.template_amounts = TemplateAmounts(lambda template: self.vectors_of(template)[0])

    # ------------------------------------------------------------------------------------------------------- looking up

    @property
    def alive(self) -> BoolColumn:
        """Rows that are nodes. Shape (n_rows,)."""
        return self.alive_rows[: self.n_rows]

    @property
    def taint_sets(self) -> Sequence[tuple[Taint, ...]]:
        """Taints by their set's number."""
        return self.taint_interner.values

    @property
    def image_sets(self) -> Sequence[ImageSet]:
        """Names of images by their set's number."""
        return self.image_interner.values

    @property
    def label_values(self) -> Sequence[str]:
        """Label values by number."""
        return self.label_interner.values

    def label_value_id(self, text: str) -> int | None:
        """The number of a label value; None where no node has it under any key."""
        return self.label_interner.find(text)

    def image_state(self, name: str) -> tuple[int, int]:
        """(size in bytes, nodes that have it) of an image; (0, 0) where no node has it."""
        return self.image_states.get(name, (0, 0))

    def row_of(self, name: str) -> int | None:
        return self.rows_by_name.get(name)

    def name_of(self, row: int) -> str:
        """The node's name; "" for a free row."""
        return self.names[row]

    def log(self, aspect: Log) -> ChangeLog:
        """The log of one aspect."""
        return self.logs[aspect]

    def logs_of(self, aspects: Log) -> tuple[ChangeLog, ...]:
        """The logs of these aspects; the same tuple each time."""
        found = self._log_groups.get(aspects)
        if found is None:
            found = self._log_groups[aspects] = tuple(log for aspect, log in self.logs.items() if aspect & aspects)
        return found

    def label_integers(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Label values read as int64, by number, and whether they are such integers. Shape (label values,)."""
        known, values = len(self._label_ints), self.label_interner.values
        if known < len(values):
            parsed = [read_int64(text) for text in values[known:]]
            ints = np.array([number or 0 for number in parsed], np.int64)
            valid = np.array([number is not None for number in parsed], np.bool_)
            self._label_ints = np.concatenate((self._label_ints, ints))
            self._label_is_int = np.concatenate((self._label_is_int, valid))
        return self._label_ints, self._label_is_int

    def vectors_of(self, template: PodTemplate) -> Vectors:
        """What one bound pod of the template adds to a row. The pod itself counts as one of the resource "pods"."""
        found = self._vectors.get(template.id)
        if found is None:
            amounts = tuple(template.accounted.items()), template.non_zero
            found = self._vectors_by_amounts.get(amounts) or self._new_vectors(template)
            if len(self._vectors) >= VECTORS_MAX:
                self._forget_vectors()
            self._vectors[template.id] = self._vectors_by_amounts[amounts] = found
            self.wide_sums.learn(template.id, found[2])
        return found

    def _new_vectors(self, template: PodTemplate) -> Vectors:
        for name in template.accounted:
            self.resource_place(name)
        used = np.zeros(_NON_ZERO + len(self.resources), np.int64)
        non_zero, vector = used[:_NON_ZERO], used[_NON_ZERO:]
        for name, amount in template.accounted.items():
            vector[self.resources[name]] = clipped(amount)
        vector[PODS] = 1
        non_zero[:] = [clipped(amount) for amount in template.non_zero]
        return vector, non_zero, used

    def _forget_vectors(self) -> None:
        self._vectors.clear()
        self._vectors_by_amounts.clear()

    # ---------------------------------------------------------------------------------------------------------- growing

    def resource_place(self, name: str) -> int:
        """The place of a resource in the resource tables; a new resource gets the next one."""
        place = self.resources.get(name)
        if place is None:
            place = self.resources[name] = len(self.resources)
            row = np.zeros((1, self.capacity), np.int64)
            self._use_amounts(np.concatenate((self.used, row, self.allocatable, row)))
            self._forget_vectors()
        return place

    def _use_amounts(self, amounts: ResourceTable) -> None:
        """Of `used` and, behind it, of `allocatable`. Shape (2 + 2 * resources, capacity)."""
        self.amounts = amounts
        """All that plugins read which read nothing but usage: all amounts of a row are taken at one stroke."""
        self.non_zero_requested, self.requested, self.allocatable = amounts_apart(amounts)
        self.used: ResourceTable = amounts[: _NON_ZERO + len(self.requested)]
        """What bound pods take up: `non_zero_requested` and, behind it, `requested`."""

    def intern_taints(self, taints: TaintKey) -> int:
        """The number of a set of taints."""
        number = self.taint_interner.find(taints)
        if number is None:
            messages = tuple(Taint(key=key, value=value, effect=effect) for key, value, effect in taints)
            self.known_taints.add(messages)
            number = self.taint_interner.intern(taints, messages)
        return number

    def label_column(self, key: str) -> IdColumn:
        """The column of a label key, made where it does not exist yet. Shape (capacity,)."""
        column = self.labels.get(key)
        if column is None:
            column = self.labels[key] = np.full(self.capacity, NO_VALUE, np.int32)
        return column

    def reserve(self, n_rows: int) -> None:
        """Make room for so many rows, at least doubling the capacity where it is too small."""
        if n_rows > self.capacity:
            capacity = max(CAPACITY_MIN, 2 * self.capacity, n_rows)
            more = capacity - self.capacity
            self.alive_rows = _longer(self.alive_rows, more, 0)
            self._use_amounts(_longer(self.amounts, more, 0))
            self.unschedulable = _longer(self.unschedulable, more, 0)
            self.taint_set = _longer(self.taint_set, more, NO_VALUE)
            self.image_set = _longer(self.image_set, more, NO_VALUE)
            self.labels = {key: _longer(column, more, NO_VALUE) for key, column in self.labels.items()}
            self.capacity = capacity
        if n_rows > self.n_rows:
            self.names.extend([""] * (n_rows - self.n_rows))
            self.n_rows = n_rows

    def clear_row(self, row: int) -> None:
        """Make a row as free rows are. Its host ports are the caller's to give back."""
        self.alive_rows[row] = False
        self.amounts[:, row] = 0
        self.wide_sums.forget(row)
        self.unschedulable[row] = False
        self.taint_set[row] = NO_VALUE
        self.image_set[row] = NO_VALUE
        for column in self.labels.values():
            column[row] = NO_VALUE

    def add_port_users(self, host_port: HostPort, row: int, count: int) -> None:
        """So many bound pods more (fewer where negative) hold this host port on a row."""
        protocol, port, ip = host_port
        by_ip = self.port_use.setdefault((protocol, port), {})
        users = by_ip.setdefault(ip, {})
        users[row] = users.get(row, 0) + count
        if not users[row]:
            del users[row]
            if not users:
                del by_ip[ip]
                if not by_ip:
                    del self.port_use[protocol, port]

    def record(self, aspects: Iterable[Log], row: int) -> None:
        """Log a change of these aspects of a row; a Log has all that are set in it."""
        for aspect in aspects:
            self.logs[aspect].append(row)
        self.revision += 1

    def forget_label_integers(self) -> None:
        """Label values were numbered anew: read them again when they are asked for."""
        self._label_ints, self._label_is_int = np.zeros(0, np.int64), np.zeros(0, np.bool_)


VECTORS_MAX: Final = 65_536
"""Templates whose vectors are kept."""


def amounts_apart(amounts: Amounts) -> tuple[Amounts, Amounts, Amounts]:
    """`non_zero_requested`, `requested` and `allocatable` of a table's `amounts`, as views, or of one row's."""
    middle = (len(amounts) + _NON_ZERO) // 2
    return amounts[:_NON_ZERO], amounts[_NON_ZERO:middle], amounts[middle:]


def clipped(amount: int) -> int:
    """An amount as an int64; validation lets nothing larger through."""
    return max(-INT64_MAX, min(amount, INT64_MAX))


def read_int64(text: str) -> int | None:
    """A decimal integer as Go's ParseInt(text, 10, 64) reads it; None where it is none."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _DIGITS_MAX:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


_DIGITS_MAX: Final = 64
"""Longer than any label value; keeps the reading of a long text cheap."""


def _longer(column: NDArray[T], more: int, fill: int) -> NDArray[T]:
    tail = np.full((*column.shape[:-1], more), fill, column.dtype)
    return np.concatenate((column, tail), axis=-1)
