"""Room in plain integers: whether a pod's amounts are free on a row, as it is or with pods more or fewer.

Of most pods the only filter that bindings change compares a few amounts with what is free (`ResourcePlugin`). For one row that
takes a microsecond, where asking the filter takes numpy's overhead many times over; so whoever looks at few rows at a time
compares here. Of many rows what is free is a matrix of shape (needs, rows), int64.

Amounts are milli-CPU, bytes and counts, in the order of the needs; those of pods are never negative.
Owner: whoever asks; one for each key of the plugin. Cost: 1 µs a row, 0.5 µs for each pod more or fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rayched.framework.resource_needs import AmountTable, ResourceNeeds
from rayched.framework.status import Code
from rayched.snapshot.columns import BoolColumn
from rayched.snapshot.rows import Rows, Selection
from rayched.snapshot.table import BASIC_RESOURCES, PODS, NodeTable, clipped
from rayched.snapshot.templates import PodTemplate
from rayched.snapshot.wide_sums import INT64_MAX

VECTORS_MAX: Final = 1_024
"""Templates whose amounts are kept."""

Amounts: TypeAlias = tuple[int, ...]
"""One for each need."""


class FreeResources:
    """What one kind of pod needs, compared with rows of a table."""

    __slots__ = ("_names", "_needs", "_table", "_vectors", "needs")

    def __init__(self, table: NodeTable, needs: ResourceNeeds) -> None:
        self._table = table
        self._needs = needs
        self.needs = needs.needs
        self._names = tuple(need.resource for need in self.needs)
        self._vectors: dict[int, Amounts] = {}

    def amounts(self, template: PodTemplate) -> Amounts:
        """What one pod of the template takes up."""
        found = self._vectors.get(template.id)
        if found is None:
            if len(self._vectors) >= VECTORS_MAX:
                self._vectors.clear()
            accounted = template.accounted
            found = tuple(1 if name == _PODS else clipped(accounted.get(name, 0)) for name in self._names)
            self._vectors[template.id] = found
        return found

    def left(self, row: int, coming: Iterable[PodTemplate] = ()) -> list[int]:
        """What is free beyond the needs, with these pods besides; one of them below zero: the row lacks room."""
        left = self._needs.left(self._table, row)
        for template in coming:
            left = [one - taken for one, taken in zip(left, self.amounts(template), strict=True)]
        return left

    def amounts_of(self, numbers: Numbers) -> AmountTable:
        """What pods take up, given by the numbers of their templates. Shape (needs, *numbers.shape)."""
        table = self._table
        found = np.zeros((len(self.needs), *numbers.shape), np.int64)
        for amounts, name in zip(found, self._names, strict=True):
            place = table.resources.get(name)
            if place is not None:
                amounts[:] = table.template_amounts.amounts(place)[numbers]
        return found

    def left_of(self, rows: Selection, coming: Sequence[tuple[PodTemplate, int]] = ()) -> AmountTable:
        """As `left` for each of these rows; of the pods that come, each with its place among the rows. Shape (needs, rows)."""
        table = self._table
        numbers = table.template_amounts.numbers([template for template, _ in coming])
        left = self._needs.left_of(Rows(table, rows))
        if numbers:
            places = [place for _, place in coming]
            for free, amounts in zip(left, self.amounts_of(np.array(numbers, np.intp)), strict=True):
                np.subtract.at(free, places, amounts)
        wide, large = table.wide_sums.rows, [one for one in coming if table.wide_sums.is_large(one[0].id)]
        if wide or large:
            index = np.arange(table.n_rows)[rows]
            judged = {*np.flatnonzero(np.isin(index, list(wide))).tolist(), *(place for _, place in large)}
            for at in judged:
                exact = self.left(int(index[at]), [template for template, place in coming if place == at])
                left[:, at] = [max(-INT64_MAX, one) for one in exact]
        return left

    def final_of(self, rows: Selection) -> BoolColumn:
        """Rows that would lack room without any pod. Shape (rows,)."""
        return self._needs.final(Rows(self._table, rows))

    def fits(self, row: int, coming: Iterable[PodTemplate] = ()) -> bool:
        """With and without these pods, as they only take."""
        return min(self.left(row, coming)) >= 0

    def stay(self, row: int, pods: Sequence[PodTemplate], coming: Iterable[PodTemplate] = ()) -> tuple[bool, ...] | None:
        """Take off pods that are bound to the row; put back one after the other, in their order, those beside whom it fits.

        For each whether it stays; None: there is no room without all of them either.
        """
        left = self.left(row, coming)
        amounts = [self.amounts(template) for template in pods]
        for taken in amounts:
            left = [one + given for one, given in zip(left, taken, strict=True)]
        if min(left) < 0:
            return None
        stay = []
        for taken in amounts:
            beside = [one - again for one, again in zip(left, taken, strict=True)]
            stays = min(beside) >= 0
            stay.append(stays)
            if stays:
                left = beside
        return tuple(stay)

    def short(self, row: int, coming: Iterable[PodTemplate] = ()) -> tuple[int, Code]:
        """A bit for each need that is not met, the first one lowest, and the row's code."""
        bits = 0
        for place, left in enumerate(self.left(row, coming)):
            if left < 0:
                bits |= 1 << place
        if not bits:
            return 0, Code.SUCCESS
        return bits, Code.UNSCHEDULABLE_AND_UNRESOLVABLE if self._needs.is_final(self._table, row) else Code.UNSCHEDULABLE


Numbers: TypeAlias = NDArray[np.intp]
_PODS: Final = BASIC_RESOURCES[PODS]
