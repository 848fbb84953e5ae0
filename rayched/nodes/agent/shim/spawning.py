"""Starts one process of a pod: forks, makes the child what its specification says, and has it execute the program.

The caller has one thread, so forking is safe. What goes wrong before the program runs comes back over a pipe that closes itself
at exec; so a start either has a pid or raises SpawnError, whose text names the file or the directory.

The parent-death signal is set last, because a change of user clears it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import termios
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from rayched.nodes.agent.shim import cgroup

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_REPORT_FD: Final = 3
_NOFILE_SOFT: Final = 1024
_libc = ctypes.CDLL(None, use_errno=True)


class SpawnError(Exception):
    """A process could not be started; one line."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What a process is to be. Users and groups None: those of the shim."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    user: int | None = None
    group: int | None = None
    groups: list[int] = field(default_factory=list)
    oom_score_adj: int | None = None
    cgroup: str | None = None
    """Which it enters before anything of it runs; None: that of the shim."""

    @staticmethod
    def of(values: dict[str, Any]) -> ProcessSpec:
        names = ("argv", "env", "cwd", "user", "group", "groups", "oom_score_adj", "cgroup")
        return ProcessSpec(**{name: values[name] for name in names if name in values})


def become_subreaper() -> None:
    """Orphans below this process become its own children."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """This process is killed when that one ends, or ends now if it has. To be called after a change of user, which clears it."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def lower_oom_score(wanted: int) -> int:
    """Sets this process' oom_score_adj, or the lowest above it that is allowed; gives the one in force."""
    with open("/proc/self/oom_score_adj", encoding="ascii") as file:
        present = int(file.read())
    for value in sorted({wanted, *(step for step in range(-900, present, 100) if step > wanted)}):
        try:
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
                file.write(str(value))
        except OSError:
            continue
        return value
    return present


def spawn(spec: ProcessSpec, stdin: int, stdout: int, stderr: int, *, terminal: bool = False) -> int:
    """The pid of the new process, which leads a session of its own. `terminal`: its input is one, which will be that session's.

    Raises SpawnError.
    """
    return forked(lambda report, parent: _become(spec, (stdin, stdout, stderr), report, parent, terminal=terminal))


def forked(child: Callable[[int, int], NoReturn]) -> int:
    """The pid of a fork that runs `child` with where to tell why nothing was started, and the pid of its parent.

    Returns when what it started has its program, or raises SpawnError with what was told.
    """
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        child(writing, parent)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    if told:
        os.waitpid(pid, 0)
        raise SpawnError(json.loads(told)["text"])
    return pid


def _become(spec: ProcessSpec, fds: tuple[int, int, int], report: int, parent: int, *, terminal: bool) -> NoReturn:
    """In the child: never returns."""
    try:
        os.setsid()
        for number in signal.valid_signals():
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        report = _arrange(fds, report)
        if spec.cgroup is not None:
            cgroup.enter(spec.cgroup)
        if terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if spec.oom_score_adj is not None:
            lower_oom_score(spec.oom_score_adj)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_NOFILE_SOFT, hard), hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _change_user(spec)
        die_with_parent(parent)
        _enter(spec.cwd)
        path = _program(spec.argv[0], spec.cwd, spec.env.get("PATH", os.defpath))
        _execute(path, spec)
    except SpawnError as error:
        tell_and_end(report, str(error))
    except OSError as error:
        tell_and_end(report, f"cannot start {spec.argv[0]!r}: {error.strerror}")
    except BaseException as error:
        tell_and_end(report, f"cannot start {spec.argv[0]!r}: {type(error).__name__}: {error}")
    os._exit(1)


def _arrange(fds: tuple[int, int, int], report: int) -> int:
    """0 to 2 as given, the report behind them, and nothing else open."""
    # Copied above all of them first: one may stand where another has to go.
    high = [os.dup(fd) for fd in fds]
    report = os.dup(report)
    for number, fd in enumerate(high):
        os.dup2(fd, number)
    os.dup2(report, _REPORT_FD, inheritable=False)
    os.closerange(_REPORT_FD + 1, os.sysconf("SC_OPEN_MAX"))
    return _REPORT_FD


def _change_user(spec: ProcessSpec) -> None:
    if spec.user is None and spec.group is None:
        return
    try:
        if os.geteuid() == 0:
            os.setgroups(spec.groups)
        if spec.group is not None:
            os.setgid(spec.group)
        if spec.user is not None:
            os.setuid(spec.user)
    except OSError as error:
        raise SpawnError(f"cannot run as user {spec.user}, group {spec.group}: {error.strerror}") from None


def _enter(directory: str) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        raise SpawnError(f"working directory {directory!r}: {error.strerror}") from None


def _program(name: str, cwd: str, path: str) -> str:
    """The file to execute: as it is named, else in the working directory, else in one of PATH."""
    if "/" in name:
        return name
    for directory in (cwd, *filter(None, path.split(":"))):
        found = os.path.join(directory, name)
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    if os.path.isfile(os.path.join(cwd, name)):
        raise SpawnError(f"cannot start {name!r}: it is in the working directory, but not executable")
    raise SpawnError(f"cannot start {name!r}: no such file in the working directory or on PATH ({path})")


def _execute(path: str, spec: ProcessSpec) -> NoReturn:
    try:
        os.execve(path, spec.argv, spec.env)
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            raise SpawnError(f"cannot start {path!r}: it has no #! line and is no program") from None
        if error.errno == errno.ENOENT and os.path.exists(path):
            raise SpawnError(f"cannot start {path!r}: its interpreter is missing") from None
        if error.errno == errno.EACCES and os.path.isfile(path) and not os.access(path, os.X_OK):
            raise SpawnError(f"cannot start {path!r}: it is not executable") from None
        raise SpawnError(f"cannot start {path!r}: {error.strerror}") from None


def tell_and_end(report: int, text: str) -> NoReturn:
    """In a child of `forked`: why nothing was started."""
    os.write(report, json.dumps({"text": text}).encode())
    os._exit(1)
