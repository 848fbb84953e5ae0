"""A node that really runs pods, for tests: an agent in a thread of the test, or in a process of its own that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import grpc

from rayched.client import ApiError, Client
from rayched.client.node_agent import NodeAgentClient
from rayched.nodes.agent.agent import NodeAgent
from rayched.nodes.agent.agent_settings import AgentSettings
from rayched.nodes.agent.machine import this_machine
from rayched.nodes.agent.node_object import NodeSize
from rayched.nodes.agent.process_specs import RunPolicy
from rayched.nodes.agent.shim import proc_table
from rayched.v1.core_pb2 import Node, Pod, PodStatus

PATIENCE_SECONDS = 60.0
GI = 1 << 30


def settings(root: Path, node: str, **changes: Any) -> AgentSettings:
    """Of a node whose pods run as whoever runs the test."""
    own = os.geteuid()
    policy = RunPolicy(own, os.getegid(), own, os.getegid(), allow_root=True)
    size = NodeSize({"cpu": 64_000, "memory": 8 * GI, "ephemeral-storage": 8 * GI, "pods": 110})
    root.mkdir(parents=True, exist_ok=True)
    found = AgentSettings(
        node, root, "127.0.0.1", this_machine(root), size, "1.0", policy, heartbeat_seconds=0.5, restart_cap=1.0
    )
    return replace(found, **changes)


class AgentThread:
    """An agent of this process."""

    def __init__(self, chosen: AgentSettings, address: str) -> None:
        self._client = NodeAgentClient(address, timeout_seconds=5.0, node=chosen.node)
        self.agent = NodeAgent(chosen, self._client)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="agent", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.agent.run()
        except BaseException as error:
            self.error = error

    def ended(self) -> bool:
        return not self._thread.is_alive()

    def stop(self) -> None:
        self.agent.stop()
        self._thread.join(15.0)
        assert not self._thread.is_alive()
        self._client.close()


@contextmanager
def agent_thread(chosen: AgentSettings, address: str) -> Iterator[AgentThread]:
    found = AgentThread(chosen, address)
    try:
        yield found
    finally:
        if not found.ended():
            found.stop()
        if found.error is not None:
            raise found.error


class AgentProcess:
    """`rayched node` in a process of its own."""

    def __init__(
        self, root: Path, node: str, address: str, *options: str, env: dict[str, str] | None = None, unheard: bool = False
    ) -> None:
        """`unheard`: for one that has more to say than a pipe holds that nobody reads."""
        command = [sys.executable, "-m", "rayched.cli.main", "node", node, "--server", address, "--root-dir", str(root)]
        # As much as an agent of a thread: one that follows another may not offer more.
        command += ["--heartbeat", "0.5", "--crash-loop-max-period", "1s", "--allow-root-pods", "--cpu", "64"]
        command += ["--pod-user", str(os.geteuid()), *options]
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **(env or {})},
            stdout=subprocess.DEVNULL if unheard else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def terminate(self) -> int:
        self.process.terminate()
        self.process.communicate(timeout=30)
        return self.process.returncode


def a_pod(node: str, name: str, *command: str, policy: str = "Never", grace: int = 5) -> Pod:
    """Of one container `main`."""
    pod = Pod()
    pod.metadata.name = name
    pod.spec.node_name = node
    pod.spec.restart_policy = policy
    pod.spec.termination_grace_period_seconds = grace
    if command:
        pod.spec.containers.add(name="main", command=command)
    return pod


def sh(text: str) -> tuple[str, str, str]:
    return ("sh", "-c", text)


def get(client: Client, name: str) -> Pod | None:
    try:
        return cast(Pod, client.get("pod", name))
    except ApiError as error:
        assert error.code is grpc.StatusCode.NOT_FOUND
        return None


def status(client: Client, name: str) -> PodStatus:
    pod = get(client, name)
    assert pod is not None
    return pod.status


def uid_of(client: Client, name: str) -> str:
    pod = get(client, name)
    assert pod is not None
    return pod.metadata.uid


def until(holds: Callable[[], Any], what: str = "", seconds: float = PATIENCE_SECONDS) -> Any:
    """What `holds` gives, once it is true."""
    ends_at = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < ends_at, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
    return found


def in_phase(client: Client, name: str, *phases: str) -> PodStatus:
    def there() -> PodStatus | None:
        found = status(client, name)
        return found if found.phase in phases else None

    return cast(PodStatus, until(there, f"{name} is {' or '.join(phases)}"))


def registered(client: Client, node: str) -> Node:
    def there() -> Node | None:
        return next((one for one in client.list("nodes") if isinstance(one, Node) and one.metadata.name == node), None)

    found = until(there, f"{node} is registered")
    assert isinstance(found, Node)
    return found


def ready(client: Client, name: str) -> PodStatus:
    def there() -> PodStatus | None:
        found = status(client, name)
        return found if condition(found, "Ready") == "True" else None

    return cast(PodStatus, until(there, f"{name} is ready"))


def gone(client: Client, name: str, seconds: float = PATIENCE_SECONDS) -> None:
    until(lambda: get(client, name) is None, f"{name} is gone", seconds)


def condition(found: PodStatus, kind: str) -> str:
    return next((one.status for one in found.conditions if one.type == kind), "")


def processes(client: Client, name: str) -> list[int]:
    """Living ones that carry the pod's cookie."""
    return list(proc_table.processes_of_pod(uid_of(client, name)))


def log_of(root: Path, name: str, container: str = "main", attempt: int = 0) -> list[tuple[str, str]]:
    """(stream, text) of each line."""
    (path,) = root.glob(f"logs/*_{name}_*/{container}/{attempt}.log")
    found = []
    for line in path.read_text().splitlines():
        _, stream, _, text = line.split(" ", 3)
        found.append((stream, text))
    return found


def text_of(root: Path, name: str, container: str = "main", attempt: int = 0) -> list[str]:
    return [text for _, text in log_of(root, name, container, attempt)]


def all_gone(pids: Sequence[int]) -> bool:
    return not any(proc_table.is_alive(pid) for pid in pids)
