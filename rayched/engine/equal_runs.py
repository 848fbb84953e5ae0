"""Pods of one template that follow each other: the total is kept, and only rows that changed are added up again.

After two decisions in a row the total of their stage, the highest value in it and the rows that have it are still there. When the
same template is asked about next, what bindings changed is a row or two: their totals are written over, and the rows that tie are
repaired (`TopRows`). No pass over all rows is needed until the last of them is gone.

Counting filters lower the ceilings of some rows; which ones is seen by a comparison with the ceilings before. One counting score
may be added, if it is one for groups of rows (`GroupedTopRows`).

Where one row alone is feasible, nobody is asked for scores, and filters are followed by themselves until another one is.

A node object that changed, or went, is a changed row too. It says nothing, and the engine evaluates as ever, where the table
grew, where the bounds of a normalised score changed, which counting plugins have a score to add, or the ceilings of many rows, as
when a zone is full. So what comes of it is the same to the bit.

Owner: the Engine, which drops it whenever it evaluates in another way. Cost: 3 µs a decision, whatever the number of rows; half a
microsecond more for each further row that changed, 5 µs where a ceiling did, 30 µs for a node object and what counting plugins
read of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from rayched.engine.cached_columns import BuildColumns
from rayched.engine.evaluation import NOT_FEASIBLE, Evaluation
from rayched.engine.grouped_top_rows import GroupedTopRows, groups_to_follow
from rayched.engine.planner import CountedScore, Plan, ScoreSum
from rayched.engine.top_rows import TopRows
from rayched.engine.usage_values import TotalColumn
from rayched.framework.plugin_error import PluginError
from rayched.snapshot.row_groups import RowGroups

ROWS_MAX: Final = 16
"""With more changed rows than this a pass over all rows is as good."""
WORTH_IT: Final = 8
"""Decisions that a run has to be followed by, as its beginning takes as long as some evaluations."""
PAUSE: Final = 64
"""Decisions without a run after one that counting filters ended sooner, as they said something else of many rows, and where
counting scores let none begin."""


NO_ROWS: Final[frozenset[int]] = frozenset()


class EquivalentRuns:
    """The run that the next pod may follow, if it is like the last one."""

    __slots__ = ("_build", "_evaluated_last", "_run")

    def __init__(self, build: BuildColumns) -> None:
        self._build = build
        self._run: EquivalentPods | None = None
        self._evaluated_last: ScoreSum | None = None
        """A run begins with the second pod of a kind: where each is of another kind than the last one, all the others would be
        made for nothing."""

    def __bool__(self) -> bool:
        return self._run is not None

    def of(self, plan: Plan) -> EquivalentPods | None:
        """The run, where the last decision was of this plan."""
        run = self._run
        return run if run is not None and (run.stage is plan.scoring or run.stage is plan.filtering) else None

    def drop(self) -> None:
        """Something else is evaluated."""
        self._run = None

    def forget(self) -> None:
        """What was evaluated last is no more."""
        self._run = self._evaluated_last = None

    def evaluated(self, stage: ScoreSum, n_rows: int, *, whole: bool) -> None:
        """The stage was evaluated just now; `whole`: no rows were left out. Raises PluginError."""
        again, self._evaluated_last = stage is self._evaluated_last, stage
        if again and whole:
            self._run = EquivalentPods.begin(stage, n_rows)

    def follow(self, run: EquivalentPods, left_out: frozenset[int]) -> Evaluation | None:
        """What follows the last decision; None, or a PluginError that is raised: it has to be evaluated as a whole, and the run
        has ended."""
        try:
            found = run.next(self._build, left_out)
        except PluginError:
            self._run = None
            raise
        if found is None:
            self._run = None
        return found


class EquivalentPods:
    """The last decision of a stage, ready to be followed by the next."""

    __slots__ = (
        "_are_bounds_sure",
        "_ceiling",
        "_counts",
        "_followed",
        "_groups",
        "_leaders",
        "_left_out",
        "_logs",
        "_n_installed",
        "_revision",
        "_speaking",
        "_static",
        "_total",
        "_versions",
        "stage",
    )

    def __init__(self, stage: ScoreSum, n_rows: int, speaking: CountedScore | None, groups: RowGroups | None) -> None:
        """The stage's sums are up to date. `speaking`: the one of its counting scores that adds something, with its groups."""
        assert stage.bounds is not None
        self.stage = stage
        self._static = stage.static.column(stage.bounds)
        self._are_bounds_sure = stage.static.are_sure(stage.bounds)
        """Whichever rows are feasible: no node differs from another, as far as scores are normalised."""
        self._n_installed = stage.usage.n_installed
        counted = [*(one.asked for one in stage.rejections), *(one.asked for one in stage.counted)]
        self._counts = counted[0].counts if counted else None
        self._logs = tuple({id(log): log for asked in counted for log in asked.logs}.values())
        self._revision = self._revision_now()
        """What counting plugins say is known as of these revisions."""
        self._speaking = [] if speaking is None else [speaking]
        self._followed = 0
        """Decisions of this run."""
        self._ceiling = _lowest(self._ceilings(n_rows))
        """The highest total that each row may have. Shape (n_rows,); None: no counting filter rejects any."""
        self._versions = self._versions_now()
        self._total: TotalColumn = stage.usage.column[:n_rows] + self._static[:n_rows]
        """Without the counting score. Shape (n_rows,)."""
        if self._ceiling is not None:
            np.minimum(self._total, self._ceiling, out=self._total)
        self._left_out = NO_ROWS
        """Rows that are infeasible in the total for reasons that no plugin knows."""
        total = self._total
        # Not of `self`: what refers to itself stays in memory until garbage is collected, which is seldom.
        self._leaders = TopRows(lambda: total)
        self._groups = None if speaking is None or groups is None else GroupedTopRows(speaking, groups, self._total)

    @classmethod
    def begin(cls, stage: ScoreSum, n_rows: int) -> EquivalentPods | None:
        """After the stage was evaluated as a whole; None: its total is more than a run can follow. Raises PluginError."""
        if stage.run_pause:
            stage.run_pause -= 1
            return None
        if stage.loose or stage.bounds is None or stage.usage.outside or stage.static.has_outside(stage.bounds):
            return None
        speaking = _speaking(stage)
        if not speaking:
            return cls(stage, n_rows, None, None)
        groups = groups_to_follow(speaking[0]) if len(speaking) == 1 else None
        if groups is None:
            stage.run_pause = PAUSE
            return None
        return cls(stage, n_rows, speaking[0], groups)

    def next(self, build: BuildColumns, left_out: frozenset[int] = NO_ROWS) -> Evaluation | None:
        """The template once more; None: it has to be evaluated as a whole. Raises PluginError.

        `left_out`: rows that are not feasible for reasons that no plugin knows.
        """
        stage = self.stage
        usage, static = stage.usage, stage.static
        n_rows, follower = len(self._total), usage.follower
        changed: list[int] = []
        if static.is_behind():
            found = static.refresh(build) if static.table.n_rows == n_rows else None
            if found is None or len(found) > ROWS_MAX or not self._is_the_sum():
                return None
            changed = found
            assert stage.bounds is not None
            self._are_bounds_sure = static.are_sure(stage.bounds)
        if follower.is_behind():
            found = follower.changed(n_rows)
            if found is None or len(found) > ROWS_MAX:
                return None
            usage.refresh_rows(found, build)
            changed = [*changed, *found] if changed else found
            follower.catch_up()
            if usage.n_installed != self._n_installed or usage.outside:
                return None
        revision = self._revision_now()
        if revision != self._revision:
            lifted = self._follow_ceilings(n_rows)
            if _speaking(self.stage) != self._speaking:
                return None
            self._revision = revision
            if len(lifted) > ROWS_MAX:
                self.stage.run_pause = PAUSE if self._followed < WORTH_IT else 0
                return None
            if lifted:
                changed = [*changed, *lifted]
        if left_out is not self._left_out:
            changed = [*changed, *(left_out ^ self._left_out)]
            self._left_out = left_out
        for row in changed:
            self._write(row)
        self._followed += 1
        return self._evaluation()

    def _is_the_sum(self) -> bool:
        """After a refresh: whether the total has this static sum still, and no score of it is outside 0..100."""
        static, bounds = self.stage.static, self.stage.bounds
        assert bounds is not None
        return static.column(bounds) is self._static and not static.has_outside(bounds)

    def _evaluation(self) -> Evaluation | None:
        total, leaders = self._total, self._leaders
        if self._groups is not None:
            return self._groups.evaluation() if self._bounds_hold() else None
        best = leaders.best()
        if best < 0 or not self._bounds_hold():
            return None
        if not self.stage.scores:
            # With two feasible rows scores are asked for.
            alone = len(leaders.ties()) == 1
            return Evaluation(len(total), total, best, n_feasible=1, ties=leaders.ties(), after=leaders) if alone else None
        return Evaluation(len(total), total, best, ties=leaders.ties(), after=leaders)

    def _bounds_hold(self) -> bool:
        static, bounds = self.stage.static, self.stage.bounds
        assert bounds is not None
        return self._are_bounds_sure or static.hold(bounds, self._total)

    def _revision_now(self) -> int:
        """Grows with all that counting plugins go by."""
        revision = 0 if self._counts is None else self._counts.revision
        for log in self._logs:
            revision += log.end
        return revision

    def _ceilings(self, n_rows: int) -> list[TotalColumn]:
        """Of each counting filter that rejects any row. Shapes (n_rows,)."""
        columns = [rejection.ceilings() for rejection in self.stage.rejections]
        return [column[:n_rows] for column in columns if column is not None]

    def _versions_now(self) -> int:
        return sum(rejection.version for rejection in self.stage.rejections)

    def _follow_ceilings(self, n_rows: int) -> Sequence[int]:
        """Rows whose ceilings changed."""
        ceilings, versions = self._ceilings(n_rows), self._versions_now()
        if versions == self._versions:
            return ()
        before, self._versions = self._ceiling, versions
        self._ceiling = _lowest(ceilings)
        opened = self.stage.static.scale.open
        if before is None or self._ceiling is None:
            either = before if self._ceiling is None else self._ceiling
            differing = () if either is None else (either != opened).nonzero()[0]
        else:
            differing = (before != self._ceiling).nonzero()[0]
        return differing if len(differing) > ROWS_MAX else [int(row) for row in differing]

    def _write(self, row: int) -> None:
        value = self.stage.usage.column.item(row) + self._static.item(row)
        if self._ceiling is not None:
            value = min(value, self._ceiling.item(row))
        if row in self._left_out:
            value = self.stage.static.scale.infeasible
        old = self._total.item(row)
        if value == old:
            return
        self._total[row] = value
        if value >= 0 or old >= 0:
            (self._groups or self._leaders).write(row, max(old, NOT_FEASIBLE), max(value, NOT_FEASIBLE))


def _lowest(ceilings: Sequence[TotalColumn]) -> TotalColumn | None:
    """An array of its own, as whoever keeps ceilings writes into them; None: there are none."""
    return np.minimum.reduce(ceilings) if ceilings else None


def _speaking(stage: ScoreSum) -> list[CountedScore]:
    """Counting scores that add something now, or may."""
    return [score for score in stage.counted if not score.asked.is_silent()]
