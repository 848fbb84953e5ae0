"""ShardEvaluator over Ray workers: each keeps a copy of its rows and gets what changed with each question.

Rows are dealt out in blocks, so that a few new nodes do not move every shard. A shard whose worker is dead, late or out of step
is evaluated locally, by the same functions on the same rows; so the result never depends on how many workers there are. Such a
worker starts anew with its next question, and a late one is not asked again before it has answered: a worker that hangs costs
ANSWER_SECONDS_MAX once.

Owner: the SchedulerActor's loop. Cost: about 1 ms a question, and the transfer of what changed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rayched.engine.prepared import Answer
from rayched.engine.shards import ColumnRequest, ShardAnswers, ShardEvaluator, join_shards
from rayched.framework.plugin import ColumnPlugin
from rayched.framework.plugin_error import PluginError
from rayched.framework.profile import Profile
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.transfer import TransferPosition, export_rows

ANSWER_SECONDS_MAX: Final = 0.5
"""Later than this a worker is not waited for. Well below the time in which belief runs out."""
_WAIT_SECONDS: Final = 0.1
"""Between two signs of life while workers are waited for."""
BLOCK_ROWS: Final = 1_024

log = logging.getLogger(__name__)


def column_plugins(profile: Profile) -> dict[str, ColumnPlugin]:
    """The plugins that answer for rows, by name."""
    return {plugin.name: plugin for plugin in profile.plugins() if isinstance(plugin, ColumnPlugin)}


@dataclass(slots=True)
class _Worker:
    handle: Any
    position: TransferPosition | None = None
    """Where its copy stands; None: unknown, it starts anew."""
    late: Any = None
    """A call that was not answered in time."""


@dataclass(frozen=True, slots=True)
class _Call:
    worker: _Worker
    reference: Any
    upto: TransferPosition


class RayShards:
    """The workers of one SchedulerActor."""

    def __init__(
        self, snapshot: Snapshot, profiles: Mapping[str, Profile], progress: Callable[[], None], *, always: bool = False
    ) -> None:
        """`always`: see ShardEvaluator."""
        self._snapshot = snapshot
        self.always = always
        self._progress = progress
        self._local = {name: ShardAnswers(snapshot, column_plugins(profile)) for name, profile in profiles.items()}
        self._workers: list[_Worker] = []
        self.evaluations = 0
        """Shards that workers answered for."""
        self.local_evaluations = 0
        """Shards that were evaluated in their place."""

    def __len__(self) -> int:
        return len(self._workers)

    def use(self, workers: Sequence[Any]) -> None:
        """Ask these from now on; those that are new start anew."""
        known = {worker.handle: worker for worker in self._workers}
        self._workers = [known.get(handle) or _Worker(handle) for handle in workers]

    def of_profile(self, name: str) -> ShardEvaluator:
        """The port for the engine of one profile."""
        return _ProfileShards(self, name)

    def ask(self, profile: str, requests: Sequence[ColumnRequest], n_rows: int) -> Sequence[Answer] | None:
        """A column for each request. None: there are no workers, or a plugin raised."""
        if not self._workers or not n_rows:
            return None
        shards = _shards(n_rows, len(self._workers))
        # One shard for each worker; with few rows the last workers get none.
        calls = [self._call(profile, requests, rows, worker) for worker, rows in zip(self._workers, shards, strict=False)]
        try:
            # The shards that nobody can be asked for are worked on while the others are under way.
            answers = [
                None if call is not None else self._answer(profile, requests, rows)
                for call, rows in zip(calls, shards, strict=True)
            ]
            self._wait([call for call in calls if call is not None])
            for place, call in enumerate(calls):
                if call is not None:
                    answers[place] = self._take(call) or self._answer(profile, requests, shards[place])
        except PluginError:
            return None
        return [
            _writable(join_shards(request, [answer[place] for answer in answers if answer is not None]))
            for place, request in enumerate(requests)
        ]

    # ---------------------------------------------------------------------------------------------------------- locally

    def _answer(self, profile: str, requests: Sequence[ColumnRequest], rows: slice) -> list[Answer]:
        self.local_evaluations += 1
        return self._local[profile].answer(requests, self._present(rows))

    def _present(self, rows: slice) -> slice:
        return slice(rows.start, min(rows.stop, self._snapshot.n_rows))

    # -------------------------------------------------------------------------------------------------------- by workers

    def _call(self, profile: str, requests: Sequence[ColumnRequest], rows: slice, worker: _Worker) -> _Call | None:
        """The question on its way; None: this worker cannot be asked."""
        import ray

        if worker.late is not None:
            if not ray.wait([worker.late], timeout=0)[0]:
                return None
            worker.late = None
        update = export_rows(self._snapshot, rows, worker.position)
        present = self._present(rows)
        try:
            reference = worker.handle.evaluate.remote(profile, update, list(requests), present.start, present.stop)
        except ray.exceptions.RayError as problem:
            self._missing(worker, problem)
            return None
        # Until the answer is there nobody knows whether the update was taken.
        worker.position = None
        return _Call(worker, reference, update.upto)

    def _wait(self, calls: Sequence[_Call]) -> None:
        import ray

        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        waiting = [call.reference for call in calls]
        while waiting and (left := deadline - time.monotonic()) > 0:
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=min(left, _WAIT_SECONDS))
            self._progress()

    def _take(self, call: _Call) -> list[Answer] | None:
        """What the worker answered in time."""
        import ray

        try:
            answers: list[Answer] = ray.get(call.reference, timeout=0)
        except ray.exceptions.GetTimeoutError as problem:
            call.worker.late = call.reference
            self._missing(call.worker, problem)
            return None
        except ray.exceptions.RayError as problem:
            self._missing(call.worker, problem)
            return None
        call.worker.position = call.upto
        self.evaluations += 1
        return answers

    def _missing(self, worker: _Worker, problem: Exception) -> None:
        log.warning(
            "worker %d did not answer, its rows are evaluated locally: %s",
            self._workers.index(worker),
            (str(problem).splitlines() or [type(problem).__name__])[-1],
        )


class _ProfileShards:
    """ShardEvaluator of one profile."""

    def __init__(self, shards: RayShards, profile: str) -> None:
        self._shards = shards
        self._profile = profile

    @property
    def always(self) -> bool:
        return self._shards.always

    def evaluate(self, requests: Sequence[ColumnRequest], n_rows: int) -> Sequence[Answer] | None:
        return self._shards.ask(self._profile, requests, n_rows)


def _shards(n_rows: int, workers: int) -> list[slice]:
    """Consecutive rows, one slice for each worker that gets any; the last one may reach beyond the table, so that it can grow."""
    blocks = -(-n_rows // BLOCK_ROWS)
    size = -(-blocks // workers) * BLOCK_ROWS if blocks >= workers else -(-n_rows // workers)
    return [slice(start, start + size) for start in range(0, n_rows, size)]


def _writable(answer: Answer) -> Answer:
    """What Ray hands out of its store is read-only, and engines write into their columns."""
    return answer if answer is None or answer.flags.writeable else np.array(answer)
