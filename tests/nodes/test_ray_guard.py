"""The guard of a node of Ray: its agent may die, and when its pipe ends, so do pods and agent, in this order."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.api.agents import SHUT_DOWN_MESSAGE
from rayched.client import Client
from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.shutdown import MESSAGE
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from tests.nodes.real_node import a_pod, all_gone, in_phase, processes, registered, sh, status, until
from tests.server.serving import serving

_numbers = itertools.count(1)
GRACE = ("--shutdown-grace-period", "10s")
UNTIL_TERM = "while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def client(etcd: EtcdServer) -> Iterator[Client]:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/ray-guard-{os.getpid()}"))
    with serving(options) as server, Client(server.address, timeout_seconds=10.0) as found:
        yield found


@pytest.fixture
def node() -> str:
    return f"ray-{next(_numbers)}"


class GuardUnderTest:
    """Started as the actor starts it; `lines` are what it says."""

    def __init__(self, root: Path, node: str, address: str, *options: str) -> None:
        agent = [sys.executable, "-m", "rayched.cli.main", "node", node, "--server", address, "--root-dir", str(root)]
        agent += ["--heartbeat", "0.5", "--allow-root-pods", "--cpu", "64", "--pod-user", str(os.geteuid()), *GRACE, *options]
        self._root = root
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rayched.raynodes.guard", str(root), "10", *agent],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "RAY_AUTH_TOKEN": "secret", "KEPT": "yes"},
            text=True,
        )
        assert self._process.wait(60) == 0, "what the actor starts is not the guard itself"
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.strip())

    def agent(self) -> int:
        """Its pid, once it has its directory."""

        def there() -> int:
            lock = self._root / "agent.lock"
            pid = int(lock.read_text().strip() or 0) if lock.exists() else 0
            return pid if pid and proc_table.is_alive(pid) else 0

        found = until(there, "the agent is there")
        assert isinstance(found, int)
        return found

    def pid(self) -> int:
        stat = Path(f"/proc/{self.agent()}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1])

    def says(self, words: str) -> None:
        until(lambda: any(words in line for line in self.lines), f"it says {words!r}, and it said {self.lines}")

    def let_go(self) -> None:
        """What the end of the actor does."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def ended(self) -> None:
        self._reader.join(60)
        assert not self._reader.is_alive(), self.lines


@pytest.fixture
def guards() -> Iterator[list[GuardUnderTest]]:
    found: list[GuardUnderTest] = []
    yield found
    for guard in found:
        guard.let_go()
        guard.ended()


def test_the_end_of_the_pipe_ends_pods_and_then_the_agent(
    client: Client, tmp_path: Path, node: str, guards: list[GuardUnderTest]
) -> None:
    notes = tmp_path / "notes"
    guard = GuardUnderTest(tmp_path / "node", node, client.endpoints[0])
    guards.append(guard)
    trap = f"trap 'echo asked >> {notes}; sleep 1; echo ends >> {notes}; exit 0' TERM"
    client.submit(a_pod(node, "asked", *sh(f"{trap}; {UNTIL_TERM}"), policy="Always", grace=8))
    in_phase(client, "asked", "Running")
    pids, agent = processes(client, "asked"), guard.agent()
    environment = proc_table.environment_of(agent)
    assert environment["KEPT"] == "yes" and not [name for name in environment if name.startswith("RAY_")]
    guard.let_go()
    guard.ended()
    assert guard.lines[-1] == "all its pods have ended"
    assert all_gone(pids) and notes.read_text().splitlines() == ["asked", "ends"] and not proc_table.is_alive(agent)
    found = status(client, "asked")
    assert (found.phase, found.reason, found.message) == ("Failed", "Terminated", MESSAGE)
    (ready,) = [one for one in registered(client, node).status.conditions if one.type == "Ready"]
    assert (ready.status, ready.message) == ("False", SHUT_DOWN_MESSAGE)
    assert node in (tmp_path / "node.log").read_text()


