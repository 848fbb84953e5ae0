"""A replica's own Ray: one minimal head on loopback under a guardian, or a cluster that the user names.

Each local Ray has its own ports, temp dir and token, so that any number of replicas share a host. All ports are chosen by the
system when they are bound, so replicas that start at the same moment cannot take them from each other. It runs nothing that
rayched does not use (dashboard, client server, monitor, log monitor, the raylet's agents). Never `ray stop`, never
`address="auto"`: both reach for what is not ours.

Ray reads part of its settings from the environment when it is first imported, the token once for the life of the process. So
`ray` is imported only after `LocalRay.start` (or `connect_to`) has set them.

Cost: 2 s, of which 1 s of CPU, and 180 MB a head; 0.6 s of CPU and 50 MB an actor.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from rayched.actors.process_handle import ProcessHandle, handle_of
from rayched.replica.own_directories import SHORT, make_own_directory, remove_own_directory
from rayched.replica.ray.guardian import LOG_FORMAT, vital_processes
from rayched.replica.ray.processes import adopt_orphans, descendants, end_descendants, end_tree
from rayched.replica.ray.published_term import LINE_BYTES_MAX
from rayched.replica.ray.ray_start_hook import HOOK

_START_SECONDS_MAX: Final = 180.0
"""On a machine with nothing else to do it takes two."""
_POLL_SECONDS: Final = 0.02
_CONNECT_PAUSE_SECONDS: Final = 0.5
_GUARDIAN_SECONDS_MAX: Final = 2.0
_OBJECT_STORE_BYTES: Final = 80_000_000
"""Ray's minimum; the columns that travel between actors are far below."""
_MESSAGE_BYTES_MAX: Final = 16 << 20
"""Of gRPC between Ray's processes."""
_LOG_TAIL_LINES: Final = 3
_CPUS: Final = 64
"""Ray starts no more processes than this at once; our actors ask for none."""

