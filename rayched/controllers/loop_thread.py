"""The thread of a loop of a replica: started once, ended soon after it is told to, begun anew when it fails.

A bug in one turn shall not leave the cluster without what the loop does: whatever is raised is logged with its traceback, and the
loop begins anew from nothing after a pause. Until it has run for a while again, `problem` says so, for readyz.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

ANEW_SECONDS: Final = 5.0
_HEALTHY_SECONDS: Final = 30.0

log = logging.getLogger(__name__)


class LoopThread:
    """`stop` may be called from any thread, and before `start` too."""

    def __init__(self, name: str, run: Callable[[], None], anew_seconds: float = ANEW_SECONDS) -> None:
        """`run` returns soon after `stopped` is set; who waits for `wake` meanwhile is woken."""
        self.stopped = threading.Event()
        self.wake = threading.Event()
        """There is something to look at."""
        self._name = name
        self._run = run
        self._anew_seconds = anew_seconds
        self._failed_at: float | None = None
        self._failure = ""
        self._thread = threading.Thread(target=self._keep_running, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended."""
        self.stopped.set()
        self.wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def problem(self) -> str | None:
        """None, or why the loop does not do its work; from any thread."""
        if self.stopped.is_set() or self._thread.ident is None:
            return None
        if not self._thread.is_alive():
            return f"{self._name} has ended: {self._failure or 'without a failure'}"
        failed_at = self._failed_at
        if failed_at is not None and time.monotonic() - failed_at < _HEALTHY_SECONDS:
            return f"{self._name} failed and has begun anew: {self._failure}"
        return None

    def _keep_running(self) -> None:
        while not self.stopped.is_set():
            try:
                self._run()
            except Exception as error:
                self._failure, self._failed_at = f"{type(error).__name__}: {error}", time.monotonic()
                log.critical("%s failed; it begins anew in %.0f s", self._name, self._anew_seconds, exc_info=True)
                self.stopped.wait(self._anew_seconds)
