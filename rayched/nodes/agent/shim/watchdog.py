"""The shim's second thread: kills all that runs below the shim at its fence, whatever the shim itself waits for.

The shim's loop writes logs and exits, and a disk that does not answer holds it up for as long as it likes. This thread touches no
disk: it waits for a timer, reads from /proc who descends from whom, writes to cgroups, and sends signals. What it needs for that
is loaded before anything is started.

Once the fence has come it goes on for as long as the shim lives, as a start may have been under way that the disk held up.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final

from rayched.nodes.agent.shim import cgroup, proc_table
from rayched.nodes.agent.shim.boot_timer import BootTimer, boottime

_PAUSE_SECONDS: Final = (0.01, 0.5)
"""Between two looks: while something lives, and at most."""


class FenceWatchdog:
    """Start it once. `put` is called by the shim's loop."""

    def __init__(self, clock: Callable[[], float] = boottime) -> None:
        self._clock = clock
        self._timer = BootTimer()
        self._lock = threading.Lock()
        self._at = float("inf")
        self.cgroups: tuple[str, ...] = ()
        """Of the containers; replaced as a whole."""
        self._thread = threading.Thread(target=self._run, name="fence", daemon=True)

    def start(self) -> None:
        # What this loads from the disk is there from now on.
        self._living()
        self._thread.start()

    def put(self, at: float) -> bool:
        """The fence is then, and no longer when it was before; False: that had come."""
        with self._lock:
            if self._clock() >= self._at:
                return False
            self._at = at
            self._timer.set(at)
            return True

    def _run(self) -> None:
        while not self._has_come():
            self._timer.wait()
        pause = _PAUSE_SECONDS[0]
        while True:
            pause = _PAUSE_SECONDS[0] if self._strike() else min(pause * 2, _PAUSE_SECONDS[1])
            time.sleep(pause)

    def _has_come(self) -> bool:
        with self._lock:
            return self._clock() >= self._at

    def _strike(self) -> bool:
        """Whether there was something to kill."""
        for path in self.cgroups:
            cgroup.kill(path)
        living = self._living()
        for pid in living:
            try:
                proc_table.kill(pid)
            except PermissionError:
                # It became somebody else's, which shall not spare the others.
                continue
        return bool(living)

    def _living(self) -> list[int]:
        return [pid for pid in proc_table.tree_of(os.getpid())[1:] if proc_table.is_alive(pid)]
