"""What is left of a pod that nobody looks after any more: its shim, what descends from that, what carries the pod's cookie, and
what is in its cgroups. All of it is killed; a process that hangs in the kernel lives on, and is tried again later.

Nothing is started, removed or called ended before the pod's sweep is over; nobody else waits for it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from rayched.nodes.agent.agent_metrics import AgentMetrics
from rayched.nodes.agent.containment import kill_cgroups
from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.workers import Workers

_SHIM: Final = "rayched.nodes.agent.shim"
"""Stands in the program of each shim, of any version; the last word is the pod's directory."""
_LOOK_SECONDS: Final = 0.01
FIRST_SECONDS: Final = 2.0
"""So long it is tried at a time: what can be killed is gone by then."""
_AGAIN_SECONDS: Final = 0.1
"""The same, of what did not go before."""
_PAUSE_SECONDS: Final = (1.0, 30.0)
"""Between two tries: at first, and at most."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Swept:
    """`left`: living processes of the pod that do not die; empty: nothing of it lives."""

    killed: int
    left: frozenset[int]


def sweep(uid: str, cgroups: Path | None, seconds: float = FIRST_SECONDS) -> Swept:
    """Kills what is left of the pod until nothing is, for so long at most. It blocks. Raises OSError."""
    ends_at = time.monotonic() + seconds
    found: set[int] = set()
    while living := strike(uid, cgroups):
        found |= living
        if time.monotonic() >= ends_at:
            break
        time.sleep(_LOOK_SECONDS)
    return Swept(len(found - living), frozenset(living))


def strike(uid: str, cgroups: Path | None) -> set[int]:
    """Kills what is there now; who that is. A shim goes last: what descends from it is known by that alone."""
    shims, marked = _present(uid)
    for pid in shims:
        _kill(pid, signal.SIGSTOP)
    below = {pid for shim in shims for pid in proc_table.tree_of(shim)[1:] if proc_table.is_alive(pid)}
    in_cgroups = kill_cgroups(cgroups / uid) if cgroups is not None else set()
    # To kill 0 would be to kill this process.
    for pid in below | marked | in_cgroups - {0}:
        _kill(pid, signal.SIGKILL)
    for pid in () if below else shims:
        _kill(pid, signal.SIGKILL)
    return shims | below | marked | in_cgroups


def shims_of(uid: str) -> set[int]:
    """Living shims of the pod, by what they were started with: also those whose directory is gone."""
    return _present(uid)[0]


def _present(uid: str) -> tuple[set[int], set[int]]:
    """Living shims of the pod, and living processes that carry its cookie. One look at /proc: each start of a pod begins so."""
    shims: set[int] = set()

    def look(pid: int) -> None:
        if _is_shim_of(pid, uid):
            shims.add(pid)

    return shims, set(proc_table.processes_of_pod(uid, look))


def _is_shim_of(pid: int, uid: str) -> bool:
    words = proc_table.command_of(pid)
    return any(_SHIM in word for word in words) and os.path.basename(words[-1]) == uid and proc_table.is_alive(pid)


def _kill(pid: int, number: int) -> None:
    # What became somebody else's by a setuid program stays, and is told.
    with contextlib.suppress(PermissionError):
        proc_table.kill(pid, number)


@dataclass(slots=True)
class _Sweep:
    done: list[Callable[[], None]] = field(default_factory=list)
    stuck: list[Callable[[frozenset[int]], None]] = field(default_factory=list)
    pause: float = _PAUSE_SECONDS[0]


class Leftovers:
    """Sweeps of a node's pods, each pod's once at a time. The agent's loop owns it; workers kill."""

    def __init__(
        self,
        workers: Workers,
        later: Callable[[float, Callable[[], None]], None],
        cgroups: Path | None,
        metrics: AgentMetrics,
        strike_for: Callable[[str, Path | None, float], Swept] = sweep,
    ) -> None:
        """`workers` are its own: what does not die shall hold up nothing but sweeps."""
        self._workers = workers
        self._later = later
        self._cgroups = cgroups
        self._metrics = metrics
        self._sweep = strike_for
        self._under_way: dict[str, _Sweep] = {}

    def uids_in_cgroups(self) -> set[str]:
        """Pods that have cgroups of this node's."""
        if self._cgroups is None or not self._cgroups.is_dir():
            return set()
        return {entry.name for entry in self._cgroups.iterdir() if entry.is_dir()}

    def sweep(self, uid: str, done: Callable[[], None], stuck: Callable[[frozenset[int]], None] = lambda _: None) -> None:
        """`done` once nothing of the pod lives; `stuck` gets what does not die, after each try."""
        is_new = uid not in self._under_way
        one = self._under_way.setdefault(uid, _Sweep())
        one.done.append(done)
        one.stuck.append(stuck)
        if is_new:
            self._try(uid, FIRST_SECONDS)

    def _try(self, uid: str, seconds: float) -> None:
        self._workers.submit(f"sweep of pod {uid}", lambda: self._sweep(uid, self._cgroups, seconds), partial(self._tried, uid))

    def _tried(self, uid: str, found: Swept | Exception) -> None:
        one = self._under_way[uid]
        if isinstance(found, Swept):
            self._metrics.leftovers.inc(found.killed)
            if not found.left:
                del self._under_way[uid]
                for done in one.done:
                    done()
                return
            log.warning("pod %s: processes %s do not die", uid, ", ".join(map(str, sorted(found.left))))
            for stuck in one.stuck:
                stuck(found.left)
        self._later(one.pause, partial(self._try, uid, _AGAIN_SECONDS))
        one.pause = min(one.pause * 2, _PAUSE_SECONDS[1])
