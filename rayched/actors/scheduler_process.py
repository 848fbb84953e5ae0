"""A process that has loaded all that a scheduler needs, and becomes a SchedulerActor when it is told to.

Loading takes most of the second that a new SchedulerActor costs. A replica keeps one such process spare, so that replacing a dead
scheduler takes only a connection to etcd and one reading of the cluster.

`begin` is called once. Before it nothing connects anywhere, and nothing is written.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from rayched.actors.configured import ProfilesText, profiles_of
from rayched.actors.placement import on_this_host
from rayched.actors.scheduler_actor import SchedulerActor, SchedulerActorConfig, SchedulerStatus


class SchedulerProcess:
    """Its methods may be called from several threads. All but `pid` and `alive` wait for `begin`."""

    def __init__(self, configuration: ProfilesText) -> None:
        # Reading it once imports every plugin.
        profiles_of(configuration)
        self._begun = threading.Event()
        self._dead = threading.Event()
        self._scheduler: SchedulerActor | None = None

    def begin(self, config: SchedulerActorConfig, queue_actor: Any, workers: Sequence[Any]) -> None:
        self._scheduler = SchedulerActor(config, queue_actor, workers)
        self._begun.set()

    def pid(self) -> int:
        return os.getpid()

    def alive(self) -> None:
        """Never returns."""
        self._dead.wait()

    def wait_until_synced(self) -> int:
        return self._actor.wait_until_synced()

    def status(self) -> SchedulerStatus:
        return self._actor.status()

    def drained(self, seconds: float) -> bool:
        return self._actor.drained(seconds)

    def use_queue(self, queue_actor: Any) -> None:
        self._actor.use_queue(queue_actor)

    def use_workers(self, workers: Sequence[Any]) -> None:
        self._actor.use_workers(workers)

    @property
    def _actor(self) -> SchedulerActor:
        self._begun.wait()
        assert self._scheduler is not None
        return self._scheduler


def create_scheduler_process(configuration: ProfilesText) -> Any:
    """A handle; the process ends with its creator, or by pid. It runs on the creator's own host."""
    import ray

    remote: Any = ray.remote(SchedulerProcess)
    # Threads for methods that wait: `alive`, `wait_until_synced`, `drained`, and some for the quick ones.
    options = remote.options(num_cpus=0, max_restarts=0, max_concurrency=8, scheduling_strategy=on_this_host())
    return options.remote(configuration)
