"""The gateway beside a replica: a process of its own that is started, watched, started anew, and ended with the replica.

What reaches the gateway from outside is to cost the replica nothing:

* It is a child with a memory of its own, of a limited size, and the first that the kernel ends where the host has none left.
* It runs at a lower priority, so a flood of requests takes the time that the replica leaves.
* What it writes to its standard error is told in the replica's log, a limited number of lines a minute.

One that ends by itself, or cannot be started, is started anew after a pause, which grows while that goes on. A replica without
its gateway goes on, and says so in its log alone: nothing that it serves itself has changed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from rayched.pki.tls_files import TlsFiles
from rayched.replica.ray.processes import dying_with_us

PAUSES_SECONDS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Before it is started anew for the first, second, ... time in a row; then the last one."""
SETTLED_SECONDS: Final = 60.0
"""After this one that ends counts as the first again."""
MEMORY_BYTES_MAX: Final = 1 << 30
"""Of its data. It has some 80 MB when nobody asks it anything."""
_NICENESS: Final = 5
_OOM_SCORE: Final = 900
"""Of 1,000, the highest."""
_STOP_SECONDS_MAX: Final = 4.0
_LINES_A_MINUTE: Final = 30
_LINE_CHARACTERS_MAX: Final = 500

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GatewayPlace:
    """Where a replica's gateway listens, and what it shows."""

    listen: str
    """HOST:PORT."""
    tls: TlsFiles | None
    """Its own certificate, and the authorities that the replica trusts; None: there is no TLS."""
    deny_list: Path | None = None

    def command(self, replica: str) -> list[str]:
        """What runs it for the replica whose API is at this address."""
        words = ["gateway", "--listen", self.listen, "--server", replica]
        if self.tls is None:
            words += ["--context", "none"]
        else:
            words += ["--tls-cert-file", str(self.tls.certificate), "--tls-private-key-file", str(self.tls.key)]
            words += ["--client-ca-file", str(self.tls.ca)]
            if self.deny_list is not None:
                words += ["--client-deny-list-file", str(self.deny_list)]
        return [sys.executable, "-m", "rayched.cli.main", *words]


class GatewayKeeper:
    """Owns a gateway from `start` to `stop`. Its thread starts the process, so it lives until the process is to end."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        memory_bytes: int = MEMORY_BYTES_MAX,
        pauses_seconds: Sequence[float] = PAUSES_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = list(command)
        self._memory_bytes = memory_bytes
        self._pauses = tuple(pauses_seconds)
        self._clock = clock
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self.starts = 0
        self._thread = threading.Thread(target=self._keep, name="gateway-keeper", daemon=True)

    @property
    def pid(self) -> int | None:
        """None: it does not run at the moment."""
        with self._lock:
            process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Does not wait for it."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it for good. Idempotent."""
        with self._lock:
            self._stopping.set()
            process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS_MAX)

    def _keep(self) -> None:
        in_a_row = 0
        while True:
            began = self._clock()
            try:
                process = self._started()
                if process is None:
                    return
                assert process.stderr is not None
                _tell(process.stderr, self._clock)
                what = f"has ended with code {process.wait()}"
            except (OSError, ValueError) as error:
                # The host has no processes or open files left, say: it may have some later.
                what = f"cannot be started ({error})"
            if self._stopping.is_set():
                return
            in_a_row = 0 if self._clock() - began > SETTLED_SECONDS else in_a_row
            pause = self._pauses[min(in_a_row, len(self._pauses) - 1)]
            in_a_row += 1
            _log.error("the gateway %s; it is started anew in %g s", what, pause)
            if self._stopping.wait(pause):
                return

    def _started(self) -> subprocess.Popen[str] | None:
        """None: it is to end. Raises OSError or ValueError, and then nothing runs."""
        with self._lock:
            if self._stopping.is_set():
                return None
            process = self._process = subprocess.Popen(
                dying_with_us(self._command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
            self.starts += 1
        # It has not begun to read anything: its interpreter is being started.
        try:
            _confine(process.pid, self._memory_bytes)
        except (OSError, ValueError):
            # Without a limit of its memory it is not let run.
            process.kill()
            process.communicate()
            raise
        return process


def _confine(pid: int, memory_bytes: int) -> None:
    """Its memory, its priority, and that the kernel ends it first. One that is gone already is left alone. Raises OSError and
    ValueError where its memory cannot be limited."""
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
        # Without privileges nobody raises what the host has set.
        most = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
        resource.prlimit(pid, resource.RLIMIT_DATA, (most, most))
        try:
            os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
            Path(f"/proc/{pid}/oom_score_adj").write_text(str(_OOM_SCORE))
        except PermissionError as error:
            _log.warning("the gateway runs without a lower priority or as one of many for the kernel to end: %s", error)


def _tell(lines: IO[str], clock: Callable[[], float]) -> None:
    """Until its end: what it says goes to the log, as far as that is much."""
    minute, told = clock(), 0
    while line := lines.readline(_LINE_CHARACTERS_MAX):
        if clock() - minute >= 60.0:
            minute, told = clock(), 0
        told += 1
        if told <= _LINES_A_MINUTE:
            _log.warning("gateway: %s", line.rstrip("\n"))
        elif told == _LINES_A_MINUTE + 1:
            _log.warning("gateway: it says more than %d lines a minute, which are left out", _LINES_A_MINUTE)
