"""What has to be free for a pod, and whether it is: NodeResourcesFit's rule, for columns and for single rows.

A need is not met where its amount exceeds what is free: allocatable, less what bound pods request. A row with a need that is not
met is UNSCHEDULABLE, as pods may go; where a final need exceeds even allocatable it is UNSCHEDULABLE_AND_UNRESOLVABLE. A resource
that no node offers is free nowhere.

Amounts are milli-CPU, bytes and counts, in the order of the needs. Pure.
Cost: `codes` takes five numpy calls, and three for each need beyond the basic resources; `left` half a microsecond a row.
Source: fitsRequest of kube-scheduler 1.34.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rayched.framework.status import Code
from rayched.snapshot.columns import BoolColumn, CodeColumn, ResourceTable, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.snapshot.table import BASIC_RESOURCES, NodeTable

_SHORT: Final = np.uint8(Code.UNSCHEDULABLE)
_FINAL: Final = np.uint8(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
_BASIC: Final = len(BASIC_RESOURCES)
_PLACES: Final = {name: place for place, name in enumerate(BASIC_RESOURCES)}
_NOT_ASKED: Final = np.iinfo(np.int64).min
"""Less than anything that is free."""

AmountTable = NDArray[np.int64]
"""A row for each need."""


class ResourceNeed(NamedTuple):
    """So much of a resource has to be free."""

    resource: str
    amount: int
    """Above zero: milli-CPU, bytes or counts."""
    reason: str
    """Why a row is rejected where less is free. No other need has the same."""
    is_final: bool
    """Where less is allocatable, whether or not it is requested, no removal of pods can help."""


class ResourceNeeds:
    """The needs of one pod; or of several side by side, who are all asked about the same single row."""

    __slots__ = ("_basic", "_most", "_names", "_others", "needs")

    def __init__(self, needs: Sequence[ResourceNeed]) -> None:
        self.needs = tuple(needs)
        """Of several pods side by side: those of all of them, and their amounts are the highest."""
        self._names = tuple(need.resource for need in self.needs)
        self._most = tuple(need.amount for need in self.needs)
        self._basic: AmountTable = np.full((_BASIC, 1), _NOT_ASKED, np.int64)
        """Of the basic resources, whose places in all tables are the first ones. Shape (basic resources, pods)."""
        others = []
        for name, amount in zip(self._names, self._most, strict=True):
            place = _PLACES.get(name)
            if place is None:
                others.append((name, amount))
            else:
                self._basic[place] = amount
        self._others: tuple[tuple[str, int | ScoreColumn], ...] = tuple(others)
        """Of the others; of several pods an array of shape (pods,) each."""

    @classmethod
    def side_by_side(cls, several: Sequence[ResourceNeeds]) -> ResourceNeeds:
        """Of one pod each; `codes` then answers for each of them about one row. Shape (pods,)."""
        named = {need.resource: need for one in {one._names: one for one in several}.values() for need in one.needs}
        basic = np.concatenate([one._basic for one in several], axis=1)
        of_others = [dict(one._others) for one in several] if any(one._others for one in several) else []
        others = {
            name: np.array([amounts.get(name, _NOT_ASKED) for amounts in of_others], np.int64)
            for name in named
            if name not in _PLACES
        }
        highest = {name: int(basic[_PLACES[name]].max() if name in _PLACES else others[name].max()) for name in named}
        found = cls([need._replace(amount=highest[name]) for name, need in named.items()])
        found._basic, found._others = basic, tuple(others.items())
        return found

    def left_of(self, rows: Rows) -> AmountTable:
        """As `left` for each of these rows. Shape (needs, rows)."""
        allocatable, requested = rows.allocatable, rows.requested
        found = np.zeros((len(self._names), rows.n), np.int64)
        for left, name, amount in zip(found, self._names, self._most, strict=True):
            place = rows.resource(name)
            if place is not None:
                np.subtract(allocatable[place], requested[place], out=left)
            left -= amount
        return found

    def short(self, rows: Rows) -> Sequence[BoolColumn]:
        """For each need the rows where it is not met. Shape (rows,) each."""
        short = self._short(rows)
        others = iter(range(_BASIC, len(short)))
        return [short[next(others) if (place := _PLACES.get(name)) is None else place] for name in self._names]

    def _short(self, rows: Rows) -> NDArray[np.bool_]:
        """Shape (basic resources and others, rows); of several pods (.., pods)."""
        allocatable, requested = rows.allocatable, rows.requested
        basic: NDArray[np.bool_] = self._basic > allocatable[:_BASIC] - requested[:_BASIC]
        if not self._others:
            return basic
        found = np.empty((_BASIC + len(self._others), basic.shape[1]), np.bool_)
        found[:_BASIC] = basic
        for short, (name, amount) in zip(found[_BASIC:], self._others, strict=True):
            place = rows.resource(name)
            np.greater(amount, 0 if place is None else allocatable[place] - requested[place], out=short)
        return found

    def codes(self, rows: Rows) -> CodeColumn:
        """A code for each row, or for each of several pods."""
        if rows.n == 1 and min(self._left(rows.snapshot.resources, rows.allocatable, rows.requested, 0)) >= 0:
            # One row mostly has enough for the highest amounts, and integers take a quarter of the time.
            return np.zeros(self._basic.shape[1], np.uint8)
        codes: CodeColumn = np.multiply(np.logical_or.reduce(self._short(rows)), _SHORT)
        if np.count_nonzero(codes):
            # What is not there at all is not free either: where nothing is short that need not be asked.
            codes |= np.multiply(self.final(rows), _FINAL)
        return codes

    def final(self, rows: Rows) -> BoolColumn:
        """Whether a final need would not be met without any pod. Shape (rows,); of several pods (pods,)."""
        others = dict(self._others)
        found: BoolColumn = np.zeros(rows.n * self._basic.shape[1], np.bool_)
        for need in self.needs:
            if need.is_final:
                amount = others[need.resource] if need.resource in others else self._basic[_PLACES[need.resource]]
                place = rows.resource(need.resource)
                found |= np.greater(amount, 0 if place is None else rows.allocatable[place])
        return found

    def left(self, table: NodeTable, row: int) -> list[int]:
        """What is free beyond each need; one of them below zero: the need is not met."""
        return self._left(table.resources, table.allocatable, table.requested, row)

    def is_final(self, table: NodeTable, row: int) -> bool:
        """Whether a need would not be met there without any pod."""
        for name, amount, _, is_final in self.needs:
            if is_final:
                place = table.resources.get(name)
                if place is None or amount > table.allocatable.item(place, row):
                    return True
        return False

    def _left(self, resources: Mapping[str, int], allocatable: ResourceTable, requested: ResourceTable, at: int) -> list[int]:
        left = []
        for name, amount in zip(self._names, self._most, strict=True):
            place = resources.get(name)
            left.append(-amount if place is None else allocatable.item(place, at) - requested.item(place, at) - amount)
        return left
