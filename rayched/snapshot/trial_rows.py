"""Rows on trial: pods are taken off and put back one after the other, in place, and the rows are asked about after each change.

What a dry run of preemption works on: the arrays of the table stay as they are, and nothing of a node or of a pod is copied but
the rows' numbers of what is requested. As with all rows that would be otherwise, each row is on its own.

Axes: templates are numbered from 0 in the order given; tables are (resources, rows) and (templates, rows).
Owner: one dry run. Cost: a change is one gather and one scatter over the rows that it concerns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rayched.snapshot.columns import ResourceTable, RowIndex, ScoreColumn
from rayched.snapshot.rows import PodsChange, Rows
from rayched.snapshot.table import NodeTable
from rayched.snapshot.templates import PodTemplate

Numbers = NDArray[np.intp]
"""Places among the rows, or numbers of templates."""

_NOBODY: Final = np.zeros(0, np.intp)


class TrialRows(Rows):
    """Rows with pods of some templates more or fewer than are bound there."""

    __slots__ = ("_changes", "_counts", "_templates", "_vectors")

    def __init__(
        self,
        table: NodeTable,
        index: RowIndex,
        templates: Sequence[PodTemplate],
        vectors: ResourceTable,
        counts: NDArray[np.int64],
        requested: ResourceTable,
    ) -> None:
        """For `begin` and `only`."""
        super().__init__(table, index)
        self._templates = templates
        self._vectors = vectors
        self._counts = counts
        self._requested = requested
        self._changes: tuple[PodsChange, ...] | None = None

    @classmethod
    def begin(cls, table: NodeTable, index: RowIndex, templates: Sequence[PodTemplate]) -> TrialRows:
        """The rows as they are; pods of these templates may come or go."""
        for template in templates:
            # A resource that nobody knew widens the tables; better before any column is read than between two of them.
            table.vectors_of(template)
        vectors = np.zeros((len(table.resources), len(templates)), np.int64)
        for number, template in enumerate(templates):
            vectors[:, number] = table.vectors_of(template)[0]
        counts = np.zeros((len(templates), len(index)), np.int64)
        return cls(table, index, templates, vectors, counts, table.requested.take(index, 1))

    def put(self, places: Numbers, numbers: Numbers, sign: int) -> None:
        """One pod of each of these templates comes to each of these places (1), or goes (-1). A place may occur twice."""
        assert self._requested is not None
        np.add.at(self._counts, (numbers, places), sign)
        for amounts, vectors in zip(self._requested, self._vectors, strict=True):
            np.add.at(amounts, places, sign * vectors[numbers])
        self._changes = self._non_zero = None

    def only(self, places: RowIndex) -> TrialRows:
        """A copy of some of the rows, which goes its own way."""
        assert self._requested is not None
        return TrialRows(
            self.snapshot,
            self.index[places],
            self._templates,
            self._vectors,
            self._counts[:, places],
            self._requested[:, places],
        )

    @property
    def changes(self) -> tuple[PodsChange, ...]:
        if self._changes is None:
            changed = np.count_nonzero(self._counts, axis=1).nonzero()[0].tolist()
            self._changes = tuple((self._templates[number], self._counts[number]) for number in changed)
        return self._changes

    @property
    def non_zero_requested(self) -> ResourceTable:
        if self._non_zero is None:
            self._non_zero = self._resources(self.snapshot.non_zero_requested).copy()
            for template, count in self.changes:
                self._non_zero += self.snapshot.vectors_of(template)[1][:, None] * count
        return self._non_zero

    def port_users(self, protocol: str, port: int, ip: str) -> ScoreColumn:
        users = super().port_users(protocol, port, ip)
        for number, template in enumerate(self._templates):
            if (protocol, port, ip) in template.host_ports:
                users += self._counts[number]
        return users

    def port_ips(self, protocol: str, port: int) -> tuple[str, ...]:
        own = {used[2] for template in self._templates for used in template.host_ports if used[:2] == (protocol, port)}
        return tuple(sorted(own.union(super().port_ips(protocol, port))))


def numbers_of(numbers: Sequence[int]) -> Numbers:
    return np.array(numbers, np.intp) if numbers else _NOBODY
