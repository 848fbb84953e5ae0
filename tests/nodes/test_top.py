"""What nodes and pods use, by the real command, through a replica and a real agent."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rayched.client import ApiError, Client
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Node
from tests.nodes.real_node import a_pod, ready, registered, until
from tests.nodes.streaming import Agents, run
from tests.server.serving import serving

NODE = "is-used"
BUSY = """
import time
held = b"x" * (64 << 20)
while True:
    ends_at = time.process_time() + 0.05
    while time.process_time() < ends_at:
        pass
    time.sleep(0.02)
"""
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def client(etcd: EtcdServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """With a node of 2 CPUs and 4 GiB, whose agent runs."""
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/top-{os.getpid()}"))
    with serving(options) as found, Client(found.address, timeout_seconds=20.0) as asking, Agents() as begin:
        begin(tmp_path_factory.mktemp("node"), NODE, found.address, "--memory", "4Gi", "--cpu", "2")
        registered(asking, NODE)
        yield asking


def running_pod(client: Client, *arguments: str) -> str:
    pod = a_pod(NODE, f"pod-{next(_numbers)}", sys.executable, "-c", *arguments)
    client.submit(pod)
    ready(client, pod.metadata.name)
    return pod.metadata.name


@contextmanager
def silent(client: Client, root: Path) -> Iterator[str]:
    """A node whose agent is there, and says nothing."""
    with Agents() as begin:
        agent = begin(root, "silent", client.endpoints[0])
        registered(client, "silent")
        until(lambda: "silent" in [one.node for one in client.usage().nodes], "it attends")
        os.kill(agent.process.pid, signal.SIGSTOP)
        try:
            yield "silent"
        finally:
            os.kill(agent.process.pid, signal.SIGCONT)


def test_top_shows_what_nodes_and_pods_use(client: Client, tmp_path: Path) -> None:
    hollow = Node()
    hollow.metadata.name = "hollow"
    client.register_node(hollow)
    busy, idle = running_pod(client, BUSY), running_pod(client, "import time; time.sleep(1000)")
    address = client.endpoints[0]

    def used() -> dict[str, list[str]]:
        code, out, errors = run(address, "top", "pods")
        assert (code, errors) == (0, "")
        return {line.split()[0]: line.split()[1:] for line in out.decode().splitlines()}

    assert used()["NAME"] == ["CPU(cores)", "MEMORY(bytes)"]
    until(lambda: int(used()[busy][1].removesuffix("Mi")) >= 64, "it has its memory")
    found = used()
    assert int(found[busy][0].removesuffix("m")) > int(found[idle][0].removesuffix("m"))
    assert 64 <= int(found[busy][1].removesuffix("Mi")) < 128 > int(found[idle][1].removesuffix("Mi"))
    first = run(address, "top", "pods", "--sort-by", "cpu", "--no-headers")[1].decode().split()[0]
    assert first == busy
    lines = run(address, "top", "pod", busy, "--containers")[1].decode().splitlines()
    assert [line.split()[:2] for line in lines] == [["POD", "NAME"], [busy, "main"]]
    heading, *nodes = run(address, "top", "nodes")[1].decode().splitlines()
    assert heading.split() == ["NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"]
    by_name = {line.split()[0]: line.split()[1:] for line in nodes}
    assert by_name["hollow"] == ["<unknown>"] * 4
    cpu, cpu_share, memory, memory_share = by_name[NODE]
    assert abs(int(cpu.removesuffix("m")) // 20 - int(cpu_share.removesuffix("%"))) <= 1
    assert abs(int(memory.removesuffix("Mi")) * 100 // 4096 - int(memory_share.removesuffix("%"))) <= 1
    assert int(memory.removesuffix("Mi")) > 64
    assert client.usage(NODE).nodes[0].node == NODE
    with pytest.raises(ApiError, match="Node hollow: node hollow has no agent that runs pods"):
        client.usage("hollow")
    assert run(address, "top", "pod", "none")[::2] == (1, "error: Pod default/none not found\n")
    with silent(client, tmp_path) as node:
        code, out, errors = run(address, "top", "pods")
        assert (code, errors) == (0, f"warning: node {node} does not say what it and its pods use\n")
        assert busy in out.decode()
    assert run(address, "top", "odd")[::2] == (2, "error: odd: nothing is known of what these use; nodes and pods are possible\n")