def test_an_agent_that_dies_is_started_again_and_pods_do_not_notice(
    client: Client, tmp_path: Path, node: str, guards: list[GuardUnderTest]
) -> None:
    guard = GuardUnderTest(tmp_path / "node", node, client.endpoints[0])
    guards.append(guard)
    client.submit(a_pod(node, "stays", *sh(UNTIL_TERM), policy="Always", grace=1))
    in_phase(client, "stays", "Running")
    main, before = min(processes(client, "stays")), guard.agent()
    os.kill(before, signal.SIGKILL)
    guard.says("its agent was ended by SIGKILL")
    until(lambda: guard.agent() != before, "another agent")
    assert main in processes(client, "stays")
    client.submit(a_pod(node, "later", *sh("exit 0")))
    in_phase(client, "later", "Succeeded")
    assert main in processes(client, "stays") and status(client, "stays").container_statuses[0].restart_count == 0


def test_a_guard_that_is_killed_leaves_its_pods_to_the_next_one(
    client: Client, tmp_path: Path, node: str, guards: list[GuardUnderTest]
) -> None:
    guard = GuardUnderTest(tmp_path / "node", node, client.endpoints[0])
    guards.append(guard)
    client.submit(a_pod(node, "handed", *sh(UNTIL_TERM), policy="Always", grace=1))
    in_phase(client, "handed", "Running")
    main, agent = min(processes(client, "handed")), guard.agent()
    os.kill(guard.pid(), signal.SIGKILL)
    guard.ended()
    until(lambda: not proc_table.is_alive(agent), "its agent ends with it")
    assert main in processes(client, "handed")
    second = GuardUnderTest(tmp_path / "node", node, client.endpoints[0])
    guards.append(second)
    assert second.agent() != agent
    client.submit(a_pod(node, "after", *sh("exit 0")))
    in_phase(client, "after", "Succeeded")
    assert main in processes(client, "handed") and status(client, "handed").phase == "Running"
    second.let_go()
    second.ended()
    assert not proc_table.is_alive(main) and status(client, "handed").phase == "Failed"


def test_a_second_guard_waits_until_the_first_has_ended_its_pods(
    client: Client, tmp_path: Path, node: str, guards: list[GuardUnderTest]
) -> None:
    first = GuardUnderTest(tmp_path / "node", node, client.endpoints[0])
    guards.append(first)
    client.submit(a_pod(node, "slow", *sh(f"trap 'sleep 3; exit 0' TERM; {UNTIL_TERM}"), policy="Always", grace=8))
    in_phase(client, "slow", "Running")
    pids = processes(client, "slow")
    first.let_go()
    second = GuardUnderTest(tmp_path / "node", node, client.endpoints[0])
    guards.append(second)
    second.says("its agent is process")
    assert "the guard before still ends its pods" in second.lines and all_gone(pids)
    first.ended()
    client.submit(a_pod(node, "new", *sh("exit 0")))
    in_phase(client, "new", "Succeeded")


def test_pods_end_though_no_agent_can_be_started(client: Client, tmp_path: Path, node: str, guards: list[GuardUnderTest]) -> None:
    guard = GuardUnderTest(tmp_path / "node", node, client.endpoints[0])
    guards.append(guard)
    client.submit(a_pod(node, "left", *sh(UNTIL_TERM), policy="Always", grace=1))
    in_phase(client, "left", "Running")
    pids, agent = processes(client, "left"), guard.agent()
    os.kill(guard.pid(), signal.SIGKILL)
    guard.ended()
    until(lambda: not proc_table.is_alive(agent), "its agent ends with it")
    broken = GuardUnderTest(tmp_path / "node", node, client.endpoints[0], "--memory", "lots")
    guards.append(broken)
    broken.says("its agent ended with code 2 (error: --memory")
    assert not all_gone(pids)
    broken.let_go()
    broken.ended()
    assert all_gone(pids) and "1 of its pods did not end in their time" in broken.lines[-1]
