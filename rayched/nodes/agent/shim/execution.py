"""A further process in a container that runs: a probe or a hook, whose output is kept."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any, Final

from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.shim.container import ShimContainer
from rayched.nodes.agent.shim.spawning import spawn

_OUTPUT_MAX: Final = 10 << 10
_READ_BYTES: Final = 1 << 16


class Execution:
    """One process, from its start to its answer. `request` is what it answers."""

    def __init__(self, request: Any, peer: int, container: ShimContainer, argv: list[str], ends_at: float) -> None:
        self.request = request
        self.peer = peer
        self.container = container
        self.ends_at = ends_at
        self.timed_out = False
        self.status: int | None = None
        self._output = b""
        spec = replace(container.spec, argv=argv)
        reading, writing = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            self.pid = spawn(spec, nothing, writing, writing)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(nothing)
            os.close(writing)
        os.set_blocking(reading, False)
        self.pipe: int | None = reading

    def kill(self) -> None:
        for pid in reversed(proc_table.tree_of(self.pid)):
            proc_table.kill(pid)

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
        return {"ok": True, "code": code, "timed_out": self.timed_out and number == signal.SIGKILL, "output": text}
