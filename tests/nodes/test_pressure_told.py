"""What the cluster is told of a node under pressure and of the pod that goes, and where pods are sent then."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rayched.client import Client
from rayched.nodes.agent.eviction.manager import EvictionSettings
from rayched.nodes.agent.eviction.thresholds import EvictionFlags, thresholds_of
from rayched.nodes.agent.stalls import PRESSURE_FILE
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.testing.in_process import InProcessCluster
from rayched.v1.core_pb2 import Event, Node, Pod
from tests.nodes.led_cluster import LedCluster, led_cluster
from tests.nodes.real_node import (
    AgentProcess,
    a_pod,
    agent_thread,
    all_gone,
    gone,
    in_phase,
    processes,
    registered,
    settings,
    status,
    until,
)

_numbers = itertools.count(1)
_GROWS = "import time\nkept=[]\nwhile True:\n    kept.append(bytearray(b'x'*(16<<20))); time.sleep(0.1)\n"


@pytest.fixture
def world(etcd: EtcdServer) -> Iterator[LedCluster]:
    with led_cluster(etcd, f"told-{os.getpid()}-{next(_numbers)}") as found:
        yield found


@contextmanager
def a_node(world: LedCluster, root: Path, *options: str) -> Iterator[str]:
    name = f"told-{next(_numbers)}"
    agent = AgentProcess(root, name, world.link.address, *options)
    try:
        registered(world.client, name)
        yield name
    finally:
        agent.terminate()


def events_about(client: Client, name: str) -> dict[str, Event]:
    """By reason, those of the agent."""
    found = (one for one in client.list("events") if isinstance(one, Event) and one.involved_object.name == name)
    return {one.reason: one for one in found if one.source.component == "rayched-node"}


def is_pressed(client: Client, node: str) -> bool:
    return {one.type: one.status for one in registered(client, node).status.conditions}["MemoryPressure"] == "True"


@pytest.mark.row("N98")
def test_an_eviction_is_told_of_the_pod_and_of_the_node(world: LedCluster, tmp_path: Path) -> None:
    client = world.client
    hard = ("--memory", "1Gi", "--eviction-hard", "memory.available<300Mi", "--eviction-pressure-transition-period", "3s")
    with a_node(world, tmp_path, *hard) as node:
        grower = a_pod(node, "grower", "python3", "-c", _GROWS)
        client.submit(grower)
        in_phase(client, "grower", "Running")
        pids = processes(client, "grower")
        until(lambda: "memory-pressure" in world.taints(node), "the leader's taint")
        found = in_phase(client, "grower", "Failed")
        assert all_gone(pids)
        assert found.reason == "Evicted" and found.message.startswith("The node was low on resource: memory. ")
        (disruption,) = [one for one in found.conditions if one.type == "DisruptionTarget"]
        assert (disruption.status, disruption.reason) == ("True", "TerminationByKubelet")
        until(lambda: "Evicted" in events_about(client, "grower"), "the pod's event")
        told = events_about(client, "grower")
        assert told["Evicted"].type == "Warning" and told["Evicted"].message == found.message
        assert {"Created", "Started", "Evicted"} <= told.keys()
        until(lambda: "NodeHasInsufficientMemory" in events_about(client, node), "the node's event")
        of_node = events_about(client, node)
        assert of_node["EvictionThresholdMet"].message == "Attempting to reclaim memory"
        assert {"Starting", "NodeReady"} <= of_node.keys()
        until(lambda: not is_pressed(client, node), "the condition ends")
        until(lambda: "memory-pressure" not in world.taints(node), "and so does the taint")
        until(lambda: "NodeHasSufficientMemory" in events_about(client, node), "which is told as well")
        client.delete("pod", "grower")
        gone(client, "grower")


def best_effort(node: str, name: str) -> Pod:
    return a_pod(node, name, "sleep", "1000")


def burstable(node: str, name: str) -> Pod:
    pod = a_pod(node, name, "sleep", "1000")
    pod.spec.containers[0].resources.requests["memory"].string = "1Mi"
    return pod


@pytest.mark.row("N106")
def test_under_pressure_best_effort_pods_are_refused_and_sent_elsewhere(world: LedCluster, tmp_path: Path) -> None:
    """The threshold is soft and bears an hour, so the node is under pressure and evicts nobody."""
    client = world.client
    soft = ("--memory", "1Gi", "--eviction-hard", "", "--eviction-soft", "memory.available<1020Mi")
    with a_node(world, tmp_path, *soft, "--eviction-soft-grace-period", "memory.available=1h") as node:
        until(lambda: is_pressed(client, node), "it is under pressure")
        client.submit(best_effort(node, "plain"))
        found = in_phase(client, "plain", "Failed")
        assert (found.reason, found.message) == ("Evicted", "Pod was rejected: The node had condition: [MemoryPressure]. ")
        client.submit(burstable(node, "asks"))
        in_phase(client, "asks", "Running")
        until(lambda: "memory-pressure" in world.taints(node), "the leader's taint")
        nodes = [one for one in client.list("nodes") if isinstance(one, Node)]
        assert {one.metadata.name for one in nodes} == {node, "other-000"}
        cluster = InProcessCluster(nodes)
        for number in range(5):
            cluster.place(best_effort("", f"sent-{number}")).assert_on(f"sent-{number}", "other-000")
        assert status(client, "asks").phase == "Running"
        client.delete("pod", "asks", grace_period_seconds=1)
        gone(client, "asks")


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A group of processes that has 24 MiB, by the first version of memory cgroups."""
    group = Path(f"/sys/fs/cgroup/memory/rayched-test-{os.getpid()}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"{group}: {error.strerror}")
    try:
        (group / "memory.limit_in_bytes").write_text(str(24 << 20))
        with open(PRESSURE_FILE, "r+b", buffering=0) as file:
            file.write(b"some 150000 2000000\0")
    except OSError as error:
        group.rmdir()
        pytest.skip(f"no limit or no trigger here: {error}")
    yield group
    until(lambda: not (group / "cgroup.procs").read_text(), "its processes have ended")
    group.rmdir()


_THRASHES = """
import mmap, os, random, sys
with open(sys.argv[1] + "/cgroup.procs", "w") as group:
    group.write("0")
with open(sys.argv[2], "w+b") as file:
    file.truncate(128 << 20)
    there = mmap.mmap(file.fileno(), 128 << 20)
    for page in range(0, 128 << 20, 4096):
        there[page] = 1
    while True:
        there[random.randrange(32768) * 4096]
"""


@pytest.mark.row("N114")
def test_processes_that_stall_for_memory_bring_a_look_forward(world: LedCluster, tmp_path: Path, small_memory: Path) -> None:
    """A process uses more than its group may hold, so it waits for memory all the time; the node itself has enough."""
    thresholds = thresholds_of(EvictionFlags("memory.available<1Ki"))
    chosen = settings(tmp_path / "node", "stalls", http_address="127.0.0.1:0", eviction=EvictionSettings(thresholds))
    with agent_thread(chosen, world.link.address) as agent:
        registered(world.client, "stalls")

        def stalls() -> int:
            with urllib.request.urlopen(f"http://{agent.agent.http_address}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
            return int(float(next(line.split()[1] for line in lines if line.startswith("rayched_node_memory_stalls_total"))))

        before = stalls()
        command = [sys.executable, "-c", _THRASHES, str(small_memory), str(tmp_path / "file")]
        thrashing = subprocess.Popen(command)
        try:
            until(lambda: stalls() > before, "a stall is told")
        finally:
            thrashing.kill()
            thrashing.wait()
