"""Nodes of this host that run pods for real: an agent each, in a process of its own.

The nodes are bounded, so several of them share the host: what counts against their memory is the agent and its pods alone. Their
agents end with whoever started them. Pods do not: who starts some asks for their end, or gives them the annotation
`rayched.dev/stop-after-disconnect`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rayched.api.kinds import NODE
from rayched.cli.cluster.rehearsal import RehearsalFailed, StillWaiting
from rayched.client.client import Client
from rayched.client.contexts import CONTEXT_VARIABLE
from rayched.client.errors import ApiError
from rayched.replica.cluster.session import ClusterSession
from rayched.replica.ray.processes import dying_with_us
from rayched.v1.core_pb2 import Node

_BOUNDS: Final = ("--cpu", "2", "--memory", "1Gi", "--pids", "200", "--ephemeral-storage", "1Gi", "--max-pods", "40")
READY_SECONDS_MAX: Final = 30.0
_END_SECONDS_MAX: Final = 10.0
_LOOK_SECONDS: Final = 0.1
_TAIL_LINES: Final = 5


class RealNodes(ClusterSession):
    """A context manager; `open` returns when all nodes are Ready. Whoever opens it lives as long as the agents shall."""

    def __init__(
        self,
        client: Client,
        directory: Path,
        names: Sequence[str],
        options: Sequence[str] = (),
        *,
        ready_seconds: float = READY_SECONDS_MAX,
        contexts: Mapping[str, Path] = MappingProxyType({}),
    ) -> None:
        """`options`: further ones for each agent, as of `rayched node`. `ready_seconds`: what all agents have to become Ready.

        `contexts`: the file of a context for each name, with the agent's certificate; a name without one has no TLS.
        """
        self._ready_seconds = ready_seconds
        self._contexts = contexts
        self.names = tuple(names)
        self._client = client
        self._directory = directory
        self._options = tuple(options)
        self._agents: dict[str, subprocess.Popen[bytes]] = {}

    def open(self) -> None:
        """Raises RehearsalFailed where an agent ends, or a node does not become Ready."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for name in self.names:
            self.start(name)
        deadline = time.monotonic() + self._ready_seconds
        waiting = StillWaiting()
        for name in self.names:
            while not self._is_ready(name):
                if (code := self._agents[name].poll()) is not None:
                    raise RehearsalFailed(f"the agent of node {name} ended with exit code {code}: {self._tail(name)}")
                if time.monotonic() > deadline:
                    raise RehearsalFailed(f"node {name} is not Ready after {self._ready_seconds:.0f} s: {self._tail(name)}")
                waiting.tell(f"node {name} is not Ready yet")
                time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """Ends the agents; idempotent."""
        running = [agent for agent in self._agents.values() if agent.poll() is None]
        for agent in running:
            agent.terminate()
        deadline = time.monotonic() + _END_SECONDS_MAX
        for agent in running:
            try:
                agent.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()

    def start(self, name: str) -> None:
        """Starts the node's agent, on what an earlier one left."""
        own = str(os.geteuid())
        command = [
            *(sys.executable, "-m", "rayched.cli.main", "node", name, "--server", ",".join(self._client.endpoints)),
            *("--root-dir", str(self._directory / name), "--heartbeat", "1", *_BOUNDS),
            # The pods are the starter's own.
            *("--pod-user", own, "--allow-root-pods", *self._options),
            *(("--context", str(self._contexts[name])) if name in self._contexts else ()),
        ]
        # The context of whoever starts the agents is not theirs.
        environment = {key: value for key, value in os.environ.items() if key != CONTEXT_VARIABLE}
        with open(self._log_file(name), "ab") as log:
            self._agents[name] = subprocess.Popen(
                dying_with_us(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,
            )

    @property
    def pids(self) -> list[int]:
        """Of the agents that run."""
        return [agent.pid for agent in self._agents.values() if agent.poll() is None]

    def kill(self, name: str) -> None:
        """Ends the node's agent with SIGKILL; its pods go on."""
        self._agents[name].kill()
        self._agents[name].wait()

    def _is_ready(self, name: str) -> bool:
        with contextlib.suppress(ApiError):
            node = self._client.get(NODE, name)
            assert isinstance(node, Node)
            return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)
        return False

    def _log_file(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _tail(self, name: str) -> str:
        lines = self._log_file(name).read_text(errors="replace").splitlines()
        return " / ".join(lines[-_TAIL_LINES:])
