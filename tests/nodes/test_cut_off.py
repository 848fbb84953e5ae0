"""A real node that is cut off: its pods go on, and nothing takes their place while they may still run.

The agent reaches the replica through a link of the test's that can be cut (led_cluster.py).
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from rayched.api.disconnection import STOP_AFTER_ANNOTATION, has_stopped_after, stop_after_seconds
from rayched.client import ApiError
from rayched.nodes.agent.agent_settings import AgentSettings
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.v1.core_pb2 import Pod, Taint
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
    sh,
    status,
    uid_of,
    until,
)
from tests.planted_bugs import planted

_numbers = itertools.count(1)


@pytest.fixture
def world(etcd: EtcdServer) -> Iterator[LedCluster]:
    with led_cluster(etcd, f"cut-off-{os.getpid()}-{next(_numbers)}") as found:
        yield found


@contextmanager
def a_node(world: LedCluster, root: Path, **changes: object) -> Iterator[str]:
    name = f"cut-{next(_numbers)}"
    with agent_thread(settings(root, name, **changes), world.link.address):
        registered(world.client, name)
        yield name


def attempts(world: LedCluster, name: str) -> int:
    return sum(one.restart_count for one in status(world.client, name).container_statuses)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.row("N70")
def test_what_is_cut_off_for_a_minute_goes_on_and_is_told_afterwards(world: LedCluster, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with a_node(world, tmp_path / "node") as node:
        crashes = world.run(
            a_pod(node, "crashes", *sh(f"echo run >> {notes}; sleep 0.5; exit 1"), policy="Always"), tolerated_seconds=300
        )
        ends = world.run(a_pod(node, "ends", *sh("sleep 5; exit 3")), tolerated_seconds=300)
        in_phase(world.client, ends, "Running")
        until(lambda: attempts(world, crashes) >= 1, "it is restarted")
        world.link.cut()
        until(lambda: world.is_lost(node), "the cluster does not hear of it")
        before, runs = attempts(world, crashes), notes.read_text().count("run")
        time.sleep(60)
        assert attempts(world, crashes) == before and notes.read_text().count("run") > runs + 10
        world.link.heal()
        counted = notes.read_text().count("run")
        until(lambda: attempts(world, crashes) >= counted - 1, "restarts are told", 20)
        found = in_phase(world.client, ends, "Failed").container_statuses[0].state.terminated
        assert found.exit_code == 3
        until(lambda: not world.is_lost(node), "it is heard of again")
        assert notes.read_text().count("run") - 2 <= attempts(world, crashes)
        for name in (crashes, ends):
            world.client.delete("pod", name)
            gone(world.client, name)


@pytest.mark.row("N71")
def test_what_is_cut_off_for_longer_than_it_is_borne_stays_until_it_has_ended(world: LedCluster, tmp_path: Path) -> None:
    with a_node(world, tmp_path) as node:
        name = world.run(a_pod(node, "patient", "sleep", "1000", grace=1))
        in_phase(world.client, name, "Running")
        pids = processes(world.client, name)
        uid = uid_of(world.client, name)
        world.link.cut()
        until(lambda: world.is_ending(name), "it is evicted")
        # Far beyond its grace and the leader's margin.
        ends_at = time.monotonic() + 6
        while time.monotonic() < ends_at:
            assert world.is_ending(name) and not all_gone(pids)
            time.sleep(0.2)
        with pytest.raises(ApiError) as taken:
            world.client.submit(a_pod("other-000", name, "sleep", "1000"))
        assert taken.value.code is grpc.StatusCode.ALREADY_EXISTS
        world.link.heal()
        gone(world.client, name)
        assert all_gone(pids)
        until(lambda: not (tmp_path / "pods" / uid).exists(), "its directory is gone")


@pytest.mark.row("N72")
def test_a_node_that_is_declared_out_of_service_loses_its_pods(world: LedCluster, tmp_path: Path) -> None:
    with a_node(world, tmp_path) as node:
        name = world.run(a_pod(node, "declared", "sleep", "1000", grace=1))
        in_phase(world.client, name, "Running")
        pids = processes(world.client, name)
        world.link.cut()
        until(lambda: world.is_ending(name), "it is evicted")
        time.sleep(2)
        assert world.is_ending(name)
        world.client.taint(node, add=[Taint(key="node.kubernetes.io/out-of-service", value="nodeshutdown", effect="NoExecute")])
        gone(world.client, name)
        assert not all_gone(pids), "that it does not run is what was said, not what is"
        world.link.heal()
        until(lambda: all_gone(pids), "once it is heard of, the node ends what has no object")


def beats(notes: Path, tag: str) -> list[float]:
    """When the pod of this tag was alive; by the host's clock."""
    lines = [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []
    return [float(at) for found, at in (line for line in lines if len(line) == 2) if found == tag]


def beating(notes: Path, tag: str) -> tuple[str, str, str]:
    return sh(f"trap '' TERM; while :; do echo {tag} $(date +%s.%N) >> {notes}; sleep 0.1; done")


def a_stopping_pod(node: str, name: str, notes: Path, tag: str, after: str) -> Pod:
    pod = a_pod(node, name, *beating(notes, tag), policy="Always", grace=5)
    pod.metadata.annotations[STOP_AFTER_ANNOTATION] = after
    return pod


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.row("N73", "N74")
def test_a_pod_that_its_node_stops_is_replaced_only_when_it_is_gone(world: LedCluster, tmp_path: Path) -> None:
    """The agent is killed as well, so that it is the shim that stops it. Both pods note when they live."""
    notes = tmp_path / "notes"
    node = f"cut-{next(_numbers)}"
    first = AgentProcess(tmp_path / "node", node, world.link.address)
    registered(world.client, node)
    with agent_thread(settings(tmp_path / "second", "second"), world.client.endpoints[0]):
        registered(world.client, "second")
        name = world.run(a_stopping_pod(node, "single", notes, "old", "30s"))
        in_phase(world.client, name, "Running")
        until(lambda: beats(notes, "old"), "it lives")
        pids = processes(world.client, name)
        cut_at = time.monotonic()
        world.link.cut()
        first.kill()
        until(lambda: world.is_ending(name), "it is evicted")
        removed_at = _replaced(world, name, lambda: a_stopping_pod("second", name, notes, "new", "30s"), pids)
        until(lambda: beats(notes, "new"), "the new one lives")
        lived = beats(notes, "old")
        assert lived[-1] - lived[0] > 20 and removed_at - cut_at > 30
        assert removed_at - cut_at < has_stopped_after(30.0) + 15
        assert lived[-1] < beats(notes, "new")[0], "both lived at a time"
        assert all_gone(pids)
        world.client.delete("pod", name, grace_period_seconds=1)
        gone(world.client, name)


def _replaced(world: LedCluster, name: str, another: Callable[[], Pod], pids: list[int]) -> float:
    """Submits another pod of that name until it is taken; when that was. All the while either object or processes are there."""
    ends_at = time.monotonic() + 120
    while time.monotonic() < ends_at:
        try:
            world.client.submit(another())
        except ApiError as error:
            assert error.code is grpc.StatusCode.ALREADY_EXISTS, error
            time.sleep(0.1)
        else:
            assert all_gone(pids), "its name was free while it ran"
            return time.monotonic()
    raise AssertionError("the object stays")


@pytest.mark.row("N73")
def test_without_the_margin_its_name_would_be_free_while_it_runs(world: LedCluster, tmp_path: Path) -> None:
    with a_node(world, tmp_path / "node") as node:
        pod = a_stopping_pod(node, "hasty", tmp_path / "notes", "old", "10m")
        assert stop_after_seconds(pod) == 600
        name = world.run(pod)
        in_phase(world.client, name, "Running")
        pids = processes(world.client, name)
        world.link.cut()
        until(lambda: world.is_ending(name), "it is evicted")
        time.sleep(7)
        assert world.is_ending(name) and not all_gone(pids)
        with planted("fences have no margin"):
            world.client.label("pod", name, add={"look": "again"})
            gone(world.client, name)
            assert not all_gone(pids), "it is the margin that keeps the name"
        world.link.heal()
        until(lambda: all_gone(pids), "the node ends what has no object")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.row("N73")
def test_an_agent_that_is_cut_off_ends_such_a_pod_itself_and_says_so_later(world: LedCluster, tmp_path: Path) -> None:
    with a_node(world, tmp_path / "node") as node:
        name = world.run(a_stopping_pod(node, "said", tmp_path / "notes", "old", "30s"), tolerated_seconds=300)
        in_phase(world.client, name, "Running")
        pids = processes(world.client, name)
        time.sleep(2)
        world.link.hold()
        until(lambda: all_gone(pids), "it is ended", 90)
        world.link.heal()
        found = in_phase(world.client, name, "Failed")
        assert found.reason == "NodeDisconnected" and "no connection to the cluster" in found.message
        assert {one.type: one.status for one in found.conditions}["DisruptionTarget"] == "True"
        assert found.container_statuses[0].restart_count == 0
        world.client.delete("pod", name)
        gone(world.client, name)


def on_machine(root: Path, node: str, machine_id: str, **changes: object) -> AgentSettings:
    found = settings(root, node, **changes)
    return replace(found, machine=replace(found.machine, machine_id=machine_id))


@pytest.mark.row("N76")
def test_a_name_on_another_machine_starts_nothing_that_was_there_before(world: LedCluster, tmp_path: Path) -> None:
    node, address = f"moved-{next(_numbers)}", world.client.endpoints[0]
    with agent_thread(on_machine(tmp_path / "one", node, "machine-a"), address):
        runs = world.run(a_pod(node, "runs", "sleep", "1000"), tolerated_seconds=300)
        in_phase(world.client, runs, "Running")
        pids = processes(world.client, runs)
    note = tmp_path / "note"
    never = world.run(a_pod(node, "never", *sh(f"echo started > {note}; sleep 1000")), tolerated_seconds=300)
    with agent_thread(on_machine(tmp_path / "two", node, "machine-b"), address) as refused:
        until(refused.ended, "it is refused")
        assert "is on machine machine-a, whose pods may run there still" in refused.agent.failure
        assert "(--take-over)" in refused.agent.failure
    with agent_thread(on_machine(tmp_path / "two", node, "machine-b", take_over=True), address):
        for name in (runs, never):
            found = in_phase(world.client, name, "Failed")
            assert found.reason == "NodeReplaced", found
        fresh = world.run(a_pod(node, "fresh", *sh("exit 0")), tolerated_seconds=300)
        in_phase(world.client, fresh, "Succeeded")
        later = world.run(a_pod(node, "later", "sleep", "1000"), tolerated_seconds=300)
        in_phase(world.client, later, "Running")
    assert not note.exists() and not all_gone(pids), "nobody here may say what runs on the other machine"
    with agent_thread(on_machine(tmp_path / "two", node, "machine-b"), address):
        until(lambda: len(processes(world.client, later)) == 1, "its own goes on")
        time.sleep(1)
        assert status(world.client, later).phase == "Running" and not note.exists()
        world.client.delete("pod", later)
        gone(world.client, later)
