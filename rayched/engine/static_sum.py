"""The part of a total that only node objects change, added up once for each set of bounds.

It holds which rows are nodes, the filters that bindings do not change (a row that one of them rejects is infeasible), the final
scores of such plugins, and normalised scores for certain bounds.

Bounds by proof: normalisation depends on the lowest and highest raw score over the feasible rows, which a single binding can
move. Finding them anew for each pod would cost more than all the rest. Bounds hold as long as some feasible row (a witness) has
each of the two values and no feasible row lies beyond them; both can be read off the total, because normalised scores never make
a row feasible or infeasible: raw scores are moved into the bounds before they are normalised.

Cost: a proof about 0.3 µs; new bounds one pass over the rows for each normalising plugin; a changed node about 10 µs besides what
its plugins take, and such a pass where raw scores differ between nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rayched.engine.cached_columns import (
    BOUNDS_MAX,
    OUTSIDE,
    Bounds,
    BuildColumns,
    ByteColumn,
    CachedColumn,
    FilterColumn,
    FinalScoreColumn,
    LogCursor,
    RawScoreColumn,
    refresh_each,
    selection_of,
)
from rayched.engine.column_store import CacheEntry
from rayched.engine.scale import Scale, TotalColumn
from rayched.framework.plugin import MAX_NODE_SCORE
from rayched.snapshot.change_log import FEW
from rayched.snapshot.columns import BoolColumn, Log, RowIndex, ScoreColumn
from rayched.snapshot.rows import Selection
from rayched.snapshot.table import NodeTable

AllBounds = tuple[Bounds, ...]
"""One pair for each normalising plugin of a static sum, in its order."""

WITNESSES_MAX: Final = 64
"""Rows kept for each end of the bounds. When none of them is feasible any more, the bounds are looked for anew."""
PROOFS_MAX: Final = 16
"""Proofs kept by a static sum: those of the bounds that columns are kept for, a few times over."""


@dataclass(frozen=True, slots=True)
class WeightedFinal:
    """A score column and the weight of its plugin."""

    kept: FinalScoreColumn
    weight: int


@dataclass(frozen=True, slots=True)
class WeightedRaw:
    """A raw score column and the weight of its plugin."""

    kept: RawScoreColumn
    weight: int


class StaticSum(CacheEntry):
    """What only changes with node objects; a column for each set of bounds in use."""

    __slots__ = (
        "_columns",
        "_follower",
        "_outside",
        "_proofs",
        "_ranged",
        "_ranges",
        "filters",
        "passing",
        "raw_scores",
        "scale",
        "scores",
        "table",
        "version",
    )

    def __init__(
        self,
        key: Hashable,
        table: NodeTable,
        scale: Scale,
        filters: Sequence[FilterColumn],
        scores: Sequence[WeightedFinal],
        raw_scores: Sequence[WeightedRaw],
    ) -> None:
        super().__init__(key)
        self.table = table
        self.scale = scale
        self.filters = tuple(filters)
        self.scores = tuple(scores)
        self.raw_scores = tuple(raw_scores)
        # Nodes that come and go are in every log; labels are one that bindings do not touch.
        reads = Log.LABELS
        for kept in self.kept():
            for question in kept.questions:
                reads |= question.asked.plugin.reads
        self._follower = LogCursor(table, reads)
        self.passing: BoolColumn = np.zeros(table.capacity, np.bool_)
        """Rows that are nodes and that no filter of this sum rejects. Shape (capacity,)."""
        self.version = 0
        """Grows whenever any row was brought up to date."""
        self._columns: dict[AllBounds, TotalColumn] = {}
        self._ranges: AllBounds | None = None
        self._ranged: list[ScoreColumn | None] = []
        """The columns that these are of."""
        self._proofs: dict[tuple[int, Bounds], BoundsProof] = {}
        self._outside: dict[AllBounds, bool] = {}

    @property
    def n_bytes(self) -> int:
        columns = sum(column.nbytes for column in self._columns.values())
        return self.passing.nbytes + columns + sum(proof.n_bytes for proof in self._proofs.values())

    def kept(self) -> list[CachedColumn]:
        """The columns that it is made of."""
        return [*self.filters, *(score.kept for score in self.scores), *(score.kept for score in self.raw_scores)]

    def is_behind(self) -> bool:
        """Whether a node changed since."""
        return self._follower.is_behind()

    def refresh(self, build: BuildColumns) -> list[int] | None:
        """Bring up to date. Gives the rows that were looked at; None: all of them. Raises PluginError."""
        if not self._follower.is_behind():
            return []
        refresh_each(self.kept(), build)
        self.version += 1
        rows = self._follower.changed(self.table.n_rows)
        if self._was_replaced():
            # What it scales to differs in all rows, as a plugin that says nothing of any row adds nothing to any.
            rows = None
        if rows is None:
            self._columns.clear()
            everything = slice(0, self.table.n_rows)
            self.passing[everything] = self.passing_now(everything)
        elif len(rows) <= FEW:
            for row in rows:
                self._write_row(row)
        else:
            selection = selection_of(rows)
            self.passing[selection] = self.passing_now(selection)
            repaired = {bounds: self._values(bounds, selection) for bounds in self._columns}
            for bounds, values in repaired.items():
                self._columns[bounds][selection] = values
        self._proofs.clear()
        if rows is None:
            self._ranges = None
            self._outside.clear()
        else:
            if self._ranges is not None and not self._keeps_ranges(rows):
                self._ranges = None
            known, self._outside = self._outside, {}
            self._outside = {bounds: False for bounds, outside in known.items() if not outside and self._is_inside(bounds, rows)}
        self._follower.catch_up()
        return rows

    def _was_replaced(self) -> bool:
        """Whether any raw score has another column than the last time."""
        columns = [score.kept.column for score in self.raw_scores]
        replaced = len(columns) != len(self._ranged)
        for column, before in zip(columns, self._ranged, strict=False):
            replaced |= column is not before
        self._ranged = columns
        return replaced

    def _keeps_ranges(self, rows: list[int]) -> bool:
        """Whether the ranges are as they were before these rows changed: all that pass have one raw score, and so have these."""
        assert self._ranges is not None
        for (lowest, highest), column in zip(self._ranges, self._ranged, strict=True):
            if lowest != highest:
                return False
            for row in rows:
                if self.passing.item(row) and (0 if column is None else column.item(row)) != lowest:
                    return False
        return True

    def _is_inside(self, bounds: AllBounds, rows: list[int]) -> bool:
        """Whether none of these rows has a score outside 0..100; False also where nobody has asked for these bounds lately."""
        if bounds not in self._columns or any(score.kept.n_outside for score in self.scores):
            return False
        scaled = [score.kept.scaled(pair) for score, pair in zip(self.raw_scores, bounds, strict=True)]
        return not any(column is not None and column.item(row) == OUTSIDE for column in scaled for row in rows)

    def _write_row(self, row: int) -> None:
        """As `passing_now` and `_values` for many rows."""
        passes = self.table.alive_rows.item(row) and not any(
            kept.column is not None and kept.column.item(row) for kept in self.filters
        )
        self.passing[row] = passes
        for bounds, column in self._columns.items():
            value = self.scale.infeasible
            if passes:
                finals = [(score.kept.column, score.weight) for score in self.scores]
                raws = [(one.kept.scaled(pair), one.weight) for one, pair in zip(self.raw_scores, bounds, strict=True)]
                value = sum(
                    min(scores.item(row), MAX_NODE_SCORE) * weight for scores, weight in (*finals, *raws) if scores is not None
                )
            column[row] = value

    def column(self, bounds: AllBounds) -> TotalColumn:
        """The sum with scores normalised for these bounds. Shape (capacity,)."""
        found = self._columns.get(bounds)
        if found is None:
            found = np.full(self.table.capacity, self.scale.infeasible, self.scale.dtype)
            rows = slice(0, self.table.n_rows)
            found[rows] = self._values(bounds, rows)
            if len(self._columns) >= BOUNDS_MAX:
                del self._columns[next(iter(self._columns))]
            self._columns[bounds] = found
        return found

    def ranges(self) -> AllBounds:
        """The lowest and highest raw scores over the rows that pass the filters of this sum: the bounds on an empty cluster."""
        if self._ranges is None:
            passing = self.passing[: self.table.n_rows].nonzero()[0]
            self._ranged = [score.kept.column for score in self.raw_scores]
            self._ranges = tuple(score.kept.bounds_over(passing) for score in self.raw_scores)
        return self._ranges

    def are_sure(self, bounds: AllBounds) -> bool:
        """Whether these are the bounds whichever rows are feasible: all rows that pass have the same raw scores, and these."""
        ranges = self.ranges()
        return all(low == high for low, high in ranges) and ranges == bounds

    def hold(self, bounds: AllBounds, total: TotalColumn) -> bool:
        """Whether these are the bounds over the feasible rows, of which there is one at least."""
        for place, (assumed, widest) in enumerate(zip(bounds, self.ranges(), strict=True)):
            if widest[0] == widest[1]:
                # All rows that could be feasible have the same raw score.
                if assumed != widest:
                    return False
                continue
            proof = self._proofs.get((place, assumed)) or self._prove(place, assumed, total)
            if proof is not None and not proof.holds(total):
                return False
        return True

    def bounds_of(self, total: TotalColumn) -> AllBounds:
        """The bounds over the feasible rows, of which there is one at least; known to hold until a row proves otherwise."""
        feasible = (total >= 0).nonzero()[0]
        bounds = tuple(score.kept.bounds_over(feasible) for score in self.raw_scores)
        for place, pair in enumerate(bounds):
            # Also where the bounds are the old ones: their witnesses were used up.
            self._prove(place, pair, total)
        return bounds

    def _prove(self, place: int, bounds: Bounds, total: TotalColumn) -> BoundsProof | None:
        column = self.raw_scores[place].kept.column
        if column is None:
            return None
        if len(self._proofs) >= PROOFS_MAX:
            self._proofs.clear()
        proof = self._proofs[place, bounds] = BoundsProof(column[: self.table.n_rows], self.passing, bounds, total)
        return proof

    def has_outside(self, bounds: AllBounds) -> bool:
        """Whether any score, after normalisation, lies outside 0..100."""
        found = self._outside.get(bounds)
        if found is None:
            scaled = [score.kept.scaled(pair) for score, pair in zip(self.raw_scores, bounds, strict=True)]
            found = any(score.kept.n_outside for score in self.scores) or any(
                column is not None and bool((column == OUTSIDE).any()) for column in scaled
            )
            if len(self._outside) >= PROOFS_MAX:
                self._outside.clear()
            self._outside[bounds] = found
        return found

    def passing_now(self, selection: Selection) -> BoolColumn:
        """Rows that are nodes and that no filter rejects; the filters' columns are up to date. Shape of the selection."""
        passing: BoolColumn = self.table.alive_rows[selection]
        for kept in self.filters:
            if kept.column is not None:
                passing = passing & (kept.column[selection] == 0)
        return passing

    def _values(self, bounds: AllBounds, selection: Selection) -> TotalColumn:
        passing = self.passing[selection]
        values = np.zeros(len(passing), self.scale.dtype)
        for score in self.scores:
            if score.kept.column is not None:
                values += weighted(score.kept.column[selection], score.weight, self.scale)
        for raw_score, pair in zip(self.raw_scores, bounds, strict=True):
            scaled = raw_score.kept.scaled(pair)
            if scaled is not None:
                values += weighted(scaled[selection], raw_score.weight, self.scale)
        values[~passing] = self.scale.infeasible
        return values


