"""A further process in a container that runs: a probe or a hook, whose output is kept, or what a client executes, whose input and
output are the agent's ends of pipes or of a terminal, so that nothing of it passes through the shim."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from rayched.nodes.agent.shim.container import ShimContainer
from rayched.nodes.agent.shim.supervision import kill_marked, kill_supervised, spawn_supervised

_OUTPUT_MAX: Final = 10 << 10
_READ_BYTES: Final = 1 << 16
NOBODY: Final = -1
"""Of a peer that has hung up."""


class Execution:
    """One process, from its start to its answer. `request` is what it answers."""

    def __init__(
        self,
        request: Any,
        peer: int,
        container: ShimContainer,
        pid: int,
        ends_at: float = float("inf"),
        pipe: int | None = None,
        cookie: str = "",
    ) -> None:
        """`pid`: of its supervisor. `pipe`: its output, which is kept; None: that is somebody else's. `cookie`: what all that it
        begins in an engine's container has in its environment; empty: all that it begins stays below its supervisor."""
        self.request = request
        self.peer = peer
        self.container = container
        self.pid = pid
        self.ends_at = ends_at
        self.pipe = pipe
        self.is_streamed = pipe is None
        """It ends with the connection of who asked for it, who has its output."""
        self.timed_out = False
        self.status: int | None = None
        self.told: Callable[[dict[str, Any]], None] | None = None
        """Of a command of the shim's own: gets its answer."""
        self._output = b""
        self._cookie = cookie

    def kill(self) -> None:
        """All that it began."""
        kill_supervised(self.pid)
        if self._cookie:
            kill_marked(self._cookie)

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


def kept_execution(request: Any, peer: int, container: ShimContainer, argv: list[str], ends_at: float) -> Execution:
    """One whose output is kept. Raises SpawnError."""
    argv, cookie = _words_of(container, argv, stdin=False, terminal=False)
    pid, pipe = _spawned(container, argv)
    return Execution(request, peer, container, pid, ends_at, pipe, cookie)


def engine_command(
    container: ShimContainer, argv: list[str], ends_at: float, told: Callable[[dict[str, Any]], None]
) -> Execution:
    """One of the shim's own about the container; its answer is for `told`. Raises SpawnError."""
    pid, pipe = _spawned(container, argv)
    found = Execution(None, NOBODY, container, pid, ends_at, pipe)
    found.told = told
    return found


def _words_of(container: ShimContainer, argv: list[str], *, stdin: bool, terminal: bool) -> tuple[list[str], str]:
    """What has to be started for it here, and its cookie."""
    if container.engine is None:
        return argv, ""
    # Orphans in a container become children of its first process, and not of the supervisor.
    cookie = os.urandom(16).hex()
    return container.engine.exec_argv(argv, cookie, stdin=stdin, terminal=terminal), cookie


def _spawned(container: ShimContainer, argv: list[str]) -> tuple[int, int]:
    """Its pid, and the end of its output."""
    reading, writing = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        pid = spawn_supervised(replace(container.spec, argv=argv), nothing, writing, writing)
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(nothing)
        os.close(writing)
    os.set_blocking(reading, False)
    return pid, reading


def streamed_execution(request: Any, peer: int, container: ShimContainer, argv: list[str], fds: Sequence[int]) -> Execution:
    """`fds`: its input, output and errors, or a terminal alone. They stay open here. Raises SpawnError."""
    terminal = len(fds) == 1
    argv, cookie = _words_of(container, argv, stdin=True, terminal=terminal)
    spec = replace(container.spec, argv=argv)
    if terminal:
        spec = replace(spec, env={"TERM": "xterm", **spec.env})
        if spec.user is not None:
            # What opens the terminal by its name has to be allowed to.
            os.fchown(fds[0], spec.user, -1)
    pid = spawn_supervised(spec, fds[0], fds[0 if terminal else 1], fds[0 if terminal else 2], terminal=terminal)
    return Execution(request, peer, container, pid, cookie=cookie)
