"""The part of a total that every binding changes: filters and final scores of plugins that read usage or ports, added up.

Kept as one narrow column for each combination of keys; what single plugins say is not kept. A row that a filter rejects is
`infeasible`: so low that no scores lift it to 0, and so high that a sum of two stays within the type.

Plugins that read nothing but usage answer the same for rows that are equal in allocatable, requested and non_zero_requested.
Clusters are full of equal nodes that fill up with equal pods, so the value of each such state is remembered, and a binding that
leads to a state seen before asks no plugin at all. Where states hardly ever come again a look-up takes 1 µs for nothing.

Cost: a changed row in a known state 2 µs; else one call of each plugin on that row and 5 µs.
Where many sums take turns they follow the log together (`usage_stack`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from rayched.engine.cached_columns import BuildColumns, CachedColumn
from rayched.engine.prepared import Answer, ColumnKey, PluginHalf
from rayched.framework.plugin import MAX_NODE_SCORE
from rayched.snapshot.change_log import FEW
from rayched.snapshot.columns import Log
from rayched.snapshot.rows import Rows, Selection
from rayched.snapshot.table import NodeTable
from rayched.snapshot.usage_states import state_of

TotalColumn = NDArray[np.signedinteger[Any]]
"""Totals, or what they are added up from; as narrow as the weights allow."""

STATES_MAX: Final = 256
"""States remembered by a sum; when there are more it starts over."""
STATE_BYTES: Final = 250
"""What one of them takes, roughly."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The integer type of sums and the value of a row that is not feasible."""

    dtype: np.dtype[np.signedinteger[Any]]
    infeasible: int

    @property
    def open(self) -> np.signedinteger[Any]:
        """More than any total."""
        return self.dtype.type(-self.infeasible)

    @property
    def below_open(self) -> np.signedinteger[Any]:
        """From there to `infeasible`."""
        return self.dtype.type(2 * self.infeasible)


def scale_for(weights: Sequence[int]) -> Scale:
    """The narrowest type with room for the highest total, for `infeasible` below its negative, and for four times that."""
    highest = MAX_NODE_SCORE * sum(weights)
    for dtype in (np.dtype(np.int16), np.dtype(np.int32), np.dtype(np.int64)):
        infeasible = int(np.iinfo(dtype).min) // 4
        if highest < -infeasible:
            return Scale(dtype, infeasible)
    raise ValueError(f"weights of score plugins add up to {sum(weights)}, allowed is less than {2**61 // MAX_NODE_SCORE}")


class Bringing(Protocol):
    """Port to what brings several sums up to date together."""

    def __len__(self) -> int:
        """Sums that it brings up to date together now."""

    def bring(self, sum_: UsageSum) -> bool:
        """Bring the sum up to date; False: it has to look at its changed rows by itself."""


