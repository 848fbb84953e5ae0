"""A time of CLOCK_BOOTTIME as something to wait for: it comes at once after a suspend in which it would have come.

The timeouts of select, poll and locks count the time in which the host runs alone, so what waits by them comes late by as long as
it slept. A timer of the kernel with that clock does not.

Source: timerfd_create(2); the standard library has it from 3.13 on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import time
from typing import Final

_ABSOLUTE: Final = 1
_libc = ctypes.CDLL(None, use_errno=True)


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


def boottime() -> float:
    """Seconds by a clock that nobody sets, and that goes on while the host sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class BootTimer:
    """Readable once its time has come. `set` may be called by any thread, also while another one waits. Raises OSError."""

    def __init__(self) -> None:
        self._fd: int = _libc.timerfd_create(time.CLOCK_BOOTTIME, os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "no timer of CLOCK_BOOTTIME can be made")

    def fileno(self) -> int:
        return self._fd

    def set(self, at: float) -> None:
        """`at`: as `boottime` gives it, whatever it was set to before; infinity: never."""
        spec = _TimerSpec()
        if at < float("inf"):
            # Zero would switch it off.
            nanoseconds = max(int(at * 1e9), 1)
            spec.value.seconds, spec.value.nanoseconds = divmod(nanoseconds, 1_000_000_000)
        if _libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(spec), None):
            raise OSError(ctypes.get_errno(), "a timer of CLOCK_BOOTTIME cannot be set")

    def wait(self) -> None:
        """Until its time has come; more often than that does no harm."""
        select.select([self._fd], [], [])
        self.drain()

    def drain(self) -> None:
        """It is not readable any more, until its time comes once more."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)

    def close(self) -> None:
        os.close(self._fd)
