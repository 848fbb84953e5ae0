"""Full evaluations that several workers share: what is asked of them, who decides whether it is worth it, how a worker answers.

A worker has a copy of some rows of the table and the same plugins. It is asked for columns by name of the plugin and a pod that
has the key, and answers for its rows; put together in the order of rows, the answers are the very columns that a local evaluation
gives. So nothing depends on how many workers there are, nor on whether one is late or dead: then it is done locally.

    price      what a row of a column takes, as measured last, by plugin and half (`RowPrices`)
    pays       whether workers would be done sooner; they know what handing over takes (`ShardEvaluator.pays`)
    given      an answer that is under way, or waits for its attempt. Its rows may change meanwhile: the answer is as of when
               the workers were asked, and rows that changed since are asked about here when it is taken (`GivenColumn`)

An attempt that may be made again is put off while workers evaluate (AttemptAwaits), so that whoever decides goes on with
everything else. Any other caller waits.

Owner: one Engine. Cost: 1 us a column that is evaluated here; a column that is given away what `actors/shards.py` says.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from rayched.engine.cached_columns import CHUNK_ROWS, CachedColumn
from rayched.engine.plugin_calls import call_prepare
from rayched.engine.prepared import Answer, ColumnKey, PluginHalf, PreparedPlugin, join
from rayched.engine.row_prices import RowPrices
from rayched.framework.plugin import ColumnPlugin
from rayched.framework.plugin_error import PluginError
from rayched.snapshot.rows import Rows
from rayched.snapshot.table import NodeTable
from rayched.snapshot.work_budget import AttemptAwaits
from rayched.v1.core_pb2 import Pod

PROBE_ROWS: Final = 64
"""A column that nobody knows the price of is asked for on so many rows first."""
_PROBE_ROWS_MAX: Final = 16 * PROBE_ROWS
_PROBE_SECONDS: Final = 0.002
"""Where so many rows take less it is asked for on four times as many, up to the most: a call by itself takes something."""
CHUNK_SECONDS: Final = 0.02
"""What the rows between two signs of life take at most, as far as is known."""
GIVEN_MAX: Final = 64
"""Answers that are under way or wait for their attempts; those that were asked for first are let go."""
STATES_MAX: Final = 4_096
"""Prepared states that a worker keeps."""


@dataclass(frozen=True, slots=True)
class ColumnRequest:
    """One column: a plugin's filter or score for all pods that have the same key as this one."""

    plugin: str
    part: PluginHalf
    pod: bytes
    """The pod, serialised."""


class SharedWork(Protocol):
    """Columns that workers were asked for."""

    @property
    def is_over(self) -> bool:
        """Everything was answered, or is not waited for any longer."""

    @property
    def until(self) -> float:
        """When it is over at the latest. Seconds, CLOCK_BOOTTIME."""

    def wait(self) -> None:
        """Until it is over."""

    def take(self) -> Sequence[Answer] | None:
        """Once it is over: a column for each request; None: a plugin raised. What nobody answered is evaluated here."""

    @property
    def seconds(self) -> Sequence[float] | None:
        """What the workers computed for each request; None where not all of them answered."""


class ShardEvaluator(Protocol):
    """Port to whoever evaluates shards of the table."""

    @property
    def always(self) -> bool:
        """Ask for every full evaluation, whether or not it is worth it: for tests."""

    def pays(self, seconds: float) -> bool:
        """Whether workers do sooner what takes so long here."""

    def begin(self, requests: Sequence[ColumnRequest], n_rows: int, seconds: float, *, ahead: bool) -> SharedWork | None:
        """Ask for a column of shape (n_rows,) for each request, as the table is now. None: there is nobody to ask.

        `seconds`: what it would take here, as far as is known. `ahead`: nobody needs it yet, and it may be left.
        """


