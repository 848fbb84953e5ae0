"""Runs the caller's callbacks, so that none of them can hold up the elector.

on_started_leading has a thread for each start, on_stopped_leading and on_overdue one for each call; notifications share one
and keep their order. The work has drained when on_stopped_leading and on_started_leading have both returned.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from leader.events import Drained, Event, ResignRequested
from leader.lock import Callbacks

_log = logging.getLogger("leader")


class ElectionThread(threading.Thread):
    """A thread of an elector; waiting on it for the elector's end would never end."""


class WorkRunner:
    """Called by the elector's thread alone; `post` takes what the election has to know."""

    def __init__(self, callbacks: Callbacks, post: Callable[[Event], None]) -> None:
        self._callbacks = callbacks
        self._post = post
        self._work: ElectionThread | None = None
        self._entered = threading.Event()
        self._notices: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._notifier = ElectionThread(target=self._notify_all, name="leader-notices", daemon=True)
        self._notifier.start()

    def start(self, epoch: int) -> None:
        """Call on_started_leading."""
        self._entered = threading.Event()
        self._work = ElectionThread(target=self._run_work, args=(epoch, self._entered), name="leader-work", daemon=True)
        self._work.start()

    def stop(self) -> None:
        """Call on_stopped_leading, and post Drained when the work has ended."""
        ElectionThread(target=self._stop_work, args=(self._work, self._entered), name="leader-stop", daemon=True).start()
        self._work = None

    def overdue(self) -> None:
        """Call on_overdue."""
        if self._callbacks.on_overdue is None:
            _log.error("the work has not stopped within the grace, and there is no on_overdue to end it")
        else:
            ElectionThread(target=_call, args=(self._callbacks.on_overdue,), name="leader-overdue", daemon=True).start()

    def notify(self, notice: Callable[[], None]) -> None:
        """Call `notice` after all earlier ones."""
        self._notices.put(notice)

    def close(self) -> None:
        """No more notices follow."""
        self._notices.put(None)

    def _run_work(self, epoch: int, entered: threading.Event) -> None:
        entered.set()
        on_started_leading = self._callbacks.on_started_leading
        if on_started_leading is not None and not _call(on_started_leading, epoch):
            self._post(ResignRequested("on_started_leading failed"))

    def _stop_work(self, work: threading.Thread | None, entered: threading.Event) -> None:
        if work is not None:
            entered.wait()
        on_stopped_leading = self._callbacks.on_stopped_leading
        clean = on_stopped_leading is None or _call(on_stopped_leading)
        if work is not None:
            work.join()
        self._post(Drained(clean))

    def _notify_all(self) -> None:
        while (notice := self._notices.get()) is not None:
            _call(notice)


def _call(function: Callable[..., object], *args: object) -> bool:
    """True where it returned. What a caller's code raises is its own bug: it is logged and must not end the elector. Nor must
    sys.exit, which ends no more than the thread that it is called on, and would leave the elector waiting for the work's end."""
    try:
        function(*args)
    except (Exception, SystemExit):
        _log.exception("%r failed", function)
        return False
    return True
