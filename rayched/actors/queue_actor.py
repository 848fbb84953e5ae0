"""The QueueActor: QueueCore in a process of its own, with `exchange` as its one working call.

There is one caller with one call at a time, so the core has a single owner although Ray has a second thread here: that one is for
`alive`, which never returns. Whoever waits for it learns of the actor's death at once.

`create_queue_actor` imports Ray only when it is called, because Ray reads its settings from the environment at that moment.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from rayched.actors.configured import DEFAULT_FLAGS, ProfilesText, QueueFlags, profiles_of
from rayched.actors.messages import packed, unpacked_request
from rayched.actors.placement import on_this_host
from rayched.actors.queue_core import QueueCore, queue_factory


class QueueActor:
    """Shell of the QueueCore."""

    def __init__(self, configuration: ProfilesText, flags: QueueFlags) -> None:
        loaded = profiles_of(configuration)
        self._core = QueueCore(queue_factory(loaded.configuration, loaded.profiles, flags))
        self._dead = threading.Event()

    def exchange(self, request: bytes) -> bytes:
        """Both ways packed by `messages.packed`."""
        return packed(self._core.exchange(unpacked_request(request)))

    def pid(self) -> int:
        return os.getpid()

    def alive(self) -> None:
        """Never returns."""
        self._dead.wait()


def create_queue_actor(configuration: ProfilesText, flags: QueueFlags = DEFAULT_FLAGS) -> Any:
    """A handle; the actor ends with its creator, or by pid."""
    import ray

    remote: Any = ray.remote(QueueActor)
    options = remote.options(num_cpus=0, max_restarts=0, max_concurrency=2, scheduling_strategy=on_this_host())
    return options.remote(configuration, flags)
