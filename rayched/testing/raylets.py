"""A Ray cluster of several nodes on this host, as a user has one: for `--ray-address`, and gone with the block.

Each node is a `ray start` of its own with CPUs of its own, below a guardian, which ends all of it when this process is gone.
A token keeps others out: whoever connects needs `environment`.

Cost: 2 s of CPU and 100 MB a node.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rayched.replica.ray.guardian import vital_processes

_START_SECONDS_MAX: Final = 120.0
_POLL_SECONDS: Final = 0.1
_OBJECT_STORE_BYTES: Final = 80_000_000


class RayletsFailed(Exception):
    """They did not start: one line."""


@dataclass(frozen=True)
class RayletShape:
    """What a node has beside its CPUs. `memory` in bytes; None: Ray decides."""

    resources: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    memory: int | None = None

    def options(self) -> list[str]:
        found = [f"--resources={json.dumps(dict(self.resources))}"] if self.resources else []
        found += ["--labels=" + ",".join(f"{key}={label}" for key, label in self.labels.items())] if self.labels else []
        return found if self.memory is None else [*found, f"--memory={self.memory}"]


class RayletCluster:
    """A context manager. Nodes have numbers; 0 is the head, beside which drivers of this host run."""

    def __init__(self, nodes: int, cpus: int, shapes: Sequence[RayletShape] = ()) -> None:
        """`cpus` of each node; `shapes` of the first ones."""
        self._count = nodes
        self._cpus = cpus
        self._shapes = shapes
        self._directory = Path(tempfile.mkdtemp(prefix="raylets-", dir="/tmp"))
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}
        self.address = ""
        """Host and port of its GCS."""
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_raylet_start_wait_time_s": str(int(_START_SECONDS_MAX)),
            "RAY_worker_register_timeout_seconds": str(int(_START_SECONDS_MAX)),
            "RAY_agent_register_timeout_ms": str(int(_START_SECONDS_MAX * 1000)),
        }

    def __enter__(self) -> Self:
        try:
            self._start_head()
            for number in range(1, self._count):
                self.add(self._shape(number))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def add(self, shape: RayletShape | None = None) -> int:
        """Another node; its number. Returns when it runs. Raises RayletsFailed."""
        number = max(self._nodes) + 1
        self._start(number, f"--address={self.address}", *(shape or RayletShape()).options())
        return number

    def _shape(self, number: int) -> RayletShape:
        return self._shapes[number] if number < len(self._shapes) else RayletShape()

    def kill(self, number: int) -> None:
        """SIGKILL to the raylet of a node. What it ran ends with it."""
        guardian = self._nodes.pop(number)
        os.kill(vital_processes(guardian.pid)["raylet"], signal.SIGKILL)
        guardian.communicate(timeout=_START_SECONDS_MAX)

    @contextlib.contextmanager
    def without_raylet(self, number: int) -> Iterator[None]:
        """SIGKILL to the raylet of a node, as where it alone crashes: what ran beside it goes on within the block."""
        guardian = self._nodes[number]
        # It would end all of the node.
        os.kill(guardian.pid, signal.SIGSTOP)
        try:
            os.kill(vital_processes(guardian.pid)["raylet"], signal.SIGKILL)
            yield
        finally:
            os.kill(guardian.pid, signal.SIGCONT)
            self._nodes.pop(number).communicate(timeout=_START_SECONDS_MAX)

    def close(self) -> None:
        # The head last: the others end in peace.
        for number in sorted(self._nodes, reverse=True):
            # It closes the pipe and waits.
            self._nodes.pop(number).communicate(timeout=_START_SECONDS_MAX)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _start_head(self) -> None:
        file = self._directory / "ray_current_cluster"
        head = ("--head", "--port=0", "--include-dashboard=false", f"--temp-dir={self._directory}")
        self._start(0, *head, *self._shape(0).options())
        self.address = file.read_text().strip()

    def _start(self, number: int, *options: str) -> None:
        log, own = self._directory / f"start-{number}.log", self._directory / f"guardian-{number}"
        own.mkdir()
        with log.open("wb") as output:
            self._nodes[number] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "rayched.replica.ray.guardian", str(own)),
                    *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *options),
                    *("--node-ip-address=127.0.0.1", "--min-worker-port=0", "--max-worker-port=0"),
                    *(f"--num-cpus={self._cpus}", f"--object-store-memory={_OBJECT_STORE_BYTES}"),
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                # What a Ray of this process's own was told, such as to stay on loopback, is not for these.
                env={name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | self.environment,
                start_new_session=True,
            )
        # What it prints once the node runs and its address is written.
        self._wait(number, log, b"--block")

    def _wait(self, number: int, log: Path, words: bytes) -> None:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while words not in (said := log.read_bytes()):
            if self._nodes[number].poll() is not None or time.monotonic() > deadline:
                lines = said.decode(errors="replace").split("\n")
                raise RayletsFailed(f"node {number}: {' | '.join([line.strip() for line in lines if line.strip()][-3:])}")
            time.sleep(_POLL_SECONDS)
