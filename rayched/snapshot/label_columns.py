"""Labels of bound pods as columns: which of many templates a selector selects, found with one pass for each condition.

A template has a slot. A key that a selector mentions becomes a column of the numbers of its values, filled when it is asked for
and followed from then on; a key that no template has needs none. So a selector costs what its conditions cost, wherever pods have
labels of their own: a pod's name in a StatefulSet, its index in a Job.

Owner: one PodCounts. Memory: 4 bytes for each slot and key that is kept, COLUMNS_MAX keys at most, and their distinct values.
Cost: a new template 0.5 µs; a condition 1 ns a slot; a key that is new 0.1 µs a slot.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rayched.api.selectors import Operator, Requirement
from rayched.snapshot.columns import BoolColumn
from rayched.snapshot.pod_selection import Labels, PodSelector

COLUMNS_MAX: Final = 256
"""Keys with columns; the one that was not asked for longest goes first."""

SLOTS_AT_ONCE: Final = 16_384
"""A few milliseconds."""
NO_VALUE: Final = -1

_BY_VALUES: Final = frozenset((Operator.IN, Operator.NOT_IN))
_WHERE_LACKING: Final = frozenset((Operator.NOT_IN, Operator.DOES_NOT_EXIST))
"""Operators that hold where the label is not there."""


class _Column:
    """Numbers of one key's values by slot, as far as it was asked for."""

    __slots__ = ("ids", "numbers")

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.numbers = array("i")

    def follow(self, values: Iterable[str | None]) -> None:
        """Values of further slots; None where the label is not there."""
        ids, append = self.ids, self.numbers.append
        for value in values:
            append(NO_VALUE if value is None else ids.setdefault(value, len(ids)))


def _nothing() -> None:
    pass


class LabelColumns:
    """Slots 0, 1, 2, ... in the order of `add`."""

    def __init__(self, step: Callable[[], None] = _nothing) -> None:
        """`step` is called between two steps of long work, and may raise."""
        self._step = step
        self._namespaces = _Column()
        self._names: list[str] = []
        """Of the namespaces, by slot."""
        self._labels: list[Labels] = []
        """By slot."""
        self._keys: set[str] = set()
        """All that any slot has."""
        self._columns: OrderedDict[str, _Column] = OrderedDict()

    def __len__(self) -> int:
        return len(self._labels)

    def add(self, namespace: str, labels: Labels) -> int:
        """The new slot. The labels are not to change any more."""
        self._names.append(namespace)
        self._labels.append(labels)
        self._keys.update(labels)
        return len(self._labels) - 1

    def has_key(self, key: str) -> bool:
        """Whether any slot has, or had since all were numbered, a label with this key."""
        return key in self._keys

    def selected(self, selectors: Sequence[PodSelector]) -> BoolColumn:
        """Slots that all of them select, whatever the state of the pods. Shape (slots,)."""
        found: BoolColumn = np.ones(len(self), np.bool_)
        conditions: dict[Requirement, None] = {}
        for selector in selectors:
            if selector.conditions is None:
                return np.zeros(len(self), np.bool_)
            if selector.namespaces is not None:
                found &= self._in_namespaces(selector.namespaces)
            conditions.update(dict.fromkeys(selector.conditions))
        for condition in conditions:
            holds = self._holds(condition)
            if holds is False:
                return np.zeros(len(self), np.bool_)
            found &= holds
        return found

    # ---------------------------------------------------------------------------------------------------------- private

    def _in_namespaces(self, names: frozenset[str]) -> BoolColumn:
        column = self._namespaces
        self._follow(column, self._names.__getitem__)
        return _are(column, [column.ids[name] for name in names if name in column.ids])

    def _holds(self, condition: Requirement) -> BoolColumn | bool:
        """Where the condition holds; one value where it is the same everywhere."""
        lacking = condition.operator in _WHERE_LACKING
        if condition.key not in self._keys:
            return lacking
        column = self._column(condition.key)
        if condition.operator not in _BY_VALUES:
            there: BoolColumn = np.frombuffer(column.numbers, np.int32) != NO_VALUE
            return ~there if lacking else there
        ids = [column.ids[value] for value in condition.values if value in column.ids]
        if not ids:
            return lacking
        among = _are(column, ids)
        return ~among if lacking else among

    def _column(self, key: str) -> _Column:
        column = self._columns.get(key)
        if column is None:
            if len(self._columns) >= COLUMNS_MAX:
                self._columns.popitem(last=False)
            column = self._columns[key] = _Column()
        else:
            self._columns.move_to_end(key)
        self._follow(column, lambda part: [labels.get(key) for labels in self._labels[part]])
        return column

    def _follow(self, column: _Column, values: Callable[[slice], Sequence[str | None]]) -> None:
        while (behind := len(column.numbers)) < len(self):
            column.follow(values(slice(behind, behind + SLOTS_AT_ONCE)))
            if behind + SLOTS_AT_ONCE < len(self):
                self._step()


def _are(column: _Column, ids: Sequence[int]) -> BoolColumn:
    """Slots whose value is one of these."""
    numbers = np.frombuffer(column.numbers, np.int32)
    if len(ids) == 1:
        only: BoolColumn = numbers == ids[0]
        return only
    # The last place is what slots without a value read.
    wanted: NDArray[np.bool_] = np.zeros(len(column.ids) + 1, np.bool_)
    wanted[list(ids)] = True
    return wanted[numbers]
