"""FilterScoreWorker: evaluates columns over its shard of the table, which it keeps up to date from RowsUpdates.

It knows rows and plugins, neither pods nor nodes. An update that does not fit is answered with OutOfStep; the sender starts anew.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rayched.actors.configured import ProfilesText, profiles_of
from rayched.actors.garbage import collect_rarely
from rayched.actors.process_handle import pid_space
from rayched.actors.scheduler_values import WorkerPlace
from rayched.actors.shards import column_plugins
from rayched.engine.prepared import Answer
from rayched.engine.shards import ColumnRequest, ShardAnswers
from rayched.snapshot.transfer import RowsUpdate, TableCopy

_LIFE: Final = "life"
"""Ray's group of the call that lasts as long as the worker."""


class FilterScoreWorker:
    """Shell around a TableCopy and the plugins of all profiles."""

    def __init__(self, configuration: ProfilesText) -> None:
        collect_rarely()
        self._table = TableCopy()
        self._answers: dict[str, ShardAnswers] = {}
        for name, profile in profiles_of(configuration).profiles.items():
            self._answers[name] = ShardAnswers(self._table, column_plugins(profile))
        self._dead = threading.Event()

    def evaluate(
        self, profile: str, update: RowsUpdate, requests: Sequence[ColumnRequest], start: int, stop: int
    ) -> tuple[list[Answer], list[float]]:
        """A column over rows start..stop for each request, as of the update, and the seconds that each took to compute."""
        self._table.import_rows(update)
        return self._answers[profile].answer(requests, slice(start, stop), time.thread_time)

    def pid(self) -> int:
        return os.getpid()

    def place(self) -> WorkerPlace:
        """Where it runs."""
        import ray

        return WorkerPlace(os.getpid(), socket.gethostname(), ray.get_runtime_context().get_node_id(), pid_space())

    def alive(self) -> None:
        """Never returns."""
        self._dead.wait()


def worker_names(count: int) -> list[str]:
    """worker-0, ..."""
    return [f"worker-{number}" for number in range(count)]


def create_workers(names: Iterable[str], configuration: ProfilesText, cpus: int = 0) -> dict[str, Any]:
    """Handles by name, spread over the nodes of the Ray cluster. `cpus`: that each takes away from what Ray has free there."""
    import ray

    # `alive` has a thread of its own. The other calls share one, which takes them in their order, as updates have to be.
    ray.method(concurrency_group=_LIFE)(FilterScoreWorker.alive)
    remote: Any = ray.remote(concurrency_groups={_LIFE: 1})(FilterScoreWorker)
    options = remote.options(num_cpus=cpus, max_restarts=0, max_concurrency=1, scheduling_strategy="SPREAD")
    return {name: options.remote(configuration) for name in names}
