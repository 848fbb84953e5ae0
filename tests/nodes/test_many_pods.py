"""Shims of an older agent, a hundred pods to take over, a thousand pods after each other."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.processes import all_cpu_seconds, resident_bytes
from rayched.api.disconnection import STOP_AFTER_ANNOTATION
from rayched.client import Client
from rayched.nodes.agent import shim_link
from rayched.nodes.agent.shim.main import PROTOCOL
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Pod
from tests.nodes.real_node import (
    AgentProcess,
    a_pod,
    agent_thread,
    gone,
    in_phase,
    processes,
    ready,
    registered,
    settings,
    sh,
    status,
    uid_of,
    until,
)
from tests.server.serving import serving

_numbers = itertools.count(1)
_OLD_SHIM = """
import sys
sys.path.insert(0, sys.argv[1])
from rayched.nodes.agent.shim import main as shim
shim.PROTOCOL = 1
answers = shim.Shim._answer
def answer(self, fd, message):
    if message["verb"] == "fence":
        return {"ok": False, "kind": "bad", "error": "verb 'fence' is not known"}
    found = answers(self, fd, message)
    if found is not None:
        found.pop("fenced", None)
    return found
shim.Shim._answer = answer
shim.main(sys.argv[2])
"""


@pytest.fixture(scope="module")
def client(etcd: EtcdServer) -> Iterator[Client]:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/many-{os.getpid()}"))
    with serving(options) as server, Client(server.address, timeout_seconds=10.0) as found:
        yield found


@pytest.mark.row("N66")
def test_a_shim_of_an_older_protocol_is_understood(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that knows no fences and does not speak of them, as those of the protocol before."""
    node = f"old-{next(_numbers)}"
    pod = a_pod(node, f"pod-of-{node}", "sleep", "1000", policy="Always", grace=1)
    pod.metadata.annotations[STOP_AFTER_ANNOTATION] = "10m"
    pod.spec.containers[0].readiness_probe.exec.command.append("true")
    name = pod.metadata.name
    with monkeypatch.context() as old, agent_thread(settings(tmp_path, node), client.endpoints[0]):
        old.setattr(shim_link, "_PROGRAM", _OLD_SHIM)
        client.submit(pod)
        ready(client, name)
    until(lambda: len(processes(client, name)) == 1, "no probe runs")
    (pid,) = processes(client, name)
    with agent_thread(settings(tmp_path, node), client.endpoints[0]) as agent:
        registered(client, node)
        until(lambda: agent.agent._reporter.incarnation, "it is registered")
        time.sleep(1.5)
        assert agent.agent._runners[uid_of(client, name)]._shim.protocol == 1 < PROTOCOL
        found = status(client, name)
        assert pid in processes(client, name) and found.container_statuses[0].restart_count == 0
        assert ready(client, name)
        os.kill(pid, 9)
        until(lambda: status(client, name).container_statuses[0].restart_count == 1, "it is restarted by the old shim")
        client.delete("pod", name)
        gone(client, name)


@pytest.mark.slow
@pytest.mark.row("N68")
def test_a_hundred_pods_are_taken_over_in_five_seconds_of_work(client: Client, tmp_path: Path) -> None:
    """The seconds are the agent's own, as whoever else is on this host shall not decide."""
    node = f"hundred-{next(_numbers)}"
    first = AgentProcess(tmp_path / "node", node, client.endpoints[0], unheard=True)
    names = [f"{node}-{number}" for number in range(100)]
    client.submit_many([a_pod(node, name, "sleep", "1000", policy="Always", grace=1) for name in names])
    for name in names:
        in_phase(client, name, "Running")
    before = {name: processes(client, name) for name in names}
    first.kill()
    second = AgentProcess(tmp_path / "node", node, client.endpoints[0], unheard=True)
    try:
        last = a_pod(node, f"{node}-last", *sh("exit 0"))
        client.submit(last)
        in_phase(client, f"{node}-last", "Succeeded")
        # It starts nothing before all of them are taken over.
        assert all_cpu_seconds(second.process.pid) < 5 + 2, "its own start takes a second or two of that"
        assert {name: processes(client, name) for name in names} == before
        for pod in client.list("pods"):
            assert isinstance(pod, Pod) and all(one.restart_count == 0 for one in pod.status.container_statuses)
        for name in names:
            client.delete("pod", name)
        for name in names:
            gone(client, name)
    finally:
        second.terminate()


def level(pid: int) -> tuple[int, int]:
    """Bytes in memory, open files."""
    return resident_bytes(pid), len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.row("N69")
def test_memory_and_files_of_the_agent_stay_level_over_a_thousand_pods(client: Client, tmp_path: Path) -> None:
    node = f"thousand-{next(_numbers)}"
    agent = AgentProcess(tmp_path / "node", node, client.endpoints[0], unheard=True)
    try:
        registered(client, node)
        levels = []
        for batch in range(20):
            names = [f"{node}-{batch}-{number}" for number in range(50)]
            client.submit_many([a_pod(node, name, "true") for name in names])
            for name in names:
                in_phase(client, name, "Succeeded")
                client.delete("pod", name)
            for name in names:
                gone(client, name)
            until(lambda: not list((tmp_path / "node" / "pods").iterdir()), "their directories are gone")
            levels.append(level(agent.process.pid))
        memory, files = levels[4]
        assert levels[-1][0] < memory * 1.15 + (4 << 20), levels
        assert levels[-1][1] <= files + 3, levels
    finally:
        agent.terminate()
