"""A node that shuts down: who ends when, what is refused, and how it is taken back."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.api.agents import SHUT_DOWN_MESSAGE
from rayched.client import Client
from rayched.nodes.agent.container_life import ContainerExit
from rayched.nodes.agent.oom_scores import CRITICAL_PRIORITY
from rayched.nodes.agent.pod_life import PodEnding, PodLife
from rayched.nodes.agent.shutdown import MESSAGE, ShutdownBand, ShutdownPlan, two_bands
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Event, NodeCondition
from tests.cli.cluster import run_here
from tests.nodes.real_node import AgentProcess, a_pod, all_gone, gone, in_phase, processes, registered, sh, until
from tests.server.objects import a_priority_class
from tests.server.serving import serving

_numbers = itertools.count(1)


def a_life(priority: int, grace: int = 30) -> PodLife:
    pod = a_pod("worker", f"pod-{next(_numbers)}", "sleep", "1000", grace=grace)
    pod.metadata.uid = f"uid-{next(_numbers)}"
    pod.spec.priority = priority
    life = PodLife(pod, 0.0)
    one = life.container("main")
    one.begins()
    one.runs(0.0)
    return life


def end(life: PodLife, ending: PodEnding, at: float) -> None:
    life.end(ending)
    life.ended("main", 0, ContainerExit(0, 0, "Completed", 0.0, at))


@pytest.mark.row("N118")
def test_bands_follow_each_other_when_all_have_ended_or_their_time_is_over() -> None:
    below, low, middle, critical = a_life(-5), a_life(0), a_life(1000, grace=5), a_life(CRITICAL_PRIORITY)
    lives = [critical, middle, low, below]
    plan = ShutdownPlan([ShutdownBand(0, 20.0), ShutdownBand(1000, 15.0), ShutdownBand(CRITICAL_PRIORITY, 10.0)])
    first = dict(plan.advance(100.0, lives))
    assert first.keys() == {below.uid, low.uid} and {one.by for one in first.values()} == {120.0}, (
        "the lowest takes what is below"
    )
    assert plan.wakes_at() == 120.0 and plan.advance(101.0, lives) == []
    end(low, first[low.uid], 102.0)
    assert plan.advance(102.0, lives) == []
    end(below, first[below.uid], 103.0)
    second = dict(plan.advance(103.0, lives))
    assert second.keys() == {middle.uid} and second[middle.uid].by == 108.0, "its own grace is less"
    assert plan.advance(117.0, lives) == []
    third = dict(plan.advance(118.0, lives))
    assert third.keys() == {critical.uid} and third[critical.uid].by == 128.0, "middle has had its time"
    assert not plan.is_over
    assert plan.advance(128.0, lives) == [] and plan.is_over and plan.wakes_at() == float("inf")
    assert third[critical.uid].reason == "Terminated" and third[critical.uid].message == MESSAGE


@pytest.mark.row("N118")
def test_a_band_without_pods_takes_no_time() -> None:
    critical = a_life(CRITICAL_PRIORITY)
    plan = ShutdownPlan(two_bands(30.0, 10.0))
    assert [(uid, one.by) for uid, one in plan.advance(100.0, [critical])] == [(critical.uid, 110.0)]
    assert two_bands(0.0, 0.0) == ()


@pytest.fixture(scope="module")
def client(etcd: EtcdServer) -> Iterator[Client]:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/shutdown-{os.getpid()}"))
    with serving(options) as server, Client(server.address, timeout_seconds=10.0) as found:
        yield found


def ready_condition(client: Client, node: str) -> NodeCondition:
    (found,) = [one for one in registered(client, node).status.conditions if one.type == "Ready"]
    return found


@pytest.mark.row("N117")
def test_a_node_that_shuts_down_ends_its_pods_in_order_and_takes_none(client: Client, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    node, root = f"down-{next(_numbers)}", tmp_path / "node"
    client.submit(a_priority_class("important", 1000))
    agent = AgentProcess(root, node, client.endpoints[0], "--shutdown-grace-period-by-pod-priority", "0=20s,1000=20s")
    try:
        notes_term = (
            f"trap 'echo $RAYCHED_POD_NAME asked >> {notes}; sleep 1; echo $RAYCHED_POD_NAME ends >> {notes}; exit 0' TERM"
        )
        for name in ("ordinary", "important"):
            pod = a_pod(node, name, *sh(f"{notes_term}; while :; do sleep 0.1; done"), policy="Always", grace=10)
            pod.spec.priority_class_name = "important" if name == "important" else ""
            client.submit(pod)
            in_phase(client, name, "Running")
        pids = processes(client, "ordinary") + processes(client, "important")
        result = run_here(["node", "shutdown", "--root-dir", str(root)])
        assert (result.code, result.lines) == (0, ["all pods have ended"]), result
        assert all_gone(pids)
        expected = ["ordinary asked", "ordinary ends", "important asked", "important ends"]
        assert notes.read_text().splitlines() == expected
        for name in ("ordinary", "important"):
            found = in_phase(client, name, "Failed")
            assert (found.reason, found.message) == ("Terminated", MESSAGE)
            (target,) = [one for one in found.conditions if one.type == "DisruptionTarget"]
            assert (target.status, target.reason) == ("True", "TerminationByKubelet")
        until(lambda: ready_condition(client, node).status == "False", "it is not ready")
        until(lambda: ready_condition(client, node).message == SHUT_DOWN_MESSAGE, "that was its last word")
        until(lambda: _events(client, node) >= {"NodeShutdown", "NodeNotReady"}, "the node's events")
        client.submit(a_pod(node, "late", "sleep", "1000"))
        late = in_phase(client, "late", "Failed")
        assert late.reason == "NodeShutdown" and "Pod was rejected as the node is shutting down." in late.message
        result = run_here(["node", "shutdown", "--cancel", "--root-dir", str(root)])
        assert result.code == 0 and "is taken back" in result.lines[0]
        until(lambda: ready_condition(client, node).status == "True", "it is ready again")
        client.submit(a_pod(node, "again", *sh("exit 0")))
        in_phase(client, "again", "Succeeded")
        for name in ("ordinary", "important", "late", "again"):
            client.delete("pod", name)
            gone(client, name)
    finally:
        agent.terminate()
    result = run_here(["node", "shutdown", "--root-dir", str(root)])
    assert result.code == 1 and "no agent answers there" in result.errors[0]


def _events(client: Client, name: str) -> set[str]:
    return {one.reason for one in client.list("events") if isinstance(one, Event) and one.involved_object.name == name}


def test_an_agent_that_was_given_no_time_for_it_refuses(client: Client, tmp_path: Path) -> None:
    node = f"down-{next(_numbers)}"
    agent = AgentProcess(tmp_path, node, client.endpoints[0])
    try:
        registered(client, node)
        result = run_here(["node", "shutdown", "--root-dir", str(tmp_path)])
        assert result.code == 1 and "it has no --shutdown-grace-period" in result.errors[0]
        assert ready_condition(client, node).status == "True"
    finally:
        agent.terminate()
