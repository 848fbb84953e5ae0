"""Columns that are kept and brought up to date from the change logs that their plugins read.

    FilterColumn       codes of one plugin, uint8
    FinalScoreColumn   scores of a plugin that does not normalise, uint8; OUTSIDE marks what is not in 0..100
    RawScoreColumn     raw scores of a plugin that normalises, int64, and its normalised scores for a few bounds

Invariants:

* A column depends on nothing but the plugin, the key and the table: evaluated in full, by shards or row by row it is the same.
* The position in the logs moves only after everything was written. A plugin that raises leaves the column as it was, behind.
* A column lives no longer than the table's capacity and generation stay; the engine sees to that.
* A plugin that answers None has no column: it rejects nothing and adds nothing.

Several readers share a column, so none of them may conclude from "I refreshed nothing" that nothing changed: each keeps its own
position in the logs.

Cost: a changed row costs one call of the plugin on that row and about 2 µs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from rayched.engine.column_store import CacheEntry
from rayched.engine.plugin_calls import call_normalize
from rayched.engine.prepared import Answer, ColumnKey
from rayched.framework.plugin import MAX_NODE_SCORE, NormalizingPlugin
from rayched.snapshot.change_log import FEW, ChangeLog
from rayched.snapshot.columns import CodeColumn, Log, ScoreColumn
from rayched.snapshot.rows import Rows, Selection
from rayched.snapshot.table import NodeTable

CHUNK_ROWS: Final = 8_192
"""Rows in one call of a full evaluation: what a call works on stays in the processor's cache."""
OUTSIDE: Final = 255
"""In a column of scores: the plugin's score is not in 0..100, an error if the row is feasible."""
BOUNDS_MAX: Final = 4
"""Pairs of bounds for which normalised scores are kept."""

ByteColumn = NDArray[np.uint8]
Bounds = tuple[int, int]
"""(lowest, highest) raw score over the feasible rows."""


class LogCursor:
    """A position in several logs at once."""

    __slots__ = ("_only", "_seen", "logs", "mark")

    def __init__(self, table: NodeTable, reads: Log) -> None:
        self.logs: tuple[ChangeLog, ...] = table.logs_of(reads)
        self._only = self.logs[0] if len(self.logs) == 1 else None
        """The only log: most followers have one, and are asked at each decision."""
        self.mark: list[int] | None = None
        """Where it stands, for `changed_since`; another object after each `catch_up`. None: nowhere yet."""
        self._seen = -1

    @property
    def has_started(self) -> bool:
        return self.mark is not None

    @property
    def position(self) -> int:
        """Where it stands in the only log that it follows; -1: nowhere yet."""
        return -1 if self.mark is None else self.mark[0]

    def is_behind(self) -> bool:
        if self._only is not None:
            return self._only.end != self._seen
        # Ends only grow, so their sum tells whether any of them did.
        total = 0
        for log in self.logs:
            total += log.end
        return total != self._seen

    def changed(self, n_rows: int) -> list[int] | None:
        """Rows that changed since, ascending, each once; None: more than half of them, or nobody knows, so look at all."""
        return self.changed_since(self.mark, n_rows)

    def changed_since(self, mark: list[int] | None, n_rows: int) -> list[int] | None:
        """As `changed`, since it stood there."""
        if mark is None:
            return None
        entries: list[int] = []
        if self._only is not None:
            found = self._only.since(mark[0])
            if found is None:
                return None
            entries = found
        else:
            for log, position in zip(self.logs, mark, strict=True):
                found = log.since(position)
                if found is None:
                    return None
                entries = entries + found if entries else found
        if len(entries) <= 1:
            return entries
        if len(entries) > n_rows:
            # Almost always more than half of the rows; not worth finding out.
            return None
        rows = sorted(set(entries))
        return rows if 2 * len(rows) <= n_rows else None

    def few_since(self, mark: list[int] | None) -> list[int] | None:
        """As `changed_since`, with repetitions; None: more than FEW entries, or nobody knows."""
        if mark is None:
            return None
        if self._only is not None:
            return self._only.since(mark[0]) if self._only.end - mark[0] <= FEW else None
        rows = self.changed_since(mark, 2 * FEW)
        return rows if rows is not None and len(rows) <= FEW else None

    def catch_up(self) -> None:
        if self._only is not None:
            self._seen = self._only.end
            self.mark = [self._seen]
            return
        self.mark = [log.end for log in self.logs]
        self._seen = sum(self.mark)