ALWAYS: Final = {
    # A call that comes after the end of a Ray would start another one.
    "RAY_ENABLE_AUTO_CONNECT": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""For every driver, in its environment before `ray` is imported."""

log = logging.getLogger("rayched.replica")


class RayUnavailable(Exception):
    """Ray did not start, has ended, or the cluster named does not answer: one line."""


class StartCancelled(RayUnavailable):
    """Nobody wants it any more."""


class LocalRay:
    """One head node of our own; started, watched and ended by pid. `start` and `stop` once each, in this order."""

    def __init__(self, log_format: str = "text") -> None:
        """`log_format`: of the guardian's lines on standard error."""
        self._log_format = log_format
        self._directory = make_own_directory(SHORT)
        # Ray opens its directory to everybody; ours around it stays closed.
        self._ray_directory = self._directory / "r"
        self._guardian: subprocess.Popen[bytes] | None = None
        self._start_log: BinaryIO | None = None
        self._vital: dict[str, ProcessHandle] = {}
        self._other_children: frozenset[int] = frozenset()
        self._pipe = threading.Lock()
        """Held while the pipe to the guardian is written or closed."""

    @property
    def guardian_pid(self) -> int | None:
        return None if self._guardian is None else self._guardian.pid

    def start(self, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Returns when this process is connected as a driver. Raises RayUnavailable; StartCancelled soon after `cancelled`."""
        _set_environment()
        adopt_orphans()
        self._other_children = frozenset(descendants(os.getpid()))
        began = time.monotonic()
        try:
            # Read through this file alone: a guardian that ends removes the directory.
            self._start_log = output = open(self._directory / "start.log", "w+b")  # noqa: SIM115 - stop closes it
            with _busy_port() as busy:
                program = [sys.executable, "-m", "rayched.replica.ray.guardian", f"{LOG_FORMAT}{self._log_format}"]
                guardian = [*program, str(self._directory)]
                self._guardian = subprocess.Popen(
                    [*guardian, *_ray_start(self._ray_directory, busy)],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    start_new_session=True,
                )
                if self._guardian.stdin is not None:
                    os.set_blocking(self._guardian.stdin.fileno(), False)
                _import_ray()
                address = self._wait_for_address(began + _START_SECONDS_MAX, cancelled)
            found = vital_processes(self._guardian.pid)
            # One that has ended already is missing; the guardian ends with it.
            self._vital = {name: handle for name, pid in found.items() if (handle := handle_of(pid)) is not None}

            def check() -> None:
                self._check_start(began + _START_SECONDS_MAX, cancelled)

            _connect(address, "127.0.0.1", check)
        except BaseException:
            self.stop()
            raise
        log.info("Ray is there, after %.1f s", time.monotonic() - began)

    def publish(self, line: bytes) -> None:
        """Tells the guardian which term this replica holds (published_term.py). Does not block; any thread."""
        with self._pipe:
            guardian = self._guardian
            if guardian is not None and guardian.stdin is not None and not guardian.stdin.closed:
                try:
                    if len(line) > LINE_BYTES_MAX:  # a part of it might be written
                        raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
                    os.write(guardian.stdin.fileno(), line)
                except OSError as error:
                    log.warning("the guardian is not told of this term, whose lease will run out: %s", error.strerror)

    def ended(self) -> bool:
        return self.what_ended() is not None

    def what_ended(self) -> str | None:
        """The process whose end is the end of this Ray; None while it lives. Noticed before any actor can tell of it."""
        for name, process in self._vital.items():
            if not process.alive:
                return f"{name} (pid {process.pid})"
        if self._guardian is None:
            return "what was never started"
        return None if self._guardian.poll() is None else f"guardian (pid {self._guardian.pid})"

    def stop(self) -> None:
        """Ends all of it by pid, also what a killed guardian left to us. Idempotent."""
        guardian, self._guardian = self._guardian, None
        if guardian is not None:
            disconnect()
            guardian.terminate()
            with self._pipe:
                if guardian.stdin is not None:
                    guardian.stdin.close()
            try:
                guardian.wait(_GUARDIAN_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                end_tree(guardian.pid)
                guardian.wait()
            # A guardian that was killed left its tree to us, the next subreaper above it.
            end_descendants(os.getpid(), keep=self._other_children)
        if self._start_log is not None:
            self._start_log.close()
            self._start_log = None
        remove_own_directory(self._directory)

    def _wait_for_address(self, deadline: float, cancelled: Callable[[], bool]) -> str:
        """Where the GCS listens. `ray start` writes it when all its processes run."""
        file = self._ray_directory / "ray_current_cluster"
        while True:
            with contextlib.suppress(FileNotFoundError):
                if address := file.read_text().strip():
                    return address
            self._check_start(deadline, cancelled)
            time.sleep(_POLL_SECONDS)

    def _check_start(self, deadline: float, cancelled: Callable[[], bool]) -> None:
        """Raises where waiting any longer is of no use."""
        if cancelled():
            raise StartCancelled("the start of Ray was cancelled")
        if self.ended():
            raise RayUnavailable(f"Ray did not start: {self._log_tail()}")
        if time.monotonic() > deadline:
            raise RayUnavailable(f"Ray did not start within {_START_SECONDS_MAX:.0f} s: {self._log_tail()}")

    def _log_tail(self) -> str:
        if self._start_log is None:
            return "it was not begun"
        self._start_log.seek(0)
        lines = self._start_log.read().decode(errors="replace").split("\n")
        return " | ".join([line.strip() for line in lines if line.strip()][-_LOG_TAIL_LINES:]) or "it said nothing"


def connect_to(address: str, cancelled: Callable[[], bool] = lambda: False) -> None:
    """Makes this process a driver of the user's Ray cluster. Raises RayUnavailable, and StartCancelled soon after `cancelled`."""
    os.environ |= ALWAYS
    deadline = time.monotonic() + _START_SECONDS_MAX

    def check() -> None:
        if cancelled():
            raise StartCancelled("connecting to Ray was cancelled")
        if time.monotonic() > deadline:
            raise RayUnavailable(f"--ray-address {address}: no Ray answers there")

    _connect(address, None, check)


def disconnect() -> None:
    """Ends being a driver; the actors that this process created end with it."""
    if "ray" in sys.modules:
        import ray

        ray.shutdown()


def _ray_start(directory: Path, busy_port: int) -> list[str]:
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        *("--node-ip-address=127.0.0.1", "--port=0", "--dashboard-agent-listen-port=0"),
        # Without these, workers and drivers of all Rays of a host get theirs from one range, before they are bound.
        *("--min-worker-port=0", "--max-worker-port=0"),
        # Without a dashboard Ray still starts its process, for statistics, and waits for it, unless its port is taken.
        *("--include-dashboard=false", f"--dashboard-port={busy_port}"),
        *("--include-log-monitor=false", "--no-monitor", "--disable-usage-stats"),
        *(f"--num-cpus={_CPUS}", f"--object-store-memory={_OBJECT_STORE_BYTES}", f"--temp-dir={directory}"),
    ]


@contextlib.contextmanager
def _busy_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@functools.cache
def _token() -> str:
    return secrets.token_hex(32)


def _set_environment() -> None:
    # An address that the user has set for other purposes would win over ours.
    os.environ.pop("RAY_ADDRESS", None)
    os.environ |= ALWAYS | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": _token(),
        "RAY_START_HOOK": HOOK,
        # The switch for hosts without Ray clusters: it keeps every port on loopback.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        # Ray's 15 would let everything else on the machine go before the scheduler.
        "RAY_worker_niceness": "0",
        # The GCS reads a message before it asks for the token. Arguments above 100 KB do not go through it.
        "RAY_max_grpc_message_size": str(_MESSAGE_BYTES_MAX),
        # Records of each call, for a dashboard; ending a driver waits 5 s for them when its Ray is dead.
        "RAY_task_events_report_interval_ms": "0",
        # Ray's defaults are 30 and 60 s: where three replicas start on a busy machine, a late agent would end its raylet.
        "RAY_agent_register_timeout_ms": str(int(_START_SECONDS_MAX * 1000)),
        "RAY_worker_register_timeout_seconds": str(int(_START_SECONDS_MAX)),
    }


def _import_ray() -> None:
    import ray  # noqa: F401  # takes half a second, while Ray's own processes start

    # What it tells at lower levels is about Ray's own state and the signals that are not its business here.
    logging.getLogger("ray").setLevel(logging.ERROR)


def _connect(address: str, node_ip_address: str | None, check: Callable[[], None]) -> None:
    """Tries until it works or `check` raises."""
    _import_ray()
    import ray

    options: dict[str, Any] = {} if node_ip_address is None else {"_node_ip_address": node_ip_address}
    while True:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **options)
            return
        except (ConnectionError, RuntimeError, TimeoutError, ray.exceptions.RayError) as error:
            ray.shutdown()
            log.warning("Ray at %s does not answer yet: %s", address, (str(error).splitlines() or [type(error).__name__])[0])
        check()
        time.sleep(_CONNECT_PAUSE_SECONDS)
