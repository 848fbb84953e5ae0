"""The guardian: a small process between a replica and its Ray, which ends Ray's whole tree when the replica is gone.

    replica ── guardian ── ray start --block ── gcs_server, raylet ── actors

It holds the read end of a pipe to the replica: end of file means that the replica ended, however that happened. As the subreaper
of everything below it, it finds Ray's processes by pid even where they daemonised themselves. It also ends them, and itself, on
SIGTERM and as soon as `ray start`, the GCS or the raylet has ended, so that the replica sees one child end and starts anew.

Should the guardian itself be killed, its orphans fall to the replica, which is a subreaper too (local_ray.py), and `ray start`
gets SIGTERM from the kernel.

Nothing below is worth a graceful end: Ray holds no truth here. Its directory goes with it.

Run as `python -m rayched.replica.ray.guardian DIRECTORY COMMAND...` with the pipe as standard input. Cost: 10 MB; it sleeps until
something ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from rayched.replica.ray.processes import adopt_orphans, descendants, dying_with_us, end_descendants
from rayched.replica.stop_signals import unblock_stop_signals

VITAL = ("gcs_server", "raylet")
"""Names of the programs without which a Ray is dead."""
_SEARCH_SECONDS = 0.2
"""Between two looks for the vital processes, until they are found."""
_SEARCH_SECONDS_MAX = 120.0


def main(directory: str, *command: str) -> int:
    adopt_orphans()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    told_to_end: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told_to_end.append(number))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    unblock_stop_signals()
    ray = subprocess.Popen(dying_with_us(list(command)), stdin=subprocess.DEVNULL)
    ends = select.poll()
    for descriptor in (sys.stdin.fileno(), wake_read):
        ends.register(descriptor, select.POLLIN)
    vital: dict[int, str] = {}
    search_until = time.monotonic() + _SEARCH_SECONDS_MAX
    try:
        while not told_to_end and ray.poll() is None:
            searching = len(vital) < len(VITAL) and time.monotonic() < search_until
            for descriptor, _ in ends.poll(_SEARCH_SECONDS * 1000 if searching else None):
                if descriptor == sys.stdin.fileno():
                    return 0
                if descriptor == wake_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, 4096)
                else:
                    print(f"{vital[descriptor]} has ended", flush=True)
                    return 1
            _reap_adopted(ray.pid)
            if searching:
                for name, pid in vital_processes(os.getpid()).items():
                    if name not in vital.values():
                        with contextlib.suppress(ProcessLookupError):
                            vital[found := os.pidfd_open(pid)] = name
                            ends.register(found, select.POLLIN)
        return 0 if told_to_end else 1
    finally:
        end_descendants(os.getpid())
        shutil.rmtree(directory, ignore_errors=True)


def vital_processes(pid: int) -> dict[str, int]:
    """Those below `pid` without which its Ray is dead, by name."""
    found: dict[str, int] = {}
    for process in descendants(pid):
        with contextlib.suppress(OSError):
            program = Path("/proc", str(process), "cmdline").read_bytes().partition(b"\0")[0]
            name = program.rpartition(b"/")[2].decode(errors="replace")
            if name in VITAL:
                found.setdefault(name, process)
    return found


def _reap_adopted(ray: int) -> None:
    """Collects orphans that ended under us; `ray` itself is left to its Popen."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid == ray:
            return
        os.waitpid(found.si_pid, 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