class UsageSum(CachedColumn):
    """Filters and final scores that change with bindings, as one column."""

    __slots__ = (
        "_states",
        "column",
        "n_installed",
        "outside",
        "reads_usage_alone",
        "scale",
        "stack",
        "weights",
    )

    def __init__(
        self,
        key: Hashable,
        table: NodeTable,
        scale: Scale,
        filters: Sequence[ColumnKey],
        scores: Sequence[tuple[ColumnKey, int]],
    ) -> None:
        super().__init__(key, table, (*filters, *(question for question, _ in scores)), Log.USAGE)
        self.scale = scale
        self.column: TotalColumn = np.zeros(table.capacity, scale.dtype)
        """Shape (capacity,)."""
        self.outside: set[int] = set()
        """Rows to which some plugin gives a score outside 0..100."""
        self.n_installed = 0
        """How often all rows were evaluated anew."""
        self.weights = [0] * len(filters) + [weight for _, weight in scores]
        """Of each question; 0 of filters."""
        self.stack: Bringing | None = None
        """Where it goes along with other sums."""
        self.reads_usage_alone = self.follower.logs == table.logs_of(Log.USAGE)
        self._states: dict[bytes, int] = {}

    @property
    def n_bytes(self) -> int:
        # All the states it may remember count from the start, as nobody counts again while they come.
        return self.column.nbytes + (STATES_MAX * STATE_BYTES if self.reads_usage_alone else 0)

    def refresh(self, build: BuildColumns) -> list[int] | None:
        if not self.follower.is_behind():
            return []
        stack, mark = self.stack, self.follower.mark
        # Of a few rows it knows most states by itself; where a stack is at work, that knows all.
        if stack is None or (not len(stack) and self.follower.few_since(mark) is not None) or not stack.bring(self):
            return super().refresh(build)
        return self.follower.few_since(mark)

    def bring_along(self) -> bool:
        """Bring up to date where that can be done with other sums; False: nothing was done."""
        return self.stack is not None and (not self.follower.is_behind() or self.stack.bring(self))

    def values(self, rows: Rows) -> TotalColumn | None:
        """What it comes to on these rows; None where it cannot be said in a number. Shape (rows,). Raises PluginError."""
        answers = [question.ask(rows) for question in self.questions]
        if any(answer is None for answer in answers):
            return None
        values, outside = self._added_up(answers, rows.n)
        return values if outside is None else None

    def take_over(self, values: TotalColumn) -> None:
        """The values of all rows as they are now; each question has an answer and no score is outside. Shape (n_rows,)."""
        self.n_installed += 1
        self.column[: len(values)] = values
        self.outside.clear()
        self.has_answers([True] * len(self.questions))

    def refresh_rows(self, rows: list[int], build: BuildColumns) -> None:
        if not self.reads_usage_alone or len(rows) > FEW:
            super().refresh_rows(rows, build)
            return
        table, states = self.table, self._states
        unknown: list[tuple[int, bytes]] = []
        for row in rows:
            state = state_of(table, row)
            value = states.get(state)
            if value is None:
                unknown.append((row, state))
            else:
                self.column[row] = value
                self.outside.discard(row)
        if unknown:
            super().refresh_rows([row for row, _ in unknown], build)
            if len(states) + len(unknown) > STATES_MAX:
                states.clear()
            for row, state in unknown:
                if row not in self.outside:
                    states[state] = self.column.item(row)

    def write(self, selection: Selection, answers: Sequence[Answer]) -> None:
        if isinstance(selection, slice) and selection.stop - selection.start == 1:
            self.column[selection.start] = self._one(selection.start, answers)
            return
        values, outside = self._added_up(answers, self.table.n_rows if isinstance(selection, slice) else len(selection))
        rows: NDArray[np.intp] = (
            np.arange(selection.start, selection.stop, dtype=np.intp) if isinstance(selection, slice) else selection
        )
        self.column[selection] = values
        if outside is not None or self.outside:
            self.outside.difference_update(rows.tolist())
            if outside is not None:
                self.outside.update(rows[outside].tolist())

    def write_all(self, answers: Sequence[Answer]) -> None:
        self.n_installed += 1
        self.write(slice(0, self.table.n_rows), answers)

    def _one(self, row: int, answers: Sequence[Answer]) -> int:
        """The sum of one row; in plain integers a quarter of the time that arrays take."""
        total = 0
        rejected = is_outside = False
        for question, weight, answer in zip(self.questions, self.weights, answers, strict=True):
            if answer is None:
                continue
            value = answer.item(0)
            if question.part is PluginHalf.FILTER:
                rejected = rejected or value != 0
            elif 0 <= value <= MAX_NODE_SCORE:
                total += weight * value
            else:
                is_outside = True
        if is_outside:
            self.outside.add(row)
        else:
            self.outside.discard(row)
        return self.scale.infeasible if rejected else total

    def _added_up(self, answers: Sequence[Answer], n: int) -> tuple[TotalColumn, NDArray[np.bool_] | None]:
        """The sums, and where a score is outside 0..100; None: nowhere. Such a score counts as 0. Shapes (n,)."""
        total = np.zeros(n, np.int64)
        rejected: NDArray[np.bool_] | None = None
        outside: NDArray[np.bool_] | None = None
        for question, weight, answer in zip(self.questions, self.weights, answers, strict=True):
            if answer is None:
                continue
            if question.part is PluginHalf.FILTER:
                if np.count_nonzero(answer):
                    rejects: NDArray[np.bool_] = answer != 0
                    rejected = rejects if rejected is None else rejected | rejects
            elif n and int(answer.view(np.uint64).max()) > MAX_NODE_SCORE:
                # Without its sign a negative score is a huge one.
                beyond: NDArray[np.bool_] = (answer < 0) | (answer > MAX_NODE_SCORE)
                outside = beyond if outside is None else outside | beyond
                total += np.where(beyond, 0, answer) * weight
            else:
                total += answer if weight == 1 else answer * weight
        if rejected is not None:
            total[rejected] = self.scale.infeasible
        return total.astype(self.scale.dtype), outside
