"""Processes below this one: who they are, and that none outlives its owner. Linux.

A *subreaper* adopts the orphans among its descendants, so that the whole tree below it can be found and ended by pid whatever
daemonised itself on the way. A *parent-death signal* tells a child that its parent is gone; the kernel sends it when the thread
ends that started the child.

Cost: a walk over /proc, about 20 µs a process of the machine, wherever descendants are looked for.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Final

from rayched.actors.process_handle import handle_of

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS_MAX = 100
"""A tree that forks while it is being ended is looked at again, this often at most."""
_ROUND_SECONDS = 0.01

# Runs in place of a command until it execs it. What starts it may be gone before prctl is called, hence the look at its pid; and
# it may have blocked signals (stop_signals.py), which the command would inherit.
_LAUNCHER: Final = """
import ctypes, os, sys, _signal
ctypes.CDLL(None).prctl(1, int(sys.argv[1]))
if os.getppid() != int(sys.argv[2]):
    sys.exit("the parent process is gone")
_signal.pthread_sigmask(_signal.SIG_SETMASK, ())
os.execv(sys.argv[3], sys.argv[3:])
"""

_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Makes this process the subreaper of its descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def signal_at_parents_end(number: signal.Signals) -> None:
    """Has the kernel send this process a signal when the thread ends that started it. One that is gone already sends none."""
    _prctl(_PR_SET_PDEATHSIG, number.value)


def dying_with_us(command: list[str], death_signal: signal.Signals = signal.SIGTERM) -> list[str]:
    """The command, started by this very process, with a parent-death signal from its first moment and no signal blocked."""
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(death_signal.value), str(os.getpid()), *command]


def descendants(pid: int) -> list[int]:
    """Process ids below `pid`, children before grandchildren; zombies included."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children[parent].append(int(entry.name))
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in children[parent]]
        found += level
    return found


def alive(pid: int) -> bool:
    """The process exists and is no zombie."""
    stat = _stat(Path("/proc", str(pid)))
    return stat is not None and stat[0] not in "ZX"


def end_descendants(pid: int, keep: Collection[int] = ()) -> int:
    """SIGKILLs what is below `pid`, but for `keep` and what is below these; reaps what became our child. Number killed."""
    killed: set[int] = set()
    for _ in range(_ROUNDS_MAX):
        spared = set(keep)
        for kept in keep:
            spared.update(descendants(kept))
        left = [p for p in descendants(pid) if p not in spared and alive(p)]
        if not left:
            break
        handles = [handle for p in left if (handle := handle_of(p)) is not None]
        # Between the look and the handle a number may have gone to a stranger. One who is below `pid` now is none.
        still = set(descendants(pid))
        for handle in handles:
            if handle.pid in still:
                handle.send(signal.SIGKILL)
                killed.add(handle.pid)
            handle.close()
        time.sleep(_ROUND_SECONDS)
    reap(killed)
    return len(killed)


def end_tree(pid: int) -> None:
    """SIGKILLs `pid` and all below it. It is stopped first, so that it starts nothing while its children end."""
    handle = handle_of(pid)
    if handle is not None:
        handle.send(signal.SIGSTOP)
        end_descendants(pid)
        handle.send(signal.SIGKILL)
        handle.close()


def reap(pids: Collection[int]) -> None:
    """Collects those of `pids` that are our children and have ended."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _parent(entry: Path) -> int | None:
    stat = _stat(entry)
    return None if stat is None else int(stat[1])


def _stat(entry: Path) -> list[str] | None:
    """Fields of /proc/PID/stat behind the command's name: state, parent, ..."""
    try:
        text = (entry / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()


def _prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}, {argument}): {os.strerror(error)}")
