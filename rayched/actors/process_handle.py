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
import time
import weakref
from pathlib import Path


def pid_space() -> str:
    """Where a pid of this process's view means what it means here: the running kernel and the namespace of pids."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"


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

    def cpu_seconds(self) -> float:
        """What all its threads have computed so far. Raises ProcessLookupError where it has ended."""
        try:
            return time.clock_gettime(_cpu_clock(self.pid)) if self.alive else _ended(self.pid)
        except OSError:
            return _ended(self.pid)

    @property
    def is_stopped(self) -> bool:
        """By a signal, until another one lets it go on."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2][:1]
        except OSError:
            return False
        return self.alive and state in ("T", "t")

    def send(self, number: signal.Signals) -> None:
        """Nothing happens when it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def close(self) -> None:
        """Nothing can be asked after it. Idempotent."""
        self._close()


def _cpu_clock(pid: int) -> int:
    """As clock_getcpuclockid(3) gives it."""
    return (~pid << 3) | 2


def _ended(pid: int) -> float:
    raise ProcessLookupError(f"process {pid} has ended")


def handle_of(pid: int) -> ProcessHandle | None:
    """None when there is no such process."""
    try:
        return ProcessHandle(pid)
    except ProcessLookupError:
        return None
