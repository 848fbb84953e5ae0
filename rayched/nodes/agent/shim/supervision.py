"""A process between the shim and what is executed in a container: whatever that begins stays below it, whatever it does to hide.

    shim ── supervisor, a fork of the shim ─┬─ program ── its children
                                            └─ what lost its parent

Orphans become children of the nearest subreaper above them, which is the supervisor. So descent tells what belongs to an
execution; a new session and an empty environment do not hide it. When the program has ended, the supervisor ends as that did, and
what the program left behind is the container's, as if its main process had begun it.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import time
from typing import Final, NoReturn

from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.shim.spawning import (
    ProcessSpec,
    SpawnError,
    become_subreaper,
    die_with_parent,
    forked,
    spawn,
    tell_and_end,
)

_REPORT: Final = 3
"""Where the supervisor tells why nothing was started."""
_STOPS_SECONDS: Final = 0.2
_SWEEP_SECONDS_MAX: Final = 1.0
"""The shim does nothing else meanwhile; only what forks faster than it is killed, or hangs in the kernel, takes so long."""
_PAUSE_SECONDS: Final = 0.002


def spawn_supervised(spec: ProcessSpec, stdin: int, stdout: int, stderr: int, *, terminal: bool = False) -> int:
    """The pid of the supervisor, whose status will be the program's. Otherwise as `spawn`. Raises SpawnError."""
    return forked(lambda report, parent: _supervise(spec, (stdin, stdout, stderr), report, parent, terminal=terminal))


def kill_supervised(pid: int) -> None:
    """The program and all that it began, also what is begun meanwhile. The supervisor goes last, and must not go before."""
    ends_at = time.monotonic() + _SWEEP_SECONDS_MAX
    if not _stopped(pid):
        return
    while time.monotonic() < ends_at:
        living = [one for one in proc_table.tree_of(pid)[1:] if proc_table.is_alive(one)]
        if not [one for one in living if _killed(one)]:
            break
        time.sleep(_PAUSE_SECONDS)
    _killed(pid)


def kill_marked(cookie: str) -> None:
    """All below this process that has the cookie in its environment, also what is begun meanwhile."""
    ends_at = time.monotonic() + _SWEEP_SECONDS_MAX
    while time.monotonic() < ends_at:
        below = filter(proc_table.is_alive, proc_table.tree_of(os.getpid())[1:])
        marked = [one for one in below if proc_table.environment_of(one).get(proc_table.RUN_VARIABLE) == cookie]
        if not [one for one in marked if _killed(one)]:
            return
        time.sleep(_PAUSE_SECONDS)


def _stopped(pid: int) -> bool:
    """It is stopped, so it does not notice the end of its program; False: it has ended before."""
    ends_at = time.monotonic() + _STOPS_SECONDS
    _killed(pid, signal.SIGSTOP)
    while time.monotonic() < ends_at:
        state = proc_table.state_of(pid)
        if state == "T":
            return True
        if state is None or state in "ZX":
            return False
        time.sleep(_PAUSE_SECONDS)
    return True


def _killed(pid: int, number: int = signal.SIGKILL) -> bool:
    """False: there is no such process any more, or it may not be killed, which shall not spare the others."""
    try:
        return proc_table.kill(pid, number)
    except OSError:
        return False


def _supervise(spec: ProcessSpec, fds: tuple[int, int, int], report: int, parent: int, *, terminal: bool) -> NoReturn:
    """In the child: never returns."""
    try:
        report = _keep(fds, report)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        die_with_parent(parent)
        become_subreaper()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        program = spawn(spec, 0, 1, 2, terminal=terminal)
        _let_go()
        status = _waited(program)
    except SpawnError as error:
        tell_and_end(report, str(error))
    except BaseException as error:
        tell_and_end(report, f"cannot start {spec.argv[0]!r}: {type(error).__name__}: {error}")
    _end_as(status)


def _keep(fds: tuple[int, int, int], report: int) -> int:
    """0 to 2 as given, the report behind them, and nothing else: not the shim's lock, nor its connections."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (*fds, report)]
    for number, fd in enumerate(high):
        os.dup2(fd, number, inheritable=False)
    os.closerange(_REPORT + 1, os.sysconf("SC_OPEN_MAX"))
    return _REPORT


def _let_go() -> None:
    """What reads the program's output shall see its end, and whoever waits for the start has waited long enough."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(_REPORT):
        os.dup2(nothing, number)
    os.close(nothing)
    os.close(_REPORT)


def _waited(program: int) -> int:
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == program:
            return status


def _end_as(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        # A signal that ends nobody by itself.
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))
