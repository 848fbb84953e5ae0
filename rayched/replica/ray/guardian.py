"""The guardian: a small process between a replica and its Ray, which ends Ray's whole tree when the replica is gone.

    replica ── guardian ── ray start --block ── gcs_server, raylet ── actors

It holds the read end of a pipe to the replica: end of file means that the replica ended, however that happened. As the subreaper
of everything below it, it finds Ray's processes by pid even where they daemonised themselves. It also ends them, and itself, on
SIGTERM and as soon as `ray start`, the GCS or the raylet has ended, so that the replica sees one child end and starts anew.

A replica that leads tells its term through the pipe. When the pipe ends and the kernel says that the process has ended too, the
guardian revokes the lease of exactly that term, so that the followers need not wait for it (term_revoker.py).

Should the guardian itself be killed, its orphans fall to the replica, which is a subreaper too (local_ray.py), and `ray start`
gets SIGTERM from the kernel.

Nothing below is worth a graceful end: Ray holds no truth here. Its directory goes with it.

Run as `python -m rayched.replica.ray.guardian [--log-format=json] DIRECTORY COMMAND...` with the pipe as standard input; what Ray
prints goes to standard output, the guardian's own log to standard error. Cost: 10 MB, 35 where the replica leads; it sleeps until
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

from rayched.replica.log_lines import log_to_stderr
from rayched.replica.ray.processes import adopt_orphans, descendants, dying_with_us, end_descendants, signal_at_parents_end
from rayched.replica.ray.published_term import LINE_BYTES_MAX
from rayched.replica.ray.term_revoker import TermRevoker
from rayched.replica.stop_signals import unblock_stop_signals

LOG_FORMAT = "--log-format="
"""Of the guardian's own log, text or json; may stand before the directory."""
VITAL = ("gcs_server", "raylet")
"""Names of the programs without which a Ray is dead."""
_SEARCH_SECONDS = 0.2
"""Between two looks for the vital processes, until they are found."""
_SEARCH_SECONDS_MAX = 120.0
_REPLICAS_END_SECONDS_MAX = 1.0
"""From the end of its pipe to its own; a killed process closes its descriptors first."""


def main(*arguments: str) -> int:
    log_format = arguments[0].removeprefix(LOG_FORMAT) if arguments[0].startswith(LOG_FORMAT) else ""
    directory, *command = arguments[1:] if log_format else arguments
    adopt_orphans()
    # Whoever stopped us, the replica that ends us by force among them, we go on when it is gone.
    signal_at_parents_end(signal.SIGCONT)
    log_to_stderr(log_format, "info", lambda: {"component": "guardian"})
    replica = os.pidfd_open(os.getppid())
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    told_to_end: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told_to_end.append(number))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    unblock_stop_signals()
    revoker = TermRevoker()
    ray = subprocess.Popen(dying_with_us(command), stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        code = _watch(ray, wake_read, told_to_end, revoker)
        if code is None:
            code = 0
            _replica_gone(replica, revoker)
        return code
    finally:
        end_descendants(os.getpid())
        shutil.rmtree(directory, ignore_errors=True)
        revoker.finish()


def _watch(ray: subprocess.Popen[bytes], wake_read: int, told_to_end: list[int], revoker: TermRevoker) -> int | None:
    """Sleeps until something ends. The exit code; None where the replica has let go of its pipe."""
    replica = sys.stdin.fileno()
    ends = select.poll()
    for descriptor in (replica, wake_read):
        ends.register(descriptor, select.POLLIN)
    vital: dict[int, str] = {}
    search_until = time.monotonic() + _SEARCH_SECONDS_MAX
    while not told_to_end and ray.poll() is None:
        searching = len(vital) < len(VITAL) and time.monotonic() < search_until
        waits = [wait for wait in (_SEARCH_SECONDS if searching else None, revoker.wait_seconds()) if wait is not None]
        for descriptor, _ in ends.poll(min(waits) * 1000 if waits else None):
            if descriptor == replica:
                if not (said := os.read(replica, LINE_BYTES_MAX)):
                    return None
                revoker.hear(said)
            elif descriptor == wake_read:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
            else:
                print(f"{vital[descriptor]} has ended", flush=True)
                return 1
        _reap_adopted(ray.pid)
        revoker.prepare()
        if searching:
            for name, pid in vital_processes(os.getpid()).items():
                if name not in vital.values():
                    with contextlib.suppress(ProcessLookupError):
                        vital[found := os.pidfd_open(pid)] = name
                        ends.register(found, select.POLLIN)
    return 0 if told_to_end else 1


def _replica_gone(replica: int, revoker: TermRevoker) -> None:
    """Its pipe is closed, which a living one may do as well: only the kernel's word that the process has ended counts."""
    end = select.poll()
    end.register(replica, select.POLLIN)
    if end.poll(_REPLICAS_END_SECONDS_MAX * 1000):
        revoker.revoke("whose process has ended")


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