@dataclass(slots=True)
class PoolCounts:
    """What workers have done."""

    evaluations: int = 0
    """Shards that workers answered for."""
    rows: int = 0
    """Of the columns that they answered with."""
    seconds: float = 0.0
    """What they computed."""
    local_evaluations: int = 0
    """Shards that were evaluated in their place."""


@dataclass(frozen=True, slots=True)
class GivenColumn:
    """One column of shared work, and where the table stood when it was asked for."""

    work: SharedWork
    place: int
    """Among the requests of the work, of which there are `n_requests`."""
    n_requests: int
    ends: tuple[int, ...]
    """Of the logs that the plugin reads."""
    n_rows: int
    generation: int
    capacity: int

    @classmethod
    def asked_now(cls, work: SharedWork, place: int, n_requests: int, table: NodeTable, question: ColumnKey) -> GivenColumn:
        ends = tuple(log.end for log in table.logs_of(question.asked.plugin.reads))
        return cls(work, place, n_requests, ends, table.n_rows, table.generation, table.capacity)

    def answer(self, table: NodeTable, question: ColumnKey) -> tuple[Answer] | None:
        """The column as the table is now. None: it cannot be known from what workers said. Raises PluginError."""
        answers = self.work.take()
        if answers is None or table.generation != self.generation or table.capacity != self.capacity:
            return None
        if len(answers) != self.n_requests or ((answer := answers[self.place]) is not None and answer.shape != (self.n_rows,)):
            return None
        changed = set[int]()
        for log, end in zip(table.logs_of(question.asked.plugin.reads), self.ends, strict=True):
            entries = log.since(end)
            if entries is None:
                return None
            changed.update(entries)
        if not changed:
            return (answer,)
        rows = np.array(sorted(changed), np.intp)
        repaired = question.ask(Rows(table, rows))
        if answer is None or repaired is None:
            return (None,) if answer is repaired else None
        column = np.zeros(table.n_rows, answer.dtype)
        column[: len(answer)] = answer
        column[rows] = repaired
        return (column,)


