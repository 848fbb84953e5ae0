"""Full evaluations that several workers share: what is asked of them, who decides whether it is worth it, how a worker answers.

A worker has a copy of some rows of the table and the same plugins. It is asked for columns by name of the plugin and a pod that
has the key, and answers for its rows; put together in the order of rows, the answers are the very columns that a local evaluation
gives. So nothing depends on how many workers there are, nor on whether one is late or dead: then it is done locally.

Cost: a call to workers is worth about 4 ms of local work; below, nobody is asked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rayched.engine.cached_columns import CHUNK_ROWS, CachedColumn, answer_in_full
from rayched.engine.plugin_calls import call_prepare
from rayched.engine.prepared import Answer, ColumnKey, PluginHalf, PreparedPlugin, join
from rayched.framework.plugin import ColumnPlugin
from rayched.snapshot.rows import Rows
from rayched.snapshot.table import NodeTable
from rayched.v1.core_pb2 import Pod

LOCAL_WORK_MAX_SECONDS: Final = 0.004
"""Workers are asked for more than this."""
SECONDS_PER_ROW: Final = 20e-9
"""What a row of a column takes, a guess over the in-tree plugins (measured: 4 to 60 ns)."""
STATES_MAX: Final = 4_096
"""Prepared states that a worker keeps."""


@dataclass(frozen=True, slots=True)
class ColumnRequest:
    """One column: a plugin's filter or score for all pods that have the same key as this one."""

    plugin: str
    part: PluginHalf
    pod: bytes
    """The pod, serialised."""


class ShardEvaluator(Protocol):
    """Port to whoever evaluates shards of the table."""

    @property
    def always(self) -> bool:
        """Ask for every full evaluation, whether or not it is worth it: for tests."""

    def evaluate(self, requests: Sequence[ColumnRequest], n_rows: int) -> Sequence[Answer] | None:
        """A column of shape (n_rows,) for each request, as the table is now; None: somebody is late or dead, or a plugin raised.

        The caller then evaluates locally and so finds out what a plugin has to say.
        """


class ColumnBuilder:
    """Evaluates all rows, locally or by shards."""

    __slots__ = ("_last", "_revision", "_shards", "_table")

    def __init__(self, table: NodeTable, shards: ShardEvaluator | None) -> None:
        self._table = table
        self._shards = shards
        self._last: dict[ColumnKey, Answer] = {}
        """What was answered ahead."""
        self._revision = -1
        """The table's when it was."""

    def build(self, kept: Sequence[CachedColumn]) -> None:
        """Evaluate all rows for these. Raises PluginError; then nothing was written."""
        if not kept:
            return
        answers = self._answers([question for one in kept for question in one.questions])
        for one in kept:
            one.install([answers[question] for question in one.questions])

    def ahead(self, questions: Sequence[ColumnKey]) -> list[Answer]:
        """Answers for all rows of the table as it is now; who builds next need not ask again. Raises PluginError."""
        self._last, self._revision = self._answers(questions), self._table.revision
        return [self._last[question] for question in questions]

    def _answers(self, asked: Sequence[ColumnKey]) -> dict[ColumnKey, Answer]:
        last, self._last = self._last if self._revision == self._table.revision else {}, {}
        known = {question: last[question] for question in asked if question in last}
        return known | self._evaluate([question for question in dict.fromkeys(asked) if question not in known])

    def _evaluate(self, questions: Sequence[ColumnKey]) -> dict[ColumnKey, Answer]:
        if self._shards is not None and questions:
            local_seconds = len(questions) * self._table.n_rows * SECONDS_PER_ROW
            if self._shards.always or local_seconds > LOCAL_WORK_MAX_SECONDS:
                columns = self._shards.evaluate([request_for(question) for question in questions], self._table.n_rows)
                if columns is not None and self._are_complete(columns, len(questions)):
                    return dict(zip(questions, columns, strict=True))
        return answer_in_full(self._table, questions)

    def _are_complete(self, columns: Sequence[Answer], expected: int) -> bool:
        n_rows = self._table.n_rows
        return len(columns) == expected and all(column is None or column.shape == (n_rows,) for column in columns)


def request_for(question: ColumnKey) -> ColumnRequest:
    return ColumnRequest(question.asked.plugin.name, question.part, question.asked.content)


class ShardAnswers:
    """The worker's side: answers requests from its copy of the table."""

    __slots__ = ("_asked", "_plugins", "_table")

    def __init__(self, table: NodeTable, plugins: Mapping[str, ColumnPlugin]) -> None:
        self._table = table
        self._plugins = plugins
        self._asked: OrderedDict[tuple[str, bytes], PreparedPlugin] = OrderedDict()

    def answer(self, requests: Sequence[ColumnRequest], rows: slice) -> list[Answer]:
        """A column for each request over these rows, of which there is one at least.

        Raises PluginError, and KeyError for a plugin that is not there.
        """
        questions = [self._question(request) for request in requests]
        pieces: list[list[Answer]] = [[] for _ in requests]
        for start in range(rows.start, rows.stop, CHUNK_ROWS):
            chunk = Rows(self._table, slice(start, min(start + CHUNK_ROWS, rows.stop)))
            for question, answers in zip(questions, pieces, strict=True):
                answers.append(question.ask(chunk))
        return [join_shards(request, answers) for request, answers in zip(requests, pieces, strict=True)]

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
