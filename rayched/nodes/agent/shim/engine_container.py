"""One attempt of a container that an engine runs, as podman does: the engine makes its file system, its namespaces and its
limits, and everything else of its life is as that of any other attempt of the shim.

    starting ─state says it began▶ running ─client ended▶ asking for its end ▶ removing ▶ sweeping ▶ ended, exit.json written

The shim runs the engine's client, which is attached to the container's output and ends with it. Signals go to the container's
main process itself, and so does SIGKILL when a grace is over: neither waits for the engine. What the client's exit code does not
tell (whether it began at all, and whether memory was the reason of its end) the engine is asked for. Its monitor, which it leaves
beside the container, and what else is of the container become children of the shim, and die with the container.

A container that never began has ended with 128, StartError, and what the engine said of it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.shim.container import ShimContainer

_START_ERROR_CODE: Final = 128
_KILLED_CODE: Final = 137
_COMMAND_SECONDS: Final = 30.0
"""So long the engine has for an answer, or to remove a container."""
_BEGIN_SECONDS: Final = 120.0
"""What has not begun by then is given up."""
_ASK_SECONDS: Final = (0.05, 1.0)
"""Between two questions for its state while it starts: at first, and at most."""
_ASKS_MAX: Final = 3
"""Questions for the end of one that has ended."""
_CLIENT_SECONDS: Final = 2.0
"""So long after its processes were killed the engine's own may go on, to tell how it ended."""
_SAID_MAX: Final = 2 << 10
_ENDED: Final = ("exited", "stopped")

Told = Callable[[dict[str, Any]], None]
RunCommand = Callable[[ShimContainer, list[str], float, Told], None]
"""Runs a command of the engine for so long at most; `told` gets its code and output."""