class ColumnBuilder:
    """Evaluates all rows, locally or by shards."""

    __slots__ = ("_given", "_last", "_prices", "_refused", "_revision", "_shards", "_table")

    def __init__(self, table: NodeTable, shards: ShardEvaluator | None) -> None:
        self._table = table
        self._shards = shards
        self._prices = RowPrices()
        self._given: OrderedDict[ColumnKey, GivenColumn] = OrderedDict()
        self._refused: set[ColumnKey] = set()
        """Columns at which workers failed, as their plugin raised: asked for here until it answers."""
        self._last: dict[ColumnKey, Answer] = {}
        """What was answered ahead."""
        self._revision = -1
        """The table's when it was."""

    def build(self, kept: Sequence[CachedColumn]) -> None:
        """Evaluate all rows for these. Raises PluginError, AttemptAwaits; then nothing was written."""
        if not kept:
            return
        answers = self._answers([question for one in kept for question in one.questions])
        for one in kept:
            one.install([answers[question] for question in one.questions])

    def ahead(self, questions: Sequence[ColumnKey]) -> list[Answer]:
        """Answers for all rows of the table as it is now; who builds next need not ask again. Raises as `build`."""
        found = self._answers(questions)
        self._last |= found
        self._revision = self._table.revision
        return [found[question] for question in questions]

    def give(self, kept: Iterable[CachedColumn], *, ahead: bool) -> None:
        """Ask workers for what pays of these, and wait for nothing; whoever builds them later finds it. `ahead`: see `begin`."""
        if self._shards is not None:
            questions = [question for one in kept if not one.was_built for question in one.questions]
            under_way = sum(not given.work.is_over for given in self._given.values())
            if under_way + len(questions) <= GIVEN_MAX:
                self._give(list(dict.fromkeys(questions)), ahead=ahead)

    def forget(self) -> None:
        """The table begins anew."""
        self._given.clear()
        self._refused.clear()
        self._last.clear()

    def _answers(self, asked: Sequence[ColumnKey]) -> dict[ColumnKey, Answer]:
        if self._revision != self._table.revision:
            self._last = {}
        known = {question: self._last.pop(question) for question in dict.fromkeys(asked) if question in self._last}
        return known | self._evaluate([question for question in dict.fromkeys(asked) if question not in known])

    def _evaluate(self, questions: Sequence[ColumnKey]) -> dict[ColumnKey, Answer]:
        if self._shards is None or not questions:
            return self._locally(questions)
        self._give(questions)
        works = [self._given[question].work for question in questions if question in self._given]
        if not all(work.is_over for work in works):
            if self._table.work.may_await:
                raise AttemptAwaits(_AllWork(works))
            for work in works:
                work.wait()
        found: dict[ColumnKey, Answer] = {}
        for question in questions:
            given = self._given.pop(question, None)
            answer = None if given is None else given.answer(self._table, question)
            if given is not None and answer is not None:
                found[question] = answer[0]
                if (seconds := given.work.seconds) is not None:
                    self._prices.note(question, given.n_rows, seconds[given.place])
            elif given is not None and given.work.take() is None:
                self._refused.add(question)
        return found | self._locally([question for question in questions if question not in found])

    def _give(self, wanted: Sequence[ColumnKey], *, ahead: bool = False) -> None:
        """Ask workers for those that pay and are not under way."""
        shards, table = self._shards, self._table
        if shards is None:
            return
        questions = [question for question in wanted if question not in self._given and question not in self._refused]
        costly = questions if shards.always else self._costly(questions, shards)
        if not costly:
            return
        seconds = table.n_rows * sum(self._prices.of(question) or 0.0 for question in costly)
        work = shards.begin([request_for(question) for question in costly], table.n_rows, seconds, ahead=ahead)
        if work is not None:
            self._forget_oldest(wanted)
            for place, question in enumerate(costly):
                self._given[question] = GivenColumn.asked_now(work, place, len(costly), table, question)

    def _forget_oldest(self, wanted: Sequence[ColumnKey]) -> None:
        """Answers that nobody came for."""
        if len(self._given) >= GIVEN_MAX:
            needless = [question for question, given in self._given.items() if given.work.is_over and question not in wanted]
            for question in needless[: len(self._given) - GIVEN_MAX + 1]:
                del self._given[question]

    def _costly(self, questions: Sequence[ColumnKey], shards: ShardEvaluator) -> Sequence[ColumnKey]:
        """Those that are worth a call. What takes little beside the others is done here meanwhile."""
        n_rows = self._table.n_rows
        if n_rows <= PROBE_ROWS:
            return ()
        try:
            seconds = [self._price(question) * n_rows for question in questions]
        except PluginError:
            # Whoever needs the column will meet it.
            return ()
        if not shards.pays(sum(seconds)):
            return ()
        return [question for question, one in zip(questions, seconds, strict=True) if shards.pays(len(questions) * one)]

    def _price(self, question: ColumnKey) -> float:
        """Seconds a row."""
        known = self._prices.of(question)
        return self._prices.note(question, *self._probed(question)) if known is None else known

    def _probed(self, question: ColumnKey) -> tuple[int, float]:
        """(rows, seconds that they take). What a call takes by itself is left out, unless few rows take long."""
        # The first call of a plugin may prepare what all others find, and any call may be held up.
        few = took = min(self._seconds_of(question, PROBE_ROWS) for _ in range(2))
        n_rows = PROBE_ROWS
        while took < _PROBE_SECONDS and 4 * n_rows <= min(_PROBE_ROWS_MAX, self._table.n_rows):
            n_rows *= 4
            took = self._seconds_of(question, n_rows)
        return (n_rows, few) if n_rows == PROBE_ROWS else (n_rows - PROBE_ROWS, max(took - few, 0.0))

    def _seconds_of(self, question: ColumnKey, n_rows: int) -> float:
        began = self._table.work.now()
        question.ask(Rows(self._table, slice(0, n_rows)))
        return self._table.work.now() - began

    def _locally(self, questions: Sequence[ColumnKey]) -> dict[ColumnKey, Answer]:
        """All rows of the table, in chunks whose columns all plugins share, with signs of life in between."""
        if not questions:
            return {}
        table, work = self._table, self._table.work
        pieces: dict[ColumnKey, list[Answer]] = {question: [] for question in questions}
        took = dict.fromkeys(questions, 0.0)
        prices = [self._prices.of(question) for question in questions]
        size = PROBE_ROWS if None in prices else _chunk_rows(sum(price or 0.0 for price in prices))
        stop = 0
        while stop < table.n_rows:
            start, stop = stop, min(stop + size, table.n_rows)
            rows = Rows(table, slice(start, stop))
            for question, answers in pieces.items():
                began = work.now()
                answers.append(question.ask(rows))
                took[question] += work.now() - began
            work.breathe()
            size = _chunk_rows(sum(took.values()) / stop)
        for question, seconds in took.items():
            self._prices.note(question, table.n_rows, seconds)
        self._refused.difference_update(questions)
        return {question: join(question.asked.plugin.name, question.part, answers) for question, answers in pieces.items()}


