"""A replica's own Ray: one minimal head on loopback under a guardian, or a cluster that the user names.

Each local Ray has its own port, temp dir and token, so that any number of replicas share a host. It runs nothing that rayched
does not use (dashboard, monitor, log monitor). Never `ray stop`, never `address="auto"`: both reach for what is not ours.

Ray reads part of its settings from the environment when it is first imported; so `ray` is imported only after `LocalRay.start`
(or `connect_to`) has set it.

Cost: 3 s and 350 MB a head; 0.1 to 0.3 s and 50 MB an actor.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rayched.replica.processes import adopt_orphans, descendants, end_descendants

_START_SECONDS_MAX = 60.0
_OBJECT_STORE_BYTES = 80_000_000
"""Ray's minimum; the columns that travel between actors are far below."""
_LOG_TAIL_LINES = 5

log = logging.getLogger(__name__)


class RayUnavailable(Exception):
    """Ray did not start, or the cluster named does not answer."""


class LocalRay:
    """One head node of our own; started, watched and ended by pid."""

    def __init__(self, cpus: int = 64) -> None:
        self._cpus = cpus
        self._token = secrets.token_hex(32)
        # Unix sockets lie below it, and their path may be no longer than 107 bytes.
        self._directory = Path(tempfile.mkdtemp(prefix="rayched-ray-", dir="/tmp"))
        self._guardian: subprocess.Popen[bytes] | None = None
        self._other_children: frozenset[int] = frozenset()

    @property
    def guardian_pid(self) -> int | None:
        return None if self._guardian is None else self._guardian.pid

    def start(self) -> None:
        """Returns when this process is connected as a driver. Raises RayUnavailable."""
        _set_environment(self._token)
        adopt_orphans()
        self._other_children = frozenset(descendants(os.getpid()))
        ports = _free_ports(3)
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
            *("--node-ip-address=127.0.0.1", f"--port={ports[0]}", f"--ray-client-server-port={ports[1]}"),
            *("--include-dashboard=false", "--include-log-monitor=false", "--no-monitor", "--disable-usage-stats"),
            *(f"--dashboard-agent-listen-port={ports[2]}", f"--num-cpus={self._cpus}"),
            *(f"--object-store-memory={_OBJECT_STORE_BYTES}", f"--temp-dir={self._directory}"),
        ]
        with open(self._directory / "start.log", "wb") as output:
            self._guardian = subprocess.Popen(
                [sys.executable, "-m", "rayched.replica.guardian", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_for_port(ports[0])
            _connect(f"127.0.0.1:{ports[0]}", "127.0.0.1")
        except RayUnavailable:
            self.stop()
            raise

    def ended(self) -> bool:
        """The guardian is gone: killed, or because Ray itself ended."""
        return self._guardian is None or self._guardian.poll() is not None

    def stop(self) -> None:
        """Ends all of it by pid, also what a killed guardian left to us. Idempotent."""
        if self._guardian is None:
            return
        _disconnect()
        guardian, self._guardian = self._guardian, None
        guardian.terminate()
        if guardian.stdin is not None:
            guardian.stdin.close()
        try:
            guardian.wait(5.0)
        except subprocess.TimeoutExpired:
            end_descendants(guardian.pid)
            guardian.kill()
            guardian.wait()
        # A guardian that was killed left its tree to us, the next subreaper above it.
        end_descendants(os.getpid(), keep=self._other_children)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _wait_for_port(self, port: int) -> None:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.ended():
                break
            try:
                socket.create_connection(("127.0.0.1", port), 0.2).close()
                return
            except OSError:
                time.sleep(0.05)
        tail = (self._directory / "start.log").read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        raise RayUnavailable("Ray did not start: " + (" | ".join(tail) or f"no answer within {_START_SECONDS_MAX:.0f} s"))


def connect_to(address: str) -> None:
    """Makes this process a driver of the user's Ray cluster. Raises RayUnavailable."""
    _connect(address, None)


def _set_environment(token: str) -> None:
    os.environ |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "RAY_USAGE_STATS_ENABLED": "0",
        # The switch for hosts without Ray clusters: it keeps every port on loopback.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }


def _connect(address: str, node_ip_address: str | None) -> None:
    import ray

    options: dict[str, Any] = {} if node_ip_address is None else {"_node_ip_address": node_ip_address}
    deadline = time.monotonic() + _START_SECONDS_MAX
    while True:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **options)
            return
        except (ConnectionError, RuntimeError, TimeoutError) as error:
            if time.monotonic() > deadline:
                raise RayUnavailable(f"Ray at {address} does not answer: {str(error).splitlines()[0]}") from error
            time.sleep(0.2)


def _disconnect() -> None:
    if "ray" in sys.modules:
        import ray

        ray.shutdown()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()