def selection_of(rows: list[int]) -> Selection:
    """One row as a slice, which needs no gathering; more as an array."""
    return slice(rows[0], rows[0] + 1) if len(rows) == 1 else np.array(rows, np.intp)


class CachedColumn(CacheEntry):
    """Something that is worked out from answers to questions, for all rows, and follows the logs."""

    __slots__ = ("_answered", "follower", "questions", "reads", "table")

    def __init__(self, key: Hashable, table: NodeTable, questions: Sequence[ColumnKey], reads: Log = Log(0)) -> None:  # noqa: B008
        super().__init__(key)
        self.table = table
        self.questions = tuple(questions)
        for question in self.questions:
            more = question.asked.plugin.reads
            # To put two sets of flags together takes a microsecond.
            if more is not reads:
                reads = reads | more if reads else more
        self.reads = reads
        self.follower = LogCursor(table, reads)
        self._answered: list[bool] = []
        """Which questions had another answer than None."""

    @property
    def was_built(self) -> bool:
        """Whether all rows were evaluated once."""
        return self.follower.has_started

    def refresh(self, build: BuildColumns) -> list[int] | None:
        """Bring up to date. Gives the rows that were looked at, ascending; None: all of them. Raises PluginError."""
        if not self.follower.is_behind():
            return []
        rows = self.follower.changed(self.table.n_rows)
        if rows is None:
            build((self,))
        elif rows:
            self.refresh_rows(rows, build)
        self.follower.catch_up()
        return rows

    def refresh_rows(self, rows: list[int], build: BuildColumns) -> None:
        selection = selection_of(rows)
        asked = Rows(self.table, selection)
        answers = [question.ask(asked) for question in self.questions]
        for answer, answered in zip(answers, self._answered, strict=True):
            if (answer is not None) is not answered:
                build((self,))
                return
        self.write(selection, answers)

    def install(self, answers: Sequence[Answer]) -> None:
        """Take over answers for all rows of the table as it is now. Shapes (n_rows,)."""
        self.write_all(answers)
        self.has_answers([answer is not None for answer in answers])

    def has_answers(self, answered: list[bool]) -> None:
        """All rows are as of now; `answered`: which questions had another answer than None."""
        self._answered = answered
        self.follower.catch_up()

    @abstractmethod
    def write(self, selection: Selection, answers: Sequence[Answer]) -> None:
        """Take over answers for some rows, None for the same questions as before."""

    @abstractmethod
    def write_all(self, answers: Sequence[Answer]) -> None: ...


BuildColumns = Callable[[Sequence[CachedColumn]], None]
"""Evaluates all rows for these, wherever that is best done."""


class FilterColumn(CachedColumn):
    """Codes. Shape (capacity,), uint8; None: nothing is rejected."""

    __slots__ = ("column",)

    def __init__(self, key: Hashable, table: NodeTable, question: ColumnKey) -> None:
        super().__init__(key, table, (question,))
        self.column: CodeColumn | None = None

    @property
    def n_bytes(self) -> int:
        return 0 if self.column is None else self.column.nbytes

    def write(self, selection: Selection, answers: Sequence[Answer]) -> None:
        if self.column is not None and answers[0] is not None:
            self.column[selection] = answers[0]

    def write_all(self, answers: Sequence[Answer]) -> None:
        self.column = None if answers[0] is None else padded(answers[0], self.table.capacity)


