"""Pods of one template that follow each other: the total is kept, and only rows that changed are added up again.

After two decisions in a row the total of their stage, the highest value in it and the rows that have it are still there. When the
same template is asked about next, what bindings changed is a row or two: their totals are written over, and the rows that tie are
repaired. No pass over all rows is needed until the last of them is gone. Where few tie at a time that is soon; a run in which it
happens again and again keeps the rows that come next as well (`NextBest`), and passes over all rows once for a hundred decisions.

It says nothing, and the engine evaluates as ever, where more than bindings changed: a node object, the bounds of a normalised
score, what a counting plugin says. So what comes of it is the same to the bit.

Owner: the Engine, which drops it whenever totals or columns change in another way. Cost: 3 µs a decision, whatever the number
of rows; half a microsecond more for each further row that changed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

from rayched.framework.evaluation import NOT_FEASIBLE, Evaluation
from rayched.framework.kept_columns import BuildColumns
from rayched.framework.plan import Stage
from rayched.framework.ranking import NextBest
from rayched.framework.usage_sum import TotalColumn

ROWS_MAX: Final = 16
"""With more changed rows than this a pass over all rows is as good."""
FEW: Final = 8
"""Rows that tie: with no more than these the next pass over all rows is near."""
PASSES: Final = 6
"""After so many passes that found few rows, or searches for the next ones, these are kept; that costs as much as ten of them."""


class EqualRun:
    """The last decision of a stage, ready to be followed by the next."""

    __slots__ = (
        "_best",
        "_counts",
        "_logs",
        "_n_installed",
        "_next",
        "_passes",
        "_plain_at",
        "_static",
        "_ties",
        "_total",
        "stage",
    )

    def __init__(self, stage: Stage, total: TotalColumn, best: int) -> None:
        """`total` and `best` are what the stage's sums came to just now, shape (n_rows,); the run writes into it."""
        assert stage.bounds is not None
        self.stage = stage
        self._total = total
        self._best = best
        self._static = stage.static.column(stage.bounds)
        self._n_installed = stage.usage.n_installed
        counted = [*(one.asked for one in stage.rejections), *(one.asked for one in stage.counted)]
        self._counts = counted[0].counts if counted else None
        self._logs = tuple({id(log): log for asked in counted for log in asked.logs}.values())
        self._plain_at = self._revision()
        """Counting plugins had no say as of these revisions."""
        self._ties: list[int] | None = None
        """Ascending. None: nobody has looked yet."""
        self._next: NextBest | None = None
        """What comes after those that tie, where it is kept; never while nobody knows these."""
        self._passes = 0
        """Passes over all rows that found few that tie, and searches for what comes after them."""

    @staticmethod
    def can_begin(stage: Stage) -> bool:
        """Whether the stage's total is its two sums and nothing else, just after they were added up."""
        return _is_plain(stage) and stage.bounds is not None and not stage.static.has_outside(stage.bounds)

    def next(self, build: BuildColumns) -> Evaluation | None:
        """The template once more; None: it has to be evaluated as a whole. Raises PluginError."""
        stage = self.stage
        usage, static = stage.usage, stage.static
        if static.is_behind() or not self._is_still_plain():
            return None
        n_rows, follower = len(self._total), usage.follower
        if follower.is_behind():
            rows = follower.changed(n_rows)
            if rows is None or len(rows) > ROWS_MAX:
                return None
            usage.refresh_rows(rows, build)
            follower.catch_up()
            if usage.n_installed != self._n_installed or usage.outside:
                return None
            for row in rows:
                self._write(row, usage.column.item(row) + self._static.item(row))
        if self._ties is not None and not self._ties:
            self._take_next()
        if self._best < 0:
            return None
        assert stage.bounds is not None
        if static.raw_scores and not static.hold(stage.bounds, self._total):
            return None
        if self._ties is None:
            self._ties = self._look()
        return Evaluation(n_rows, self._total, self._best, ties=self._ties, after=self)

    def first_after(self, n: int) -> list[int] | None:
        """The first `n` ranks after those that tie, for an evaluation that still holds, fewer where there are no more; None: they
        are not kept and have to be searched for."""
        found = None if self._next is None else self._next.first(n)
        if found is None and self._ties is not None:
            self._passes += 1
            if self._passes > PASSES:
                self._next = NextBest(self._total, self._best, len(self._ties))
                found = self._next.first(n)
        return found

    def _take_next(self) -> None:
        """All rows that tied are gone: the next ones take their place."""
        found = None if self._next is None else self._next.take_best()
        if found is not None:
            self._best, self._ties = found
            return
        self._ties = self._next = None
        self._best = int(self._total[self._total.argmax()])

    def _look(self) -> list[int]:
        """The rows that tie, by a pass over all of them."""
        ties: list[int] = (self._total == self._best).nonzero()[0].tolist()
        if len(ties) <= FEW:
            self._passes += 1
            if self._passes > PASSES:
                self._next = NextBest(self._total, self._best, len(ties))
        return ties

    def _is_still_plain(self) -> bool:
        revision = self._revision()
        if revision != self._plain_at:
            if not _is_plain(self.stage):
                return False
            self._plain_at = revision
        return True

    def _revision(self) -> int:
        """Grows with all that counting plugins go by."""
        revision = 0 if self._counts is None else self._counts.revision
        for log in self._logs:
            revision += log.end
        return revision

    def _write(self, row: int, value: int) -> None:
        total, ties, best, following = self._total, self._ties, self._best, self._next
        old = total.item(row)
        if value == old:
            return
        total[row] = value
        if ties is None:
            # Nobody has looked for the rows that tie; the highest value may be another one as well.
            self._best = int(total[total.argmax()])
            return
        if old == best:
            del ties[bisect_left(ties, row)]
            old = NOT_FEASIBLE
        if value > best:
            if following is not None:
                following.add_front(ties, best)
            self._best, self._ties = value, [row]
            value = NOT_FEASIBLE
        elif value == best:
            insort(ties, row)
            value = NOT_FEASIBLE
        if following is not None:
            following.move(row, old, value)


def _is_plain(stage: Stage) -> bool:
    """Nothing but the sums of usage and node objects has a say."""
    return (
        not stage.loose
        and not stage.usage.outside
        and all(rejection.ceilings() is None for rejection in stage.rejections)
        and all(score.asked.is_silent() for score in stage.counted)
    )
