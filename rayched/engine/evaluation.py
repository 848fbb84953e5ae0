"""What an evaluation says: which rows are feasible, their totals, and on request every plugin's part in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rayched.engine.scale import TotalColumn
from rayched.framework.status import SUCCESS, Code, Status
from rayched.snapshot.columns import BoolColumn, CodeColumn, RowIndex, ScoreColumn

NOT_FEASIBLE = -1
"""As `Evaluation.best`: no row is feasible."""


class Evaluation:
    """A template against all rows. Valid until the engine is asked again or the snapshot changes."""

    __slots__ = ("_added", "_n_feasible", "_rows", "_sum", "_ties", "best", "n_rows", "narrowed", "status")

    def __init__(
        self,
        n_rows: int,
        total: TotalColumn,
        best: int,
        *,
        status: Status = SUCCESS,
        rows: RowIndex | None = None,
        narrowed: frozenset[str] | None = None,
        n_feasible: int | None = None,
        ties: list[int] | None = None,
        added: Callable[[], TotalColumn] | None = None,
    ) -> None:
        """`added`: scores of feasible rows that `total` is still without; nobody may need them."""
        self.n_rows = n_rows
        """Length of the columns."""
        self.best = best
        """The highest total; NOT_FEASIBLE where no row is feasible.

        With exactly one feasible row it is any number from 0 up, as nobody need be asked for scores then.
        """
        self.status = status
        """SUCCESS, or why PreFilter rejected the pod; then no row is feasible."""
        self.narrowed = narrowed
        """Names of the only nodes that were looked at; None: all of them."""
        self._sum = total
        self._added = added
        self._rows = rows
        self._n_feasible = n_feasible
        self._ties = ties

    def of_no_rows(self) -> Evaluation:
        """The same with all rows left out that were feasible, as while many pods make room: nobody is asked for scores."""
        none: TotalColumn = np.full(self.n_rows, NOT_FEASIBLE, self._sum.dtype)
        return Evaluation(self.n_rows, none, NOT_FEASIBLE, narrowed=self.narrowed, n_feasible=0)

    @property
    def is_feasible(self) -> bool:
        """Whether any row is."""
        return self.best >= 0

    @property
    def _total(self) -> TotalColumn:
        """With all scores, of the rows that were looked at."""
        if self._added is not None:
            self._sum, self._added = self._sum + self._added(), None
        return self._sum

    @property
    def total(self) -> TotalColumn:
        """Totals; negative where a row is not feasible. Shape (n_rows,), signed integers as wide as the weights need."""
        if self._rows is None:
            return self._total
        total: TotalColumn = np.full(self.n_rows, NOT_FEASIBLE, self._total.dtype)
        total[self._rows] = self._total
        return total

    @property
    def feasible(self) -> BoolColumn:
        """Shape (n_rows,)."""
        feasible: BoolColumn = self.total >= 0
        return feasible

    @property
    def n_feasible(self) -> int:
        if self._n_feasible is None:
            self._n_feasible = int(np.count_nonzero(self._sum >= 0))
        return self._n_feasible

    @property
    def ties(self) -> RowIndex | list[int]:
        """As `best_rows`, in the form that is at hand. Not to be changed."""
        return self.best_rows if self._ties is None else self._ties

    @property
    def best_rows(self) -> RowIndex:
        """The feasible rows with the highest total, ascending. Shape (ties,)."""
        if self.best < 0:
            return np.zeros(0, np.intp)
        if self._ties is not None:
            return np.array(self._ties, np.intp)
        ties: RowIndex = (self._total == self.best).nonzero()[0]
        return ties if self._rows is None else self._rows[ties]

    def runners_up(self, best_rows: RowIndex | Sequence[int], n: int) -> list[tuple[int, int]]:
        """The `n` feasible rows after the best ones, with their totals, by falling total and ascending row; fewer where there are
        no more.

        `best_rows` are what the property gives. Cost: for each one search for the highest total.
        """
        if len(best_rows) >= (len(self._sum) if self._n_feasible is None else self._n_feasible):
            return []
        total, rows = self._total, self._rows
        best: RowIndex | Sequence[int] = best_rows if rows is None else np.searchsorted(rows, best_rows)
        found: list[tuple[int, int]] = []
        # For the time of the search nobody is in the way of the next one.
        for place in best:
            total[place] = NOT_FEASIBLE
        for _ in range(n if len(total) else 0):
            place = int(total.argmax())
            value = total.item(place)
            if value < 0:
                break
            found.append((place, value))
            total[place] = NOT_FEASIBLE
        for place in best:
            total[place] = self.best
        for place, value in found:
            total[place] = value
        return found if rows is None else [(int(rows[place]), value) for place, value in found]


@dataclass(frozen=True, slots=True)
class PluginColumns:
    """What one plugin says about some rows; None: nothing. All of shape (rows,).

    Scores are those of feasible rows and 0 elsewhere, as nobody asks for scores of other rows.
    """

    plugin: str
    codes: CodeColumn | None = None
    raw: ScoreColumn | None = None
    normalized: ScoreColumn | None = None
    weighted: ScoreColumn | None = None


@dataclass(frozen=True, slots=True)
class RowsEvaluation:
    """A template against some rows, plugin by plugin. All columns have the shape (rows,)."""

    index: RowIndex
    """The rows."""
    codes: CodeColumn
    """The code of the first filter that rejects a row; SUCCESS where none does.

    A row that is no node is UNSCHEDULABLE_AND_UNRESOLVABLE without a filter that fails.
    """
    failing: NDArray[np.int16]
    """The place of that filter in `filters`; -1 where none rejects the row."""
    filters: tuple[PluginColumns, ...]
    """Filters that are asked for this template, in their order."""
    scores: tuple[PluginColumns, ...]
    """Score plugins that add something, in their order."""
    total: ScoreColumn
    """Sum of the weighted scores; NOT_FEASIBLE where a row is not feasible."""

    @property
    def feasible(self) -> BoolColumn:
        feasible: BoolColumn = self.codes == Code.SUCCESS
        return feasible


@dataclass(frozen=True, slots=True)
class RowReason:
    """Why a filter rejects some rows, in words for people."""

    plugin: str
    reason: str
    rows: RowIndex
    codes: CodeColumn
    """The filter's, for each of these rows."""
    nominated: bool = False
    """It does so with the pods that are nominated there."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything about one template: PreFilter's word, then each plugin on each row that is looked at."""

    status: Status
    """SUCCESS, or why PreFilter rejected the pod; then there are no rows."""
    narrowed: frozenset[str] | None
    """Names of the only nodes worth looking at; None: all of them."""
    narrowing: tuple[str, ...]
    """Plugins that left out all the others."""
    rows: RowsEvaluation
    reasons: tuple[RowReason, ...]
    """Those of every filter for every row that it rejects, not of the first one alone."""
