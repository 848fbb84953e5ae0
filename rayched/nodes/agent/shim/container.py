"""One attempt of a container inside the shim: its main process, what it left behind, its log, and how it ended.

    running ──main ended──▶ sweeping ──nothing of it lives, log read to its end or 2 s over──▶ ended, exit.json written

A stop signals the main process (or its group) and kills everything of the container when the grace is over; a later stop can only
shorten that. When main ends, what it left behind is killed at once: an attempt has ended only when no process of it is left.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from rayched.nodes.agent.shim import cgroup, proc_table
from rayched.nodes.agent.shim.engine import EngineCommands
from rayched.nodes.agent.shim.log_file import LogFile
from rayched.nodes.agent.shim.spawning import ProcessSpec, spawn

_DRAIN_SECONDS: Final = 2.0
_READ_BYTES: Final = 1 << 16
_RETRY_SECONDS: Final = 1.0


def write_json(path: str, value: dict[str, Any]) -> None:
    """Whole or not at all, on the disk when this returns, and for its owner alone: environments may hold secrets."""
    fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        os.fchmod(fd, 0o600)
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class ShimContainer:
    """`directory` is that of the attempt, `values` what its spec.json says. Made by `start`, which raises SpawnError."""

    def __init__(self, name: str, attempt: int, directory: str, values: dict[str, Any]) -> None:
        self.name = name
        self.attempt = attempt
        self._directory = directory
        self.values = values
        self.spec = ProcessSpec.of(values)
        self.engine = EngineCommands(**values["engine"]) if "engine" in values else None
        """None: it is a process of the shim's own."""
        self._log = LogFile(values["log"], values.get("log_bytes_max", 10 << 20))
        self.pid = 0
        self.ticks = 0
        self.started_at = 0.0
        self.pipes: dict[int, str] = {}
        """Ends to read, with the name of their stream."""
        self._stop_at: float | None = None
        self._main_status: int | None = None
        self._drained_at = 0.0
        self._finished_at = 0.0
        self._out_of_memory = False
        self.exit: dict[str, Any] | None = None
        self.is_unwritten = False
        """It has ended, and the disk did not take its exit yet; that is tried again."""
        self._write_at = 0.0
        self.awaiting: list[tuple[int, Any]] = []
        """Who asked for its start and has no answer yet: peer and request."""

    def start(self) -> None:
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            if self.spec.cgroup is not None:
                cgroup.make(self.spec.cgroup, self.values.get("limits"), self.values.get("pod_limits"))
            self.pid = spawn(self.spec, nothing, out_write, err_write)
        except BaseException:
            os.close(out_read)
            os.close(err_read)
            self.abandon()
            raise
        finally:
            for fd in (nothing, out_write, err_write):
                os.close(fd)
        self.ticks = proc_table.start_ticks(self.pid) or 0
        self.started_at = time.time()
        self.pipes = {out_read: "stdout", err_read: "stderr"}
        for fd in self.pipes:
            os.set_blocking(fd, False)

    def abandon(self) -> None:
        """It is not started."""
        self._log.close()
        if self.spec.cgroup is not None:
            cgroup.remove(self.spec.cgroup)

    @property
    def is_running(self) -> bool:
        return self._main_status is None

    @property
    def child(self) -> int:
        """The child of the shim that ends when the main process does."""
        return self.pid

    @property
    def has_begun(self) -> bool:
        """Its program runs, or has run, or never will."""
        return True

    def state(self) -> dict[str, Any]:
        return {
            "container": self.name,
            "attempt": self.attempt,
            "pid": self.pid,
            "ticks": self.ticks,
            "started_at": self.started_at,
            "exit": self.exit,
        }

    # ------------------------------------------------------------------------------------------------------------ ending

    def stop(self, now: float, grace: float, number: int, *, group: bool) -> None:
        """Asks it to end within `grace` seconds; repeated, the earlier end counts and the signal is sent once."""
        ends_at = now + max(grace, 0.0)
        if self._stop_at is None and grace > 0 and self.is_running:
            self._signal_main(number, group=group)
        self._stop_at = ends_at if self._stop_at is None else min(self._stop_at, ends_at)

    def signal(self, number: int) -> None:
        if self.is_running:
            self._signal_main(number, group=False)

    def out_of_memory(self) -> None:
        """Killed for want of memory, which its exit will say."""
        self._out_of_memory = True
        self._stop_at = 0.0

    def _signal_main(self, number: int, *, group: bool) -> None:
        try:
            (os.killpg if group else os.kill)(self.pid, number)
        except ProcessLookupError:
            return

    def main_ended(self, status: int, now: float) -> None:
        """`status` as waitpid gives it."""
        self._main_status = status
        self._drained_at = now + _DRAIN_SECONDS
        self._finished_at = time.time()

    def wakes_at(self) -> float:
        """When `tick` has something to do."""
        if self.exit is not None:
            return self._write_at if self.is_unwritten else float("inf")
        if not self.is_running:
            return 0.0
        return self._stop_at if self._stop_at is not None else float("inf")

    def tick(self, now: float, orphans: Callable[[ShimContainer], Iterable[int]]) -> bool:
        """Kills what has to die; whether the attempt has ended by this."""
        if self.exit is not None:
            if self.is_unwritten and now >= self._write_at:
                self._write_exit(now)
            return False
        if self.is_running:
            if self._stop_at is not None and now >= self._stop_at:
                self._kill([*proc_table.tree_of(self.pid), *orphans(self)])
            return False
        return self._tick_ended(now, orphans)

    def _tick_ended(self, now: float, orphans: Callable[[ShimContainer], Iterable[int]]) -> bool:
        left = [*orphans(self), *(cgroup.members(self.spec.cgroup) if self.spec.cgroup is not None else ())]
        if left:
            self._kill(left)
            return False
        if self.pipes and now < self._drained_at:
            return False
        self._end(now)
        return True

    def _kill(self, pids: Iterable[int]) -> None:
        if self.spec.cgroup is not None:
            cgroup.kill(self.spec.cgroup)
        for pid in pids:
            proc_table.kill(pid)

    def _end(self, now: float) -> None:
        for fd in self.pipes:
            os.close(fd)
        self.pipes.clear()
        self._log.close()
        self.exit = self._exit_values()
        if self.spec.cgroup is not None:
            cgroup.remove(self.spec.cgroup)
        self._write_exit(now)

    def _exit_values(self) -> dict[str, Any]:
        status = self._main_status or 0
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        by_limit = self.spec.cgroup is not None and cgroup.out_of_memory_kills(self.spec.cgroup) > 0
        return {
            "code": 128 + number if number else os.WEXITSTATUS(status),
            "signal": number,
            "oom": (self._out_of_memory or by_limit) and number == signal.SIGKILL,
            "started_at": self.started_at,
            "finished_at": self._finished_at,
        }

    def _write_exit(self, now: float) -> None:
        assert self.exit is not None
        try:
            write_json(os.path.join(self._directory, "exit.json"), self.exit)
        except OSError:
            # A full disk shall not end the shim, and with it the other containers.
            self.is_unwritten, self._write_at = True, now + _RETRY_SECONDS
        else:
            self.is_unwritten = False

    # --------------------------------------------------------------------------------------------------------------- log

    def read(self, fd: int) -> bool:
        """Takes what the pipe has into the log; False: it is at its end, and closed."""
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return True
        if data:
            self._take(self.pipes[fd], data)
            return True
        os.close(fd)
        del self.pipes[fd]
        return False

    def _take(self, stream: str, data: bytes) -> None:
        self._log.write(stream, data)
