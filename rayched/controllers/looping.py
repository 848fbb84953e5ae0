"""The thread of a loop of the leader: started once, ended soon after it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Looping:
    """`stop` may be called from any thread, and before `start` too."""

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        """`run` returns soon after `stopped` is set; who waits for `wake` meanwhile is woken."""
        self.stopped = threading.Event()
        self.wake = threading.Event()
        """There is something to look at."""
        self._thread = threading.Thread(target=run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended."""
        self.stopped.set()
        self.wake.set()
        if self._thread.is_alive():
            self._thread.join()
