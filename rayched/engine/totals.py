"""The total of a plan's sum, kept from decision to decision: only rows that changed are added up again.

    total(row) = min(usage(row) + static(row), caps(row)) + rescaled(row) + counted(row)

The minimum is kept as a column. Each of its parts says which rows changed since it was asked last. Up to FEW rows are written one
by one, more by one addition over all rows. After a few decisions with few changed rows the best rows are followed as well
(`TopRows`), so that no pass over all rows is needed until the last of those that tie is gone; where one counting score goes by
groups of rows, the best rows of each group (`GroupedTopRows`).

What cannot be kept is added to a copy: rescaled scores, whose bounds move with each binding, and counted scores without groups.

Invariants:

* A total is what adding up all its parts anew gives, to the bit. Nothing depends on whether it was kept.
* After a plugin raised, all rows are added up anew.
* The totals of the plans that were asked for last are kept, as many as TOTALS_BYTES_MAX holds. Another one is made anew.

Owner: the Engine. Cost: 3 µs a decision, whatever the number of rows, and half a microsecond for each further row that changed;
10 µs at 5,000 rows where many did.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

import numpy as np

from rayched.engine.cached_columns import BuildColumns, refresh_each
from rayched.engine.domain_state import DomainRejection, score_counted
from rayched.engine.evaluation import NOT_FEASIBLE, Evaluation
from rayched.engine.grouped_top_rows import GroupedTopRows, groups_to_follow
from rayched.engine.scale import TotalColumn
from rayched.engine.score_caps import NO_ROWS, RowsCap, RowSet, ScoreCap
from rayched.engine.score_range import check_scores
from rayched.engine.score_sum import CountedScore, ScoreSum
from rayched.engine.static_sum import AllBounds, weighted
from rayched.engine.top_rows import TopRows
from rayched.snapshot.change_log import FEW
from rayched.snapshot.rows import Rows, compact
from rayched.snapshot.table import NodeTable

FOLLOWED_MIN: Final = 4
"""After so many decisions with few changed rows the best rows are followed, which to begin takes as long as some passes."""
TOTALS_BYTES_MAX: Final = 64 << 20
"""What all totals take up, the last one apart: at 5,000 nodes those of 4,096 plans that take turns."""
TIE_BYTES: Final = 36
"""What a row that ties takes."""


class KeptTotals:
    """The totals of the sums that were asked for last."""

    __slots__ = ("_build", "_bytes", "_last", "_recent", "_table")

    def __init__(self, table: NodeTable, build: BuildColumns) -> None:
        self._table = table
        self._build = build
        self._recent: OrderedDict[ScoreSum, KeptTotal] = OrderedDict()
        self._bytes = 0
        self._last: KeptTotal | None = None

    def __len__(self) -> int:
        return len(self._recent)

    def evaluate(self, of: ScoreSum, left_out: RowSet = NO_ROWS) -> Evaluation:
        """`left_out`: rows that are not feasible for reasons that no plugin knows. Raises PluginError.

        Rows in an array are those that nobody will leave out again, so nothing is kept of that.
        """
        total = self._last
        if total is None or total.of is not of:
            total = self._turn_to(of)
        if not isinstance(left_out, frozenset):
            total = KeptTotal(of, self._table)
        return total.evaluation(self._build, left_out)

    def forget(self, of: ScoreSum) -> None:
        """Nobody asks for it any more."""
        total = self._recent.pop(of, None)
        if total is not None:
            self._bytes -= total.accounted
        if self._last is not None and self._last.of is of:
            self._last = None

    def _turn_to(self, of: ScoreSum) -> KeptTotal:
        last = self._last
        if last is not None and (found := last.n_bytes) != last.accounted:
            # Its best rows have come since, or gone.
            self._bytes += found - last.accounted
            last.accounted = found
        total = self._recent.get(of)
        if total is None:
            total = self._recent[of] = KeptTotal(of, self._table)
            total.accounted = total.n_bytes
            self._bytes += total.accounted
        else:
            self._recent.move_to_end(of)
        self._last = total
        while self._bytes > TOTALS_BYTES_MAX and len(self._recent) > 1:
            self.forget(next(iter(self._recent)))
        return total


class KeptTotal:
    """The total of one sum as of its last evaluation."""

    __slots__ = (
        "_are_bounds_sure",
        "_bounds",
        "_caps",
        "_column",
        "_counts",
        "_groups",
        "_is_static_outside",
        "_is_written",
        "_kept_free",
        "_logs",
        "_lowering",
        "_n_followed",
        "_n_installed",
        "_revision",
        "_speaking",
        "_static",
        "_static_version",
        "_table",
        "_top",
        "_usage_mark",
        "_versions",
        "accounted",
        "of",
    )

    def __init__(self, of: ScoreSum, table: NodeTable) -> None:
        self.of: Final = of
        self.accounted = 0
        """Bytes that it counts with."""
        self._table = table
        self._column: TotalColumn = np.zeros(table.n_rows, of.static.scale.dtype)
        """Without rescaled and counted scores. Shape (n_rows,)."""
        self._is_written = False
        """Whether the column has all that happened up to the last evaluation."""
        self._bounds: AllBounds | None = of.bounds
        """Of the static sum, as the column has it."""
        self._static: TotalColumn = self._column
        """The static sum by these bounds. Shape (n_rows or more,)."""
        self._is_static_outside = False
        """Whether it has a score outside 0..100, feasible or not."""
        self._are_bounds_sure = False
        """Whichever rows are feasible: no node differs from another, as far as scores are normalised."""
        self._static_version = self._n_installed = -1
        self._usage_mark: list[int] | None = None
        """Where the usage sum stood."""
        self._kept_free = RowsCap(of.static.scale)
        self._caps: tuple[ScoreCap, ...] = (*of.caps, self._kept_free)
        self._versions = [-1] * len(self._caps)
        self._lowering: list[ScoreCap] = []
        """Caps that lower some total."""
        counting = [*(cap.asked for cap in of.caps if isinstance(cap, DomainRejection)), *(score.asked for score in of.counted)]
        self._counts = counting[0].counts if counting else None
        logs = [log for cap in of.caps for log in cap.logs] + [log for score in of.counted for log in score.asked.logs]
        self._logs = tuple({id(log): log for log in logs}.values())
        self._revision = -1
        """Of all that caps and counting scores go by."""
        self._n_followed = 0
        """Decisions since all rows were written."""
        self._top: TopRows | None = None
        """Its best rows, where these are followed."""
        self._groups: GroupedTopRows | None = None
        """The same with the counting score that speaks, in place of `_top`."""
        self._speaking: list[CountedScore] = []
        """Counting scores that add something, or may."""

    @property
    def n_bytes(self) -> int:
        n_ties = 0 if self._top is None else self._top.n_listed
        return self._column.nbytes + TIE_BYTES * (n_ties if self._groups is None else len(self._column))

    def evaluation(self, build: BuildColumns, kept_free: RowSet) -> Evaluation:
        """Bring up to date, and say what the template comes to. Raises PluginError."""
        if kept_free is not self._kept_free.rows:
            self._kept_free.become(kept_free)
        self._refresh(build)
        groups, self._groups = self._groups, None
        if groups is not None:
            found = groups.evaluation() if self._are_followed(groups) else None
            if found is not None:
                self._groups = groups
                return found
            # What ended it may soon end it again: to begin takes as long as some decisions.
            self._n_followed = -FEW
        best = self._best() if self._top is None else self._top.best()
        if best < 0:
            return Evaluation(len(self._column), self._column, NOT_FEASIBLE, n_feasible=0)
        if not self._are_bounds_sure and not self._bounds_hold():
            self._settle_bounds()
            best = self._best()
        of, column, top = self.of, self._column, self._top
        if not of.scores:
            # All feasible rows have the same total.
            ties = None if top is None else top.ties()
            return Evaluation(len(column), column, best, n_feasible=None if ties is None else len(ties), ties=ties)
        is_outside = self._is_static_outside or bool(of.usage.outside)
        if self._speaking or of.rescaled:
            found = None if is_outside else self._grouped()
            found = self._added_to(build) if found is None else found
        elif top is None:
            found = Evaluation(len(column), column, best)
        else:
            found = Evaluation(len(column), column, best, ties=top.ties())
        if (is_outside or of.rescaled) and found.n_feasible > 1:
            assert self._bounds is not None
            check_scores(of, found.total)
        return found

    # --------------------------------------------------------------------------------------------------- the kept column

    def _refresh(self, build: BuildColumns) -> None:
        """Bring all parts up to date, and write what changed."""
        was_written, self._is_written = self._is_written, False
        changed = self._changed_of_sums(build)
        revision = self._kept_free.version if self._counts is None else self._kept_free.version + self._counts.revision
        for log in self._logs:
            revision += log.end
        if revision != self._revision:
            changed = self._changed_of_caps(build, changed)
            self._lowering = [cap for cap in self._caps if cap.is_lowering]
            self._revision = revision
        if not was_written or changed is None or len(changed) > FEW or len(self._column) != self._table.n_rows:
            self._write_all()
        else:
            self._n_followed += 1
            if changed:
                self._write_rows(changed)
        self._is_written = True

    def _changed_of_sums(self, build: BuildColumns) -> list[int] | None:
        """Rows of which the usage sum or the static sum changed; None: perhaps of all."""
        usage, static = self.of.usage, self.of.static
        changed: list[int] | None = []
        if static.is_behind() or static.version != self._static_version:
            is_in_step = static.version == self._static_version
            found = static.refresh(build)
            changed = found if is_in_step else None
            self._take_bounds(static.ranges() if self._bounds is None else self._bounds)
            self._static_version = static.version
        mark = self._usage_mark
        is_in_step = usage.follower.mark is mark
        found = usage.refresh(build)
        if usage.n_installed != self._n_installed:
            found, self._n_installed = None, usage.n_installed
        elif not is_in_step:
            # Another plan with this sum had its turn in between.
            found = usage.follower.few_since(mark)
        self._usage_mark = usage.follower.mark
        if found is None or changed is None:
            return None
        return [*changed, *found] if changed else found

    def _changed_of_caps(self, build: BuildColumns, changed: list[int] | None) -> list[int] | None:
        """These rows, and those of which any cap changed; None: too many."""
        of, versions = self.of, self._versions
        for cap in of.caps:
            cap.refresh(build)
        now = [cap.version for cap in self._caps]
        if changed is not None and now != versions:
            for each, version, before in zip(self._caps, now, versions, strict=True):
                if version != before and changed is not None:
                    rows = each.changed_since(before)
                    changed = None if rows is None or len(rows) > FEW else [*changed, *rows]
        self._versions = now
        if of.counted:
            self._speaking = [score for score in of.counted if not score.asked.is_silent()]
        return changed

    def _take_bounds(self, bounds: AllBounds) -> None:
        """These are those of the static sum, as the column is to have it. Raises PluginError."""
        static = self.of.static
        # A plugin may raise here: then nothing has been taken.
        column, are_sure, has_outside = static.column(bounds), static.are_sure(bounds), static.has_outside(bounds)
        if bounds != self.of.bounds:
            self.of.bounds = bounds
        self._bounds, self._static = bounds, column
        self._are_bounds_sure, self._is_static_outside = are_sure, has_outside

    def _write_all(self) -> None:
        n_rows = self._table.n_rows
        if len(self._column) != n_rows:
            self._column = np.zeros(n_rows, self._column.dtype)
        np.add(self.of.usage.column[:n_rows], self._static[:n_rows], out=self._column)
        for cap in self._caps:
            cap.lower(self._column)
        self._n_followed = 0
        self._top = self._groups = None

    def _write_rows(self, rows: list[int]) -> None:
        usage, static, column = self.of.usage.column, self._static, self._column
        top = self._groups or self._top
        for row in rows:
            value = usage.item(row) + static.item(row)
            for cap in self._lowering:
                value = min(value, cap.of(row))
            old = column.item(row)
            if value != old:
                column[row] = value
                if top is not None and (value >= 0 or old >= 0):
                    top.write(row, old if old >= 0 else NOT_FEASIBLE, value if value >= 0 else NOT_FEASIBLE)

    # ------------------------------------------------------------------------------------------------ bounds and the best

    def _best(self) -> int:
        """The highest total in the column; negative where no row is feasible."""
        column = self._column
        if self._n_followed >= FOLLOWED_MIN:
            # Not a method of `self`: what refers to itself stays in memory until garbage is collected, which is seldom.
            self._top = TopRows(lambda: column)
            return self._top.best()
        return int(column[column.argmax()]) if len(column) else NOT_FEASIBLE

    def _bounds_hold(self) -> bool:
        """Whether the column has the bounds over the feasible rows, of which there is one at least."""
        assert self._bounds is not None
        return self._are_bounds_sure or self.of.static.hold(self._bounds, self._column)

    def _settle_bounds(self) -> None:
        bounds = self.of.static.bounds_of(self._column)
        if bounds != self._bounds:
            # Which rows are feasible stays as it is.
            self._is_written = False
            self._take_bounds(bounds)
            self._write_all()
            self._is_written = True

    # ----------------------------------------------------------------------------------------------- what is added to it

    def _are_followed(self, groups: GroupedTopRows) -> bool:
        """Whether nothing is added to the column but the score that these are of."""
        is_outside = self._is_static_outside or bool(self.of.usage.outside)
        return len(self._speaking) == 1 and self._speaking[0] is groups.score and not is_outside and self._bounds_hold()

    def _grouped(self) -> Evaluation | None:
        """By the best rows of each group, where one counting score alone has something to add; None: there are none."""
        if len(self._speaking) != 1 or self.of.rescaled or self._n_followed < FOLLOWED_MIN:
            return None
        groups = groups_to_follow(self._speaking[0])
        if groups is None:
            return None
        top = GroupedTopRows(self._speaking[0], groups, self._column)
        found = top.evaluation()
        if found is not None:
            self._groups, self._top = top, None
        return found

    def _added_to(self, build: BuildColumns) -> Evaluation:
        """With the scores that cannot be kept."""
        total = self._column.copy()
        if self.of.rescaled:
            self._add_rescaled(build, total)
        # What speaks may have fallen silent since it was asked.
        speaking = [score for score in self._speaking if not score.asked.is_silent()]
        if speaking:
            self._add_counted(speaking, total)
        return Evaluation(len(total), total, int(total[total.argmax()]))

    def _add_rescaled(self, build: BuildColumns, total: TotalColumn) -> None:
        """Scores that are normalised and change with bindings: their bounds are looked for each time."""
        feasible = (total >= 0).nonzero()[0]
        rescaled, scale = self.of.rescaled, self.of.static.scale
        refresh_each([score.kept for score in rescaled], build)
        for score in rescaled:
            scaled = score.kept.scaled(score.kept.bounds_over(feasible))
            if scaled is not None:
                total += weighted(scaled[: len(total)], score.weight, scale)

    def _add_counted(self, speaking: list[CountedScore], total: TotalColumn) -> None:
        """Scores of counting plugins, which depend on what is feasible; nobody asks for them while one row at most is."""
        feasible = total >= 0
        n_feasible = int(np.count_nonzero(feasible))
        if n_feasible < 2:
            return
        rows: Rows | None = None
        for score in speaking:
            by_group = score.by_group
            if by_group is not None and by_group.add(total, feasible, n_feasible, self._circumstances) is not None:
                continue
            if rows is None:
                rows = Rows(self._table, compact(feasible.nonzero()[0]))
            found = score_counted(score.asked, rows)
            if found is not None:
                total[rows.selection] += (found[1] * score.weight).astype(total.dtype)

    def _circumstances(self) -> Hashable | None:
        """While they are the same a row can only have become feasible if it is in the log of usage; None: they never are."""
        return None if len(self._kept_free.rows) else (self._static_version, *self._versions)
