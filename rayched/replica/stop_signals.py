"""SIGTERM and SIGINT of a process whose libraries install handlers of their own.

Ray's driver takes both over whenever it connects: Python's handler and one in native code that ends the process on the spot. So
no handler is used here at all. The signals are blocked in every thread, which keeps them pending whatever handler there is, and
one thread takes them as they come. Nothing else in the process needs to run for that, neither the main thread nor an event loop.

Processes that are started inherit the blocked signals; they have to unblock them (`processes.dying_with_us`, guardian.py).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

STOP_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT})


def block_stop_signals() -> None:
    """In this thread and those that it starts from now on; so before any other thread is there."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def takes_stop_signals() -> bool:
    """Whether some thread of this process would still take one, with the handler of whoever installed the last. To be asked
    before `on_stop_signals`, whose own thread does."""
    wanted = sum(1 << (number - 1) for number in STOP_SIGNALS)
    return any(_blocked(task) & wanted != wanted for task in Path("/proc/self/task").iterdir())


def unblock_stop_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def on_stop_signals(first: Callable[[], object], second: Callable[[], object]) -> None:
    """Calls `first` at the first signal and `second` at the next, on a thread that lives as long as the process."""

    def take() -> None:
        signal.sigwait(STOP_SIGNALS)
        first()
        signal.sigwait(STOP_SIGNALS)
        second()

    threading.Thread(target=take, name="stop-signals", daemon=True).start()


def _blocked(task: Path) -> int:
    """The mask of a thread; one that has ended blocks everything."""
    try:
        lines = (task / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return -1
    return next(int(line.split()[1], 16) for line in lines if line.startswith("SigBlk:"))
