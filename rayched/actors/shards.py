"""ShardEvaluator over Ray workers: each keeps a copy of its rows and gets what changed with each question.

Rows are dealt out in blocks, so that a few new nodes do not move every shard. A shard whose worker is dead, late or out of step
is evaluated here, by the same functions on the same rows; so the result never depends on how many workers there are. Such a
worker starts anew with its next question, and a late one is not asked again before it has answered: a worker that hangs costs
its time limit once.

Several questions may be under way: a worker answers them in their order, and each update begins where the one before ended.

Whether it pays to ask is measured: what handing over takes beyond what the slowest worker computed, as a running mean, and what
a row takes here where a worker needs the whole table.

Owner: the SchedulerActor's loop; answers come in Ray's threads. Cost: about 1 ms a question, and the transfer of what changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from rayched.actors.scheduler_values import WorkerCounts
from rayched.engine.prepared import Answer
from rayched.engine.shards import ColumnRequest, PoolCounts, ShardAnswers, ShardEvaluator, SharedWork, join_shards
from rayched.framework.plugin import ColumnPlugin
from rayched.framework.plugin_error import PluginError
from rayched.framework.profile import Profile
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.transfer import TransferPosition, export_rows

ANSWER_SECONDS_MAX: Final = 0.5
"""Later than this a worker is not waited for, or than LATE_FACTOR times what its work should take. Well below the time in which
belief runs out, which only a caller that waits has to heed."""
LATE_FACTOR: Final = 4.0
LATE_SECONDS_MAX: Final = 10.0
BACKLOG_SECONDS_MAX: Final = 1.0
"""With more under way workers are not asked ahead."""
LARGE_ROWS: Final = 256
"""An update with more rows may travel another way than small ones, and so arrive later."""
_WAIT_SECONDS: Final = 0.1
"""Between two signs of life while workers are waited for."""
BLOCK_ROWS: Final = 128
"""The largest share, which all wait for, is less than so many rows above the mean."""
WORK_SECONDS_MIN: Final = 0.002
"""Less is not worth a worker's turn."""
HANDOVER_SECONDS: Final = 0.003
"""What handing over takes, before it was measured."""
TABLE_ROW_SECONDS: Final = 2e-6
"""What a row of the whole table takes here, before it was measured."""
HANDOVER_SECONDS_MAX: Final = 0.05
"""A machine that was busy for a moment does not keep workers from being asked ever after."""
NEW_SHARE: Final = 0.2
"""Of the running mean, for what was measured last."""

log = logging.getLogger(__name__)


def column_plugins(profile: Profile) -> dict[str, ColumnPlugin]:
    """The plugins that answer for rows, by name."""
    return {plugin.name: plugin for plugin in profile.plugins() if isinstance(plugin, ColumnPlugin)}


@dataclass(slots=True, eq=False)
class _Worker:
    name: str
    handle: Any
    position: TransferPosition | None = None
    """Where its copy stands once all that was sent has arrived; None: unknown, it starts anew."""
    late: Future[Any] | None = None
    """A call that was not answered in time."""
    calls: list[Future[Any]] = field(default_factory=list)
    """Those that were not answered when it was looked last."""
    carries_much: Future[Any] | None = None
    """A call with a large update. Ray may hand over smaller ones before it, so none is sent behind it."""
    counts: PoolCounts = field(default_factory=PoolCounts)

    @property
    def is_idle(self) -> bool:
        self.calls = [call for call in self.calls if not call.done()]
        return not self.calls


@dataclass(slots=True, eq=False)
class _Call:
    worker: _Worker
    rows: slice
    future: Future[Any]
    answered_at: float | None = None


