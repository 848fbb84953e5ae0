"""Rows on trial: pods are taken off and put back one after the other, in place, and the rows are asked about after each change.

What a dry run of preemption works on: the arrays of the table stay as they are, and nothing of a node or of a pod is copied but
the rows' numbers of what is requested. As with all rows that would be otherwise, each row is on its own.

Axes: templates are numbered from 0 in the order given; tables are (resources, rows).
Owner: one dry run. Memory: some numbers a row, a template, and a pod that moved; nothing for each row and template, as pods may
have templates of their own. Cost: a change is one gather and one scatter over the rows that it concerns for each number that is
kept of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rayched.snapshot.columns import ResourceTable, RowIndex, ScoreColumn
from rayched.snapshot.moved_pods import Amounts, Differences, MovedPods
from rayched.snapshot.rows import PodsChange, Rows
from rayched.snapshot.table import NodeTable
from rayched.snapshot.templates import PodTemplate

Numbers = NDArray[np.intp]
"""Places among the rows, or numbers of templates."""

_NOBODY: Final = np.zeros(0, np.intp)


class _Put(NamedTuple):
    """Pods that came to places, or went."""

    places: Numbers
    numbers: Numbers
    sign: int


class TrialRows(Rows):
    """Rows with pods of some templates more or fewer than are bound there."""

    __slots__ = ("_columns", "_moved", "_ports", "_puts", "_vectors")

    def __init__(
        self,
        table: NodeTable,
        index: RowIndex,
        moved: MovedPods,
        vectors: tuple[ResourceTable, ResourceTable],
        requested: ResourceTable,
        non_zero: ResourceTable,
    ) -> None:
        """For `begin` and `only`."""
        super().__init__(table, index)
        self._moved = moved
        self._vectors = vectors
        """What a pod of each template adds to `requested` and to `non_zero_requested`. Shapes (amounts, templates)."""
        self._requested = requested
        self._non_zero = non_zero
        self._puts: list[_Put] = []
        """All that was ever put."""
        self._columns: dict[Hashable, dict[str, ScoreColumn]] = {}
        """Differences that were asked for, kept up to date."""
        self._ports: list[int] | None = None
        """Templates with host ports; None: to be found out."""

    @classmethod
    def begin(cls, table: NodeTable, index: RowIndex, templates: Sequence[PodTemplate]) -> TrialRows:
        """The rows as they are; pods of these templates may come or go."""
        of_templates = [table.vectors_of(template) for template in templates]
        if any(len(vectors[0]) < len(table.resources) for vectors in of_templates):
            # A resource that nobody knew has widened the tables.
            of_templates = [table.vectors_of(template) for template in templates]
        vectors = tuple(
            np.array([vectors[kind] for vectors in of_templates], np.int64).reshape(len(templates), width).T
            for kind, width in ((0, len(table.resources)), (1, len(table.non_zero_requested)))
        )
        requested, non_zero = table.requested.take(index, 1), table.non_zero_requested.take(index, 1)
        return cls(table, index, MovedPods(templates), (vectors[0], vectors[1]), requested, non_zero)

    def put(self, places: Numbers, numbers: Numbers, sign: int) -> None:
        """One pod of each of these templates comes to each of these places (1), or goes (-1). A place may occur twice."""
        assert self._requested is not None and self._non_zero is not None
        if not len(places):
            return
        for table, vectors in zip((self._requested, self._non_zero), self._vectors, strict=True):
            for amounts, by_template in zip(table, vectors, strict=True):
                np.add.at(amounts, places, sign * by_template[numbers])
        put = _Put(places, numbers, sign)
        self._puts.append(put)
        for key, columns in self._columns.items():
            for name, amounts in self._moved.known(key).items():
                _add(columns[name], put, amounts)

    def only(self, places: RowIndex) -> TrialRows:
        """A copy of some of the rows, which goes its own way."""
        assert self._requested is not None and self._non_zero is not None
        some = TrialRows(
            self.snapshot,
            self.index[places],
            self._moved,
            self._vectors,
            self._requested[:, places],
            self._non_zero[:, places],
        )
        some._ports = self._ports
        some._columns = {
            key: {name: column[places] for name, column in columns.items()} for key, columns in self._columns.items()
        }
        at = np.full(self.n, -1, np.intp)
        at[places] = np.arange(len(places))
        for put in self._puts:
            there = at[put.places]
            kept = there >= 0
            some._puts.append(_Put(there[kept], put.numbers[kept], put.sign))
        return some

    @property
    def changes(self) -> tuple[PodsChange, ...]:
        """Made anew each time, at the cost of a number for each row and template that ever moved."""
        columns: dict[int, ScoreColumn] = {}
        for put in self._puts:
            for place, number in zip(put.places.tolist(), put.numbers.tolist(), strict=True):
                if number not in columns:
                    columns[number] = np.zeros(self.n, np.int64)
                columns[number][place] += put.sign
        return tuple((self._moved.templates[number], columns[number]) for number in sorted(columns) if columns[number].any())

    @property
    def would_be(self) -> bool:
        return True

    def differences(self, key: Hashable, count: Callable[[MovedPods], Mapping[str, Amounts]]) -> Differences:
        found = self._columns.get(key)
        if found is None:
            found = self._columns[key] = {}
            for name, amounts in self._moved.amounts(key, count).items():
                column = found[name] = np.zeros(self.n, np.int64)
                for put in self._puts:
                    _add(column, put, amounts)
        return found

    def port_users(self, protocol: str, port: int, ip: str) -> ScoreColumn:
        users = super().port_users(protocol, port, ip)
        holding = [number for number in self._with_ports() if (protocol, port, ip) in self._moved.templates[number].host_ports]
        if holding:
            amounts = np.zeros(len(self._moved.templates), np.int64)
            amounts[holding] = 1
            for put in self._puts:
                _add(users, put, amounts)
        return users

    def port_ips(self, protocol: str, port: int) -> tuple[str, ...]:
        templates = self._moved.templates
        own = {used[2] for number in self._with_ports() for used in templates[number].host_ports if used[:2] == (protocol, port)}
        return tuple(sorted(own.union(super().port_ips(protocol, port))))

    def _with_ports(self) -> list[int]:
        if self._ports is None:
            self._ports = [number for number, template in enumerate(self._moved.templates) if template.host_ports]
        return self._ports


def _add(column: ScoreColumn, put: _Put, amounts: Amounts) -> None:
    moved = amounts[put.numbers]
    if moved.any():
        np.add.at(column, put.places, put.sign * moved)


def numbers_of(numbers: Sequence[int]) -> Numbers:
    return np.array(numbers, np.intp) if numbers else _NOBODY
