"""Workers in this process: each has nothing but a copy of its rows, fed with what changed, as a worker in a process of its own.

They are asked for every column, however small the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rayched.actors.shards import column_plugins
from rayched.engine.prepared import Answer
from rayched.engine.shards import ColumnRequest, ShardAnswers, join_shards
from rayched.framework.plugin_error import PluginError
from rayched.framework.profile import Profile
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.transfer import TableCopy, export_rows


class Shards:
    """A ShardEvaluator over `n_workers` copies of one profile's table; with few rows the last workers get none."""

    always = True

    def __init__(self, snapshot: Snapshot, profile: Profile, n_workers: int) -> None:
        self._snapshot = snapshot
        self._copies = [TableCopy() for _ in range(n_workers)]
        self._answers = [ShardAnswers(copy, column_plugins(profile)) for copy in self._copies]
        self.asked = 0

    def pays(self, seconds: float) -> bool:
        return True

    def begin(self, requests: Sequence[ColumnRequest], n_rows: int, seconds: float, *, ahead: bool) -> AnsweredWork:
        self.asked += 1
        size = -(-n_rows // len(self._copies))
        pieces: list[list[Answer]] = [[] for _ in requests]
        for number, (copy, worker) in enumerate(zip(self._copies, self._answers, strict=True)):
            rows = slice(min(number * size, n_rows), min((number + 1) * size, n_rows))
            if rows.start < rows.stop:
                copy.import_rows(export_rows(self._snapshot, rows, copy.position))
                try:
                    found, _ = worker.answer(requests, rows)
                except PluginError:
                    return AnsweredWork(None, [0.0] * len(requests))
                for answers, answer in zip(pieces, found, strict=True):
                    answers.append(answer)
        columns = [join_shards(request, answers) for request, answers in zip(requests, pieces, strict=True)]
        return AnsweredWork(columns, [0.0] * len(requests))


@dataclass(frozen=True)
class AnsweredWork:
    """SharedWork that was answered at once."""

    answers: Sequence[Answer] | None
    seconds: Sequence[float]
    is_over = True
    until = 0.0

    def wait(self) -> None:
        pass

    def take(self) -> Sequence[Answer] | None:
        return self.answers