class RayShards:
    """The workers of one SchedulerActor."""

    def __init__(
        self,
        snapshot: Snapshot,
        profiles: Mapping[str, Profile],
        progress: Callable[[], None],
        clock: Callable[[], float],
        *,
        always: bool = False,
        answered: Callable[[], None] = lambda: None,
    ) -> None:
        """`clock`: seconds, CLOCK_BOOTTIME. `always`: see ShardEvaluator. `answered`: after each answer, in any thread."""
        self.snapshot = snapshot
        self.always = always
        self.progress = progress
        self.clock = clock
        self.counts = PoolCounts()
        self.handover_seconds = HANDOVER_SECONDS
        self.table_row_seconds = TABLE_ROW_SECONDS
        self._answered = answered
        self._local = {name: ShardAnswers(snapshot, column_plugins(profile)) for name, profile in profiles.items()}
        self._workers: list[_Worker] = []
        self._under_way: list[_ShardedWork] = []
        """Works that were not over when it was looked last."""

    def __len__(self) -> int:
        return len(self._workers)

    def use(self, workers: Mapping[str, Any]) -> None:
        """Ask these, by name, from now on; those that are new start anew."""
        known = {worker.handle: worker for worker in self._workers}
        self._workers = [known.get(handle) or _Worker(name, handle) for name, handle in workers.items()]

    def of_profile(self, name: str) -> ShardEvaluator:
        """The port for the engine of one profile."""
        return _ProfileShards(self, name)

    def pays(self, seconds: float) -> bool:
        """Whether workers do sooner what takes so long here."""
        workers = self._askable()
        if not workers or seconds < WORK_SECONDS_MIN:
            return False
        new = sum(worker.position is None for worker in workers) / len(workers)
        tables = new * self.snapshot.n_rows * self.table_row_seconds
        return self.handover_seconds + tables + seconds / len(workers) < seconds

    def begin(
        self, profile: str, requests: Sequence[ColumnRequest], n_rows: int, seconds: float, *, ahead: bool = False
    ) -> _ShardedWork | None:
        """Ask for a column for each request, some `seconds` of work. None: there is nobody to ask, or nothing to ask about."""
        workers, now = self._askable(), self.clock()
        # Of what should have been answered before and was not, all is still to come.
        self._under_way = [work for work in self._under_way if not work.is_over]
        backlog = sum(work.expected for work in self._under_way)
        if not workers or not n_rows or (ahead and backlog > BACKLOG_SECONDS_MAX):
            return None
        is_alone = all([worker.is_idle for worker in workers])  # noqa: C419 - each looks
        expected = self.handover_seconds + seconds / len(workers)
        due = backlog + expected
        until = now + due + min(LATE_SECONDS_MAX, max(ANSWER_SECONDS_MAX, (LATE_FACTOR - 1.0) * due))
        shards = shards_of(n_rows, len(workers))
        # One shard for each worker; with few rows the last workers get none.
        calls = [self._call(profile, requests, rows, worker) for worker, rows in zip(workers, shards, strict=False)]
        is_alone = is_alone and not any(worker.carries_much for worker in workers)
        work = _ShardedWork(self, profile, requests, shards, calls, now, until, expected, is_alone=is_alone)
        self._under_way.append(work)
        return work

    def pool(self) -> tuple[WorkerCounts, ...]:
        """What each worker has done."""
        return tuple(
            WorkerCounts(
                one.name, one.counts.evaluations, one.counts.rows, one.counts.seconds, 0 if one.is_idle else len(one.calls)
            )
            for one in self._workers
        )

    # ---------------------------------------------------------------------------------------------------------- locally

    def answer(self, profile: str, requests: Sequence[ColumnRequest], rows: slice) -> list[Answer]:
        """In a worker's place. Raises PluginError."""
        self.counts.local_evaluations += 1
        return self._local[profile].answer(requests, self._present(rows))[0]

    def _present(self, rows: slice) -> slice:
        return slice(rows.start, min(rows.stop, self.snapshot.n_rows))

    # -------------------------------------------------------------------------------------------------------- by workers

    def _askable(self) -> list[_Worker]:
        """Those that owe no late answer, and that no large update is on its way to."""
        for worker in self._workers:
            if worker.late is not None and worker.late.done():
                worker.late = None
            if worker.carries_much is not None and worker.carries_much.done():
                worker.carries_much = None
        return [worker for worker in self._workers if worker.late is None and worker.carries_much is None]

    def _call(self, profile: str, requests: Sequence[ColumnRequest], rows: slice, worker: _Worker) -> _Call | None:
        """The question on its way; None: this worker cannot be asked."""
        import ray

        began = self.clock()
        update = export_rows(self.snapshot, rows, worker.position)
        present = self._present(rows)
        try:
            future = worker.handle.evaluate.remote(profile, update, list(requests), present.start, present.stop).future()
        except ray.exceptions.RayError as problem:
            self.missing(worker, problem)
            return None
        worker.position = update.upto
        worker.calls.append(future)
        if update.since is None or update.n_changed > LARGE_ROWS:
            worker.carries_much = future
            # The next worker may need as much: each is a piece of its own.
            self.progress()
        if update.since is None and present.stop > present.start:
            measured = (self.clock() - began) / (present.stop - present.start)
            self.table_row_seconds += NEW_SHARE * (measured - self.table_row_seconds)
        call = _Call(worker, rows, future)

        def answered(_: Any) -> None:
            call.answered_at = self.clock()
            self._answered()

        future.add_done_callback(answered)
        return call

    def missing(self, worker: _Worker, problem: BaseException | str) -> None:
        """Its copy may lack what was sent: it starts anew."""
        worker.position = None
        log.warning(
            "%s did not answer, its rows are evaluated locally: %s",
            worker.name,
            (str(problem).splitlines() or [type(problem).__name__])[-1],
        )

    def handed_over(self, seconds: float) -> None:
        """Handing over took so long."""
        measured = min(HANDOVER_SECONDS_MAX, max(0.0, seconds))
        self.handover_seconds += NEW_SHARE * (measured - self.handover_seconds)


