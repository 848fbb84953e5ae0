"""Says when processes of this host stall for memory: a look at the node is due then, whatever the time.

The kernel is asked to tell when somebody has waited for memory for 150 ms within 2 s; other windows need rights that an agent may
not have. Where the kernel does not take the question, or does not let it be asked, looks come by time alone.

Source: PSI triggers of Linux.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable
from typing import Final

PRESSURE_FILE: Final = "/proc/pressure/memory"
_TRIGGER: Final = b"some 150000 2000000\0"
_LOOK_MILLISECONDS: Final = 500

log = logging.getLogger(__name__)


class StallWatch:
    """Start it once, stop it once. `stalled` is called on its thread, at most once in 2 s."""

    def __init__(self, stalled: Callable[[], None], path: str = PRESSURE_FILE) -> None:
        self._stalled = stalled
        self._path = path
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> bool:
        """Whether the kernel tells."""
        try:
            trigger = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            log.info("stalls for memory are not told (%s): %s", error.strerror, self._path)
            return False
        try:
            os.write(trigger, _TRIGGER)
        except OSError as error:
            os.close(trigger)
            log.info("stalls for memory are not told (%s): %s", error.strerror, self._path)
            return False
        self._thread = threading.Thread(target=self._run, args=(trigger,), name="node-stalls", daemon=True)
        self._thread.start()
        return True

    def stop(self, seconds: float) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self, trigger: int) -> None:
        poll = select.poll()
        poll.register(trigger, select.POLLPRI)
        try:
            while not self._stopped.is_set():
                for _, events in poll.poll(_LOOK_MILLISECONDS):
                    if events & select.POLLERR:
                        log.warning("stalls for memory are not told any more: %s", self._path)
                        return
                    self._stalled()
        finally:
            os.close(trigger)
