"""A further process in a container that runs: a probe or a hook, whose output is kept, or what a client executes, whose input and
output are the agent's ends of pipes or of a terminal, so that nothing of it passes through the shim."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.shim.container import ShimContainer
from rayched.nodes.agent.shim.spawning import spawn

_OUTPUT_MAX: Final = 10 << 10
_READ_BYTES: Final = 1 << 16
_RUN_VARIABLE: Final = "RAYCHED_RUN"
_SWEEP_SECONDS_MAX: Final = 1.0
"""The shim does nothing else meanwhile; only what forks faster than it is killed, or hangs in the kernel, takes so long."""
_SWEEP_PAUSE_SECONDS: Final = 0.002
NOBODY: Final = -1
"""Of a peer that has hung up."""


class Execution:
    """One process, from its start to its answer. `request` is what it answers."""

    def __init__(self, request: Any, peer: int, container: ShimContainer, pid: int, ends_at: float, pipe: int | None) -> None:
        """`pipe`: its output, which is kept; None: that is somebody else's."""
        self.request = request
        self.peer = peer
        self.container = container
        self.pid = pid
        self.ends_at = ends_at
        self.pipe = pipe
        self.timed_out = False
        self.status: int | None = None
        self._output = b""

    @property
    def is_streamed(self) -> bool:
        """It ends with the connection of who asked for it."""
        return False

    def kill(self) -> None:
        for pid in reversed(proc_table.tree_of(self.pid)):
            _killed(pid)

    def expire(self, now: float) -> None:
        if self.status is None and now >= self.ends_at and not self.timed_out:
            self.timed_out = True
            self.kill()

    def read(self) -> None:
        """Takes what the pipe has; of a long output its beginning is kept."""
        if self.pipe is None:
            return
        try:
            data = os.read(self.pipe, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.close()
            return
        self._output += data[: _OUTPUT_MAX - len(self._output)]

    def close(self) -> None:
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None

    def answer(self) -> dict[str, Any]:
        assert self.status is not None
        number = os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else 0
        code = 128 + number if number else os.WEXITSTATUS(self.status)
        text = self._output.decode(errors="replace")
        timed_out = self.timed_out and number == signal.SIGKILL
        return {"ok": True, "code": code, "signal": number, "timed_out": timed_out, "output": text}


class StreamedExecution(Execution):
    """What a client executes."""

    def __init__(self, request: Any, peer: int, container: ShimContainer, pid: int, cookie: str) -> None:
        """`cookie`: what all that it begins has in its environment."""
        super().__init__(request, peer, container, pid, float("inf"), None)
        self._cookie = cookie

    @property
    def is_streamed(self) -> bool:
        return True

    def kill(self) -> None:
        """All that it began: what it left to the shim, what is of another session, and what is begun meanwhile."""
        ends_at = time.monotonic() + _SWEEP_SECONDS_MAX
        while sum(map(_killed, self._living())) and time.monotonic() < ends_at:
            time.sleep(_SWEEP_PAUSE_SECONDS)

    def _living(self) -> list[int]:
        tree = set(proc_table.tree_of(self.pid))
        below = proc_table.tree_of(os.getpid())[1:]
        return [pid for pid in below if (pid in tree or self._began(pid)) and proc_table.is_alive(pid)]

    def _began(self, pid: int) -> bool:
        if proc_table.session_of(pid) == self.pid:
            return True
        return proc_table.environment_of(pid).get(_RUN_VARIABLE) == self._cookie


def kept_execution(request: Any, peer: int, container: ShimContainer, argv: list[str], ends_at: float) -> Execution:
    """One whose output is kept. Raises SpawnError."""
    reading, writing = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        pid = spawn(replace(container.spec, argv=argv), nothing, writing, writing)
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(nothing)
        os.close(writing)
    os.set_blocking(reading, False)
    return Execution(request, peer, container, pid, ends_at, reading)


def streamed_execution(
    request: Any, peer: int, container: ShimContainer, argv: list[str], fds: Sequence[int]
) -> StreamedExecution:
    """`fds`: its input, output and errors, or a terminal alone. They stay open here. Raises SpawnError."""
    cookie = os.urandom(16).hex()
    spec = replace(container.spec, argv=argv, env={**container.spec.env, _RUN_VARIABLE: cookie})
    terminal = len(fds) == 1
    if terminal:
        spec = replace(spec, env={"TERM": "xterm", **spec.env})
        if spec.user is not None:
            # What opens the terminal by its name has to be allowed to.
            os.fchown(fds[0], spec.user, -1)
    pid = spawn(spec, fds[0], fds[0 if terminal else 1], fds[0 if terminal else 2], terminal=terminal)
    return StreamedExecution(request, peer, container, pid, cookie)


def _killed(pid: int) -> bool:
    """False: there is no such process any more, or it may not be killed, which shall not spare the others."""
    try:
        return proc_table.kill(pid)
    except OSError:
        return False
