"""A process that has loaded all that a scheduler needs, and becomes a SchedulerActor when it is told to.

Loading takes most of the second that a new SchedulerActor costs. A replica keeps one such process spare, so that replacing a dead
scheduler takes only a connection to etcd and one reading of the cluster. Until then it connects to nothing and writes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from rayched.actors.configured import ProfilesText, profiles_of
from rayched.actors.scheduler_actor import SchedulerActor, remote_scheduler
from rayched.actors.scheduler_values import SchedulerActorConfig


class SchedulerProcess(SchedulerActor):
    """Before `begin` has returned, only `pid` and `alive` may be called."""

    def __init__(self, configuration: ProfilesText) -> None:
        # Reading it once imports every plugin.
        profiles_of(configuration)
        self._never = threading.Event()

    def begin(self, config: SchedulerActorConfig, queue_actor: Any, workers: Mapping[str, Any]) -> None:
        """Once."""
        super().__init__(config, queue_actor, workers)

    def alive(self) -> None:
        """Never returns."""
        self._never.wait()


def create_scheduler_process(configuration: ProfilesText) -> Any:
    """A handle."""
    return remote_scheduler(SchedulerProcess).remote(configuration)