class _ShardedWork:
    """SharedWork: one question to all workers."""

    def __init__(
        self,
        shards: RayShards,
        profile: str,
        requests: Sequence[ColumnRequest],
        rows: Sequence[slice],
        calls: Sequence[_Call | None],
        began: float,
        until: float,
        expected: float,
        *,
        is_alone: bool,
    ) -> None:
        """`expected`: seconds that it should take by itself. `is_alone`: nothing else keeps workers from answering at once."""
        self._shards = shards
        self._profile = profile
        self._requests = requests
        self._rows = rows
        self._calls = calls
        self._began = began
        self.until = until
        self.expected = expected
        self._is_alone = is_alone
        self._found: tuple[Sequence[Answer] | None] | None = None
        self.seconds: Sequence[float] | None = None

    @property
    def is_over(self) -> bool:
        return self._found is not None or self._is_answered or self._shards.clock() >= self.until

    @property
    def _is_answered(self) -> bool:
        return all(call is None or call.future.done() for call in self._calls)

    def wait(self) -> None:
        """Until it is over; gives signs of life."""
        while not self.is_over:
            waiting = [call.future for call in self._calls if call is not None]
            wait_for(waiting, min(_WAIT_SECONDS, max(0.0, self.until - self._shards.clock())))
            self._shards.progress()

    def take(self) -> Sequence[Answer] | None:
        if self._found is None:
            self._found = (self._taken(),)
        return self._found[0]

    def _taken(self) -> Sequence[Answer] | None:
        shards, total, slowest = self._shards, [0.0] * len(self._requests), 0.0
        answers: list[list[Answer]] = []
        is_complete = True
        last_at = self._began
        try:
            for rows, call in zip(self._rows, self._calls, strict=True):
                found = None if call is None else self._answer_of(call)
                if call is None or found is None:
                    is_complete = False
                    answers.append(shards.answer(self._profile, self._requests, rows))
                    continue
                answers.append(found[0])
                total = [a + b for a, b in zip(total, found[1], strict=True)]
                slowest = max(slowest, sum(found[1]))
                last_at = max(last_at, call.answered_at or last_at)
                for counts in (shards.counts, call.worker.counts):
                    counts.evaluations += 1
                    counts.rows += sum(0 if answer is None else len(answer) for answer in found[0])
                    counts.seconds += sum(found[1])
            columns = [
                _writable(join_shards(request, [answer[place] for answer in answers]))
                for place, request in enumerate(self._requests)
            ]
        except PluginError:
            return None
        if self._is_alone and is_complete:
            shards.handed_over(last_at - self._began - slowest)
        if is_complete:
            self.seconds = total
        return columns

    def _answer_of(self, call: _Call) -> tuple[list[Answer], list[float]] | None:
        """What the worker answered in time."""
        import ray

        if not call.future.done():
            call.worker.late = call.future
            self._shards.missing(call.worker, f"it is late, more than {self._shards.clock() - self._began:.1f} s")
            return None
        try:
            found: tuple[list[Answer], list[float]] = call.future.result()
        except ray.exceptions.RayError as problem:
            self._shards.missing(call.worker, problem)
            return None
        return found


class _ProfileShards:
    """ShardEvaluator of one profile."""

    def __init__(self, shards: RayShards, profile: str) -> None:
        self._shards = shards
        self._profile = profile

    @property
    def always(self) -> bool:
        return self._shards.always

    def pays(self, seconds: float) -> bool:
        return self._shards.pays(seconds)

    def begin(self, requests: Sequence[ColumnRequest], n_rows: int, seconds: float, *, ahead: bool) -> SharedWork | None:
        return self._shards.begin(self._profile, requests, n_rows, seconds, ahead=ahead)


def shards_of(n_rows: int, workers: int) -> list[slice]:
    """Consecutive rows, one slice for each worker that gets any; the last one may reach beyond the table, so that it can grow."""
    blocks = -(-n_rows // BLOCK_ROWS)
    size = -(-blocks // workers) * BLOCK_ROWS if blocks >= workers else -(-n_rows // workers)
    return [slice(start, start + size) for start in range(0, n_rows, size)]


def _writable(answer: Answer) -> Answer:
    """What Ray hands out of its store is read-only, and engines write into their columns."""
    return answer if answer is None or answer.flags.writeable else np.array(answer)
