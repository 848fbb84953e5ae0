"""How a replica is asked to stop, and how it leaves when that takes too long.

The first SIGTERM or SIGINT asks, at whatever point of its life the replica is. A second one, or STOP_SECONDS_MAX, ends it where
it stands: every process below it, etcd aside, and then itself. An own etcd is not killed, because it keeps what it has promised
best when it may end by itself: it gets SIGTERM from the kernel when we are gone.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Final

from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.replica.own_directories import remove_own
from rayched.replica.ray.processes import end_descendants
from rayched.replica.stop_signals import on_stop_signals

STOP_SECONDS_MAX: Final = 5.0

log = logging.getLogger("rayched.replica")


class Stopping:
    """One for a process, made when the stop signals are blocked and no other thread runs."""

    def __init__(self, etcd: EtcdServer | None = None) -> None:
        self._etcd = etcd
        self._lock = threading.Lock()
        self._asked = False
        self.failed = False
        """What asked was a failure of ours, not a signal."""
        self._tell: Callable[[], object] | None = None
        on_stop_signals(self.begin, lambda: self._leave("told to stop twice"))

    @property
    def asked(self) -> bool:
        return self._asked

    def begin(self) -> None:
        """Asks the replica to stop; from now on the time runs."""
        with self._lock:
            if self._asked:
                return
            self._asked = True
            watchdog = threading.Timer(STOP_SECONDS_MAX, self._leave, [f"not stopped within {STOP_SECONDS_MAX:.0f} s"])
            watchdog.daemon = True
            watchdog.start()
            if self._tell is not None:
                self._tell()

    def fail(self) -> None:
        """As `begin`, for a failure that only a new process mends."""
        self.failed = True
        self.begin()

    def when_asked(self, tell: Callable[[], object]) -> None:
        """`tell` is called at the request, on another thread; now, if it has come already."""
        with self._lock:
            self._tell = tell
            if self._asked:
                tell()

    def end_processes(self) -> None:
        """Ends every process below this one, etcd aside."""
        etcd = self._etcd.pid if self._etcd is not None else None
        end_descendants(os.getpid(), keep=[] if etcd is None else [etcd])

    def _leave(self, why: str) -> None:
        log.warning("%s: leaving", why)
        self.end_processes()
        remove_own()
        sys.stderr.flush()
        os._exit(1)