class EngineContainer(ShimContainer):
    """Its specification has `engine`, and as `argv` the client that starts it and stays attached to it."""

    def __init__(self, name: str, attempt: int, directory: str, values: dict[str, Any], run: RunCommand) -> None:
        super().__init__(name, attempt, directory, values)
        assert self.engine is not None
        self._engine = self.engine
        self._run = run
        self._client = 0
        self._begin_by = 0.0
        self._is_given_up = False
        self._began = False
        self._is_asking = False
        self._ask_at = 0.0
        self._pause = _ASK_SECONDS[0]
        self._asked = 0
        self._end_state: dict[str, Any] | None = None
        self._is_removed = False
        self._killing_since: float | None = None
        self._owed_signal: tuple[int, bool] | None = None
        """What it was asked to end with before its process was known, and whether its group is meant."""
        self._said = b""
        """The end of what the client wrote to its errors before the container began."""

    def start(self) -> None:
        super().start()
        self._client, self.pid = self.pid, 0
        self._begin_by = time.monotonic() + _BEGIN_SECONDS

    @property
    def child(self) -> int:
        return self._client

    @property
    def has_begun(self) -> bool:
        return self._began or self.exit is not None

    def _signal_main(self, number: int, *, group: bool) -> None:
        if not self._began:
            self._owed_signal = (number, group)
        elif proc_table.start_ticks(self.pid) == self.ticks:
            super()._signal_main(number, group=group)

    def _take(self, stream: str, data: bytes) -> None:
        if not self._began and stream == "stderr":
            self._said = (self._said + data)[-_SAID_MAX:]
        super()._take(stream, data)

    # ------------------------------------------------------------------------------------------------------------- course

    def wakes_at(self) -> float:
        if self.exit is not None:
            return super().wakes_at()
        if not self.is_running:
            return float("inf") if self._is_asking else self._ask_at
        begins = float("inf") if self._began else min(self._begin_by, float("inf") if self._is_asking else self._ask_at)
        return min(begins, self._stop_at if self._stop_at is not None else float("inf"))

    def tick(self, now: float, orphans: Callable[[ShimContainer], Iterable[int]]) -> bool:
        if self.exit is not None:
            return super().tick(now, orphans)
        if self.is_running:
            self._tick_running(now, orphans)
            return False
        if self._is_asking or now < self._ask_at:
            return False
        if self._end_state is None:
            self._ask()
            return False
        if not self._is_removed:
            self._is_asking = True
            self._run(self, self._engine.remove, _COMMAND_SECONDS, self._removed)
            return False
        return self._tick_ended(now, orphans)

    def _tick_running(self, now: float, orphans: Callable[[ShimContainer], Iterable[int]]) -> None:
        if self._stop_at is not None and now >= self._stop_at:
            if self._began and proc_table.start_ticks(self.pid) == self.ticks:
                self._kill(proc_table.tree_of(self.pid))
            if self._killing_since is None:
                self._killing_since = now
            if now >= self._killing_since + _CLIENT_SECONDS:
                self._kill([*proc_table.tree_of(self._client), *orphans(self)])
        if self._began:
            return
        if now >= self._begin_by and self._stop_at is None:
            self._stop_at, self._is_given_up = now, True
        if not self._is_asking and now >= self._ask_at:
            self._ask()

    def main_ended(self, status: int, now: float) -> None:
        super().main_ended(status, now)
        self._ask_at = now

    def _ask(self) -> None:
        self._is_asking = True
        while_running = self.is_running
        self._run(self, self._engine.state, _COMMAND_SECONDS, lambda answer: self._told_state(answer, while_running))

    def _told_state(self, answer: dict[str, Any], while_running: bool) -> None:
        self._is_asking = False
        state, now = _state_of(answer), time.monotonic()
        if while_running and not self.is_running:
            # Older than its end; there is a newer one.
            return
        if self.is_running:
            self._ask_at = now + self._pause
            self._pause = min(self._pause * 2, _ASK_SECONDS[1])
            if state is not None and _moment(state.get("StartedAt")) is not None:
                self._begin(state)
            return
        self._asked += 1
        self._ask_at = now + self._pause
        if state is not None or self._asked >= _ASKS_MAX:
            self._end_state, self._ask_at = state or {}, now
            began_at = _moment(self._end_state.get("StartedAt"))
            if began_at is not None and not self._began:
                # It was over before it was seen; who waits for its begin is told of that first.
                self._began, self.started_at = True, began_at

    def _begin(self, state: dict[str, Any]) -> None:
        pid = int(state.get("Pid") or 0)
        ticks = proc_table.start_ticks(pid) if pid else None
        if ticks is None:
            # It has ended already, which the client will show.
            return
        self.pid, self.ticks, self._began = pid, ticks, True
        self.started_at = _moment(state["StartedAt"]) or self.started_at
        if self._owed_signal is not None:
            number, group = self._owed_signal
            self._signal_main(number, group=group)

    def _removed(self, _: dict[str, Any]) -> None:
        # What it has on the disk where that failed the agent removes later.
        self._is_asking, self._is_removed, self._ask_at = False, True, 0.0

    # ---------------------------------------------------------------------------------------------------------------- end

    def _exit_values(self) -> dict[str, Any]:
        values, state = super()._exit_values(), self._end_state or {}
        began_at = _moment(state.get("StartedAt"))
        if began_at is None and not self._began:
            was_stopped = self._stop_at is not None and not self._is_given_up
            return values | ({"code": _KILLED_CODE} if was_stopped else self._start_error())
        code = int(values["code"])
        if state:
            code = int(state["ExitCode"]) if state.get("Status") in _ENDED else _KILLED_CODE
        oom = bool(state.get("OOMKilled")) or (self._out_of_memory and code == _KILLED_CODE)
        # The engine tells a signal by the code alone, as shells do.
        return values | {"code": code, "signal": 0, "oom": oom, "started_at": began_at or self.started_at}

    def _start_error(self) -> dict[str, Any]:
        lines = [line for line in self._said.decode(errors="replace").splitlines() if line.strip()]
        why = f"it did not begin within {_BEGIN_SECONDS:g} s" if self._is_given_up else "the engine did not say why"
        text = lines[-1].strip().removeprefix("Error: ") if lines else why
        return {"code": _START_ERROR_CODE, "signal": 0, "oom": False, "reason": "StartError", "message": text}


def container_of(name: str, attempt: int, directory: str, run: RunCommand) -> ShimContainer:
    """An attempt by its specification: one process, or one of an engine."""
    with open(os.path.join(directory, "spec.json"), encoding="utf-8") as file:
        values: dict[str, Any] = json.load(file)
    if "engine" in values:
        return EngineContainer(name, attempt, directory, values, run)
    return ShimContainer(name, attempt, directory, values)


def _state_of(answer: dict[str, Any]) -> dict[str, Any] | None:
    """None: it was not to be had."""
    if answer["code"]:
        return None
    # Warnings come with it.
    for line in answer["output"].splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return None


def _moment(text: Any) -> float | None:
    """Seconds since 1970; None: it never was, which engines write as the year 1."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found.timestamp() if found.year > 1 else None
