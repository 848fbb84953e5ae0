"""The guardian: a small process between a replica and its Ray, which ends Ray's whole tree when the replica is gone.

    replica ── guardian ── ray start --block ── gcs_server, raylet ── actors

It holds the read end of a pipe to the replica: end of file means that the replica ended, however that happened. As the subreaper
of everything below, it finds Ray's processes by pid even where they daemonised themselves. It also ends them, and itself, on
SIGTERM and when Ray's own supervisor leaves (a dead raylet or GCS), so that the replica sees one child end and starts anew.

Should the guardian itself be killed, its orphans fall to the replica, which is a subreaper too (local_ray.py).

Nothing below is worth a graceful end: Ray holds no truth here.

Run as `python -m rayched.replica.guardian COMMAND...` with the pipe as standard input.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

from rayched.replica.processes import adopt_orphans, end_descendants

_POLL_SECONDS = 0.2


def main(command: list[str]) -> int:
    adopt_orphans()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ray = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        while ray.poll() is None:
            ready, _, _ = select.select([sys.stdin.fileno(), wake_read], [], [], _POLL_SECONDS)
            if ready:
                return 0
            _reap_adopted(ray.pid)
        return 1
    finally:
        end_descendants(os.getpid())


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
    sys.exit(main(sys.argv[1:]))
