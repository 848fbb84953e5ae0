"""One process, held by a descriptor of the kernel's (pidfd), not by its number. Linux.

A number goes to another process soon after its owner has ended and was collected, by whomever. A descriptor stays with the one
that it was opened for, so what is sent by it reaches that one or nobody.

Cost: a descriptor, until nobody holds the handle any more.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import weakref


class ProcessHandle:
    """Opened while the process is known to live: it has just answered, or is our child. Any thread."""

    def __init__(self, pid: int) -> None:
        """Raises ProcessLookupError."""
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)
        self._close = weakref.finalize(self, os.close, self._descriptor)

    @property
    def alive(self) -> bool:
        """It has not ended."""
        ends = select.poll()
        ends.register(self._descriptor, select.POLLIN)
        return not ends.poll(0)

    def send(self, number: signal.Signals) -> None:
        """Nothing happens when it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def close(self) -> None:
        """Nothing can be asked after it. Idempotent."""
        self._close()


def handle_of(pid: int) -> ProcessHandle | None:
    """None when there is no such process."""
    try:
        return ProcessHandle(pid)
    except ProcessLookupError:
        return None