@dataclass(frozen=True, slots=True)
class _AllWork:
    """AwaitedWork: several at once."""

    works: Sequence[SharedWork]

    @property
    def is_over(self) -> bool:
        return all(work.is_over for work in self.works)

    @property
    def until(self) -> float:
        return max(work.until for work in self.works)


def _chunk_rows(price: float) -> int:
    """How many rows of so many seconds each are evaluated between two signs of life."""
    return CHUNK_ROWS if price * CHUNK_ROWS <= CHUNK_SECONDS else max(PROBE_ROWS, int(CHUNK_SECONDS / price))


def request_for(question: ColumnKey) -> ColumnRequest:
    return ColumnRequest(question.asked.plugin.name, question.part, question.asked.content)


class ShardAnswers:
    """The worker's side: answers requests from its copy of the table."""

    __slots__ = ("_asked", "_plugins", "_table")

    def __init__(self, table: NodeTable, plugins: Mapping[str, ColumnPlugin]) -> None:
        self._table = table
        self._plugins = plugins
        self._asked: OrderedDict[tuple[str, bytes], PreparedPlugin] = OrderedDict()

    def answer(
        self, requests: Sequence[ColumnRequest], rows: slice, clock: Callable[[], float] = lambda: 0.0
    ) -> tuple[list[Answer], list[float]]:
        """A column for each request over these rows, of which there is one at least, and how many seconds of the clock each took.

        Raises PluginError, and KeyError for a plugin that is not there.
        """
        questions = [self._question(request) for request in requests]
        pieces: list[list[Answer]] = [[] for _ in requests]
        seconds = [0.0] * len(requests)
        for start in range(rows.start, rows.stop, CHUNK_ROWS):
            chunk = Rows(self._table, slice(start, min(start + CHUNK_ROWS, rows.stop)))
            for place, question in enumerate(questions):
                began = clock()
                pieces[place].append(question.ask(chunk))
                seconds[place] += clock() - began
        return [join_shards(request, answers) for request, answers in zip(requests, pieces, strict=True)], seconds

    def _question(self, request: ColumnRequest) -> ColumnKey:
        key = request.plugin, request.pod
        asked = self._asked.get(key)
        if asked is None:
            plugin = self._plugins[request.plugin]
            asked = self._asked[key] = PreparedPlugin(key, plugin, call_prepare(plugin, Pod.FromString(request.pod)), request.pod)
            if len(self._asked) > STATES_MAX:
                self._asked.popitem(last=False)
        else:
            self._asked.move_to_end(key)
        return ColumnKey(asked, request.part)


def join_shards(request: ColumnRequest, answers: Sequence[Answer]) -> Answer:
    """Answers to one request for consecutive sets of rows, put together."""
    return join(request.plugin, request.part, answers)