class FinalScoreColumn(CachedColumn):
    """Scores that need no normalisation. Shape (capacity,), uint8; None: nothing is added."""

    __slots__ = ("column", "n_outside")

    def __init__(self, key: Hashable, table: NodeTable, question: ColumnKey) -> None:
        super().__init__(key, table, (question,))
        self.column: ByteColumn | None = None
        self.n_outside = 0
        """Rows marked OUTSIDE."""

    @property
    def n_bytes(self) -> int:
        return 0 if self.column is None else self.column.nbytes

    def write(self, selection: Selection, answers: Sequence[Answer]) -> None:
        if self.column is not None and answers[0] is not None:
            scores = as_scores(answers[0])
            self.n_outside += int(np.count_nonzero(scores == OUTSIDE)) - int(np.count_nonzero(self.column[selection] == OUTSIDE))
            self.column[selection] = scores

    def write_all(self, answers: Sequence[Answer]) -> None:
        self.column = None if answers[0] is None else padded(as_scores(answers[0]), self.table.capacity)
        self.n_outside = 0 if self.column is None else int(np.count_nonzero(self.column == OUTSIDE))


class RawScoreColumn(CachedColumn):
    """Raw scores, and normalised ones for the bounds that were asked for lately. Shapes (capacity,); None: nothing is added."""

    __slots__ = ("_scaled", "column")

    def __init__(self, key: Hashable, table: NodeTable, question: ColumnKey) -> None:
        super().__init__(key, table, (question,))
        self.column: ScoreColumn | None = None
        self._scaled: dict[Bounds, ByteColumn] = {}

    @property
    def n_bytes(self) -> int:
        scaled = sum(column.nbytes for column in self._scaled.values())
        return scaled if self.column is None else scaled + self.column.nbytes

    @property
    def plugin(self) -> NormalizingPlugin:
        return cast(NormalizingPlugin, self.questions[0].asked.plugin)

    def write(self, selection: Selection, answers: Sequence[Answer]) -> None:
        if self.column is not None and answers[0] is not None:
            # All that a plugin can fail on comes before the first write.
            repaired = {bounds: self._scale(answers[0], bounds) for bounds in self._scaled}
            self.column[selection] = answers[0]
            for bounds, scores in repaired.items():
                self._scaled[bounds][selection] = scores

    def write_all(self, answers: Sequence[Answer]) -> None:
        self._scaled.clear()
        self.column = None if answers[0] is None else padded(answers[0], self.table.capacity)

    def bounds_over(self, rows: NDArray[np.intp]) -> Bounds:
        """The lowest and highest raw score over these rows; (0, 0) where there are none."""
        if self.column is None or not len(rows):
            return 0, 0
        raw = self.column[rows]
        return int(raw.min()), int(raw.max())

    def scaled(self, bounds: Bounds) -> ByteColumn | None:
        """Normalised scores for these bounds of the feasible rows. Shape (capacity,), uint8."""
        if self.column is None:
            return None
        found = self._scaled.get(bounds)
        if found is None:
            found = padded(self._scale(self.column[: self.table.n_rows], bounds), self.table.capacity)
            if len(self._scaled) >= BOUNDS_MAX:
                del self._scaled[next(iter(self._scaled))]
            self._scaled[bounds] = found
        return found

    def _scale(self, raw: ScoreColumn, bounds: Bounds) -> ByteColumn:
        return as_scores(call_normalize(self.plugin, raw, *bounds))


def as_scores(scores: ScoreColumn) -> ByteColumn:
    """Scores as bytes, OUTSIDE where they are not in 0..100."""
    outside = (scores < 0) | (scores > MAX_NODE_SCORE)
    bytes_ = scores.astype(np.uint8)
    if outside.any():
        bytes_[outside] = OUTSIDE
    return bytes_


def padded(column: NDArray[Any], capacity: int) -> NDArray[Any]:
    """The column with zeros up to the table's capacity."""
    longer = np.zeros(capacity, column.dtype)
    longer[: len(column)] = column
    return longer


# ----------------------------------------------------------------------------------------------------- several at once


def refresh_each(kept: Iterable[CachedColumn], build: BuildColumns) -> None:
    """Bring several up to date; those that need all rows are built together. Raises PluginError."""
    behind = [one for one in kept if one.follower.is_behind()]
    build([one for one in behind if one.follower.changed(one.table.n_rows) is None])
    for one in behind:
        one.refresh(build)