def weighted(scores: ByteColumn, weight: int, scale: Scale) -> TotalColumn:
    """Scores times weight. One that is OUTSIDE counts as 100: whatever it counts as, its row is not feasible or an error."""
    product: TotalColumn = np.minimum(scores, MAX_NODE_SCORE).astype(scale.dtype) * scale.dtype.type(weight)
    return product


class BoundsProof:
    """Rows that tell whether a pair of bounds holds."""

    __slots__ = ("_beyond", "_highest", "_lowest", "_witnesses")

    def __init__(self, raw: NDArray[np.int64], passing: BoolColumn, bounds: Bounds, total: TotalColumn) -> None:
        """`raw` and `total` have the shape (n_rows,). Rows that are feasible now make the best witnesses."""
        low, high = bounds
        feasible = total >= 0
        self._beyond: RowIndex = (((raw < low) | (raw > high)) & passing[: len(raw)]).nonzero()[0]
        self._lowest: RowIndex = ((raw == low) & feasible).nonzero()[0][:WITNESSES_MAX]
        self._highest: RowIndex = ((raw == high) & feasible).nonzero()[0][:WITNESSES_MAX]
        self._witnesses: list[int] = [0, 0]

    @property
    def n_bytes(self) -> int:
        return self._beyond.nbytes + self._lowest.nbytes + self._highest.nbytes

    def holds(self, total: TotalColumn) -> bool:
        if len(self._beyond) and (total[self._beyond] >= 0).any():
            return False
        return self._has_witness(0, self._lowest, total) and self._has_witness(1, self._highest, total)

    def _has_witness(self, end: int, rows: RowIndex, total: TotalColumn) -> bool:
        if not len(rows):
            return False
        if total.item(rows.item(self._witnesses[end])) >= 0:
            return True
        found = (total[rows] >= 0).nonzero()[0]
        if not len(found):
            return False
        self._witnesses[end] = found.item(0)
        return True
