"""The agent's own end of a fence: a thread that kills what is left of a pod when its node was cut off for too long.

The agent's loop and the pod's shim both ask the pod to end before that, and both may be held up by a disk that does not answer.
This thread touches no disk: it waits for a timer, and kills the pod's cgroups and what descends from its shim. The shim itself
stays, as it knows how its containers ended.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rayched.nodes.agent.containment import kill_cgroups
from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.shim.boot_timer import BootTimer, boottime

_AGAIN_SECONDS: Final = 0.1
_NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class ShimProcess:
    """Told from one that has its pid later by when it began."""

    pid: int
    ticks: int | None


@dataclass(slots=True)
class _GuardedPod:
    at: float
    shim: ShimProcess | None


class FenceGuard:
    """Start it once, stop it once. The rest is called by the agent's loop. Times are those of `boottime`."""

    def __init__(self, cgroups: Path | None, clock: Callable[[], float] = boottime) -> None:
        self._cgroups = cgroups
        self._clock = clock
        self._timer = BootTimer()
        self._lock = threading.Lock()
        self._pods: dict[str, _GuardedPod] = {}
        self._wakes_at = _NEVER
        """No later than the soonest pod; what was put off is seen when that has come."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-fences", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> None:
        self._stopped.set()
        self._timer.set(0.0)
        self._thread.join(seconds)

    def put(self, uid: str, at: float, shim: ShimProcess | None) -> None:
        """The pod may not live beyond that; what has come is not put off. `shim` None: nobody knows it yet."""
        with self._lock:
            one = self._pods.setdefault(uid, _GuardedPod(at, shim))
            if self._clock() < one.at:
                one.at = at
            one.shim = shim
            if one.at < self._wakes_at:
                self._wakes_at = one.at
                self._timer.set(one.at)

    def forget(self, uid: str) -> None:
        """Nothing of it lives any more."""
        with self._lock:
            self._pods.pop(uid, None)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._timer.wait()
            now = self._clock()
            # The lock is held while pods are killed, so that nothing of a pod is after it was forgotten.
            with self._lock:
                due = [(uid, one.shim) for uid, one in self._pods.items() if one.at <= now]
                for uid, shim in due:
                    self._kill(uid, shim)
                times = [one.at for one in self._pods.values() if one.at > now]
                if due:
                    # What was killed may have begun something before it died.
                    times.append(now + _AGAIN_SECONDS)
                self._wakes_at = 0.0 if self._stopped.is_set() else min(times, default=_NEVER)
                self._timer.set(self._wakes_at)

    def _kill(self, uid: str, shim: ShimProcess | None) -> None:
        if self._cgroups is not None:
            kill_cgroups(self._cgroups / uid)
        if shim is None or shim.ticks is None or proc_table.start_ticks(shim.pid) != shim.ticks:
            return
        for pid in proc_table.tree_of(shim.pid)[1:]:
            with contextlib.suppress(PermissionError):
                proc_table.kill(pid)
