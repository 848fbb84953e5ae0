"""The QueueActor: QueueCore in a process of its own, driven by the exchanges of the scheduler that it attends.

Exchanges come over a socket to a thread of their own (exchange_socket.py), questions (`listing`, `metrics`) on a thread of Ray's;
whoever holds the lock owns the core. Ray has a second thread here: that one is for `alive`, which never returns. Whoever waits
for it learns of the actor's death at once.

At the level debug each move of a pod is logged.

`create_queue_actor` imports Ray only when it is called, because Ray reads its settings from the environment at that moment.
"""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from typing import Any

from prometheus_client import Metric

from leader.clock import boottime
from rayched.actors.configured import ProfilesText, profiles_of
from rayched.actors.exchange_socket import serve_exchanges
from rayched.actors.garbage import collect_rarely
from rayched.actors.log_sending import LogTarget, send_logs
from rayched.actors.placement import on_this_host
from rayched.core.exchange.messages import packed, unpacked_request
from rayched.core.exchange.queue_core import QueueCore, queue_factory
from rayched.core.exchange.queue_listing import list_queue
from rayched.core.exchange.queue_metrics import queue_metrics
from rayched.queue.flags import DEFAULT_FLAGS, QueueFlags
from rayched.queue.queued_pod import Moves
from rayched.v1.services_pb2 import ListQueueRequest, ListQueueResponse

log = logging.getLogger(__name__)


class QueueActor:
    """Shell of the QueueCore."""

    def __init__(self, configuration: ProfilesText, flags: QueueFlags, logs: LogTarget | None = None) -> None:
        loaded = profiles_of(configuration)
        send_logs(logs, "queue")
        moved = log_moves if log.isEnabledFor(logging.DEBUG) else _ignore
        # Pods come and go without cycles, and what is loaded by now lives as long as the process: the collector need not look.
        collect_rarely()
        gc.freeze()
        self._core = QueueCore(queue_factory(loaded.configuration, loaded.profiles, flags), time.perf_counter, moved)
        self._lock = threading.Lock()
        self._dead = threading.Event()

    def attend(self, path: str) -> None:
        """Answer the scheduler that listens there, until it closes. Sessions keep apart what several schedulers ask."""
        threading.Thread(target=serve_exchanges(path, self._exchange), name="exchange", daemon=True).start()

    def listing(self, request: ListQueueRequest) -> ListQueueResponse:
        with self._lock:
            return list_queue(self._core.queue, request, boottime())

    def metrics(self) -> list[Metric]:
        with self._lock:
            return queue_metrics(self._core)

    def _exchange(self, request: bytes) -> bytes:
        """Both ways packed by `messages.packed`."""
        with self._lock:
            return packed(self._core.exchange(unpacked_request(request)))

    def pid(self) -> int:
        return os.getpid()

    def alive(self) -> None:
        """Never returns."""
        self._dead.wait()


def log_moves(moves: Moves) -> None:
    """A line for each pod that came into a queue."""
    for move in moves:
        log.debug("pod %s moved to queue %s by %s", move.key, move.place.value, move.event, extra={"pod": move.key})


def _ignore(_: Moves) -> None:
    pass


def create_queue_actor(configuration: ProfilesText, flags: QueueFlags = DEFAULT_FLAGS, logs: LogTarget | None = None) -> Any:
    """A handle; the actor ends with its creator, or by pid."""
    import ray

    remote: Any = ray.remote(QueueActor)
    options = remote.options(num_cpus=0, max_restarts=0, max_concurrency=2, scheduling_strategy=on_this_host())
    return options.remote(configuration, flags, logs)
