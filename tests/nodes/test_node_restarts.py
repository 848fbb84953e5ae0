"""Agents that are killed, replaced or doubled: what runs goes on, and nothing runs twice."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from rayched.client import ApiError, Client
from rayched.client.node_agent import NodeAgentClient
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import NodeStatus, Pod, PodStatus
from rayched.v1.services_pb2 import PodStatusUpdate, RegisterNodeRequest
from tests.nodes.real_node import (
    AgentProcess,
    AgentThread,
    a_pod,
    agent_thread,
    all_gone,
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
from tests.planted_bugs import planted
from tests.server.serving import serving

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def client(etcd: EtcdServer) -> Iterator[Client]:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/restarts-{os.getpid()}"))
    with serving(options) as server, Client(server.address, timeout_seconds=10.0) as found:
        yield found


@pytest.fixture
def node() -> str:
    return f"node-{next(_numbers)}"


def run(client: Client, node: str, *command: str, policy: str = "Always", grace: int = 5, **fields: int) -> Pod:
    pod = a_pod(node, f"pod-{next(_numbers)}", *command, policy=policy, grace=grace)
    for name, number in fields.items():
        setattr(pod.spec, name, number)
    client.submit(pod)
    return pod


def test_a_killed_agent_leaves_all_as_it_is_and_its_successor_goes_on(client: Client, node: str, tmp_path: Path) -> None:
    first = AgentProcess(tmp_path, node, client.endpoints[0])
    long = run(client, node, *sh("echo run >> $RAYCHED_WORK_DIR/../../../runs; sleep 1000"))
    probed = a_pod(node, "probed", "sleep", "1000")
    probed.spec.containers[0].readiness_probe.exec.command.append("true")
    client.submit(probed)
    ready(client, long.metadata.name)
    ready(client, "probed")
    pids = processes(client, long.metadata.name) + processes(client, "probed")
    first.kill()
    assert not all_gone(pids)
    ended = run(client, node, *sh("exit 4"), policy="Never")
    second = AgentProcess(tmp_path, node, client.endpoints[0])
    try:
        assert in_phase(client, ended.metadata.name, "Failed").container_statuses[0].state.terminated.exit_code == 4
        assert processes(client, long.metadata.name) + processes(client, "probed") == pids
        found = status(client, "probed")
        assert found.container_statuses[0].ready and found.container_statuses[0].restart_count == 0
        client.delete("pod", long.metadata.name)
        gone(client, long.metadata.name)
        client.delete("pod", "probed")
        gone(client, "probed")
        assert all_gone(pids)
    finally:
        assert second.terminate() == 0


@pytest.mark.row("N62", "N67")
def test_a_stopped_agent_ends_at_once_and_ready_stays_over_its_return(client: Client, node: str, tmp_path: Path) -> None:
    pod = a_pod(node, "stays-ready", "sleep", "1000")
    pod.spec.containers[0].readiness_probe.exec.command.append("true")
    pod.spec.containers[0].readiness_probe.initial_delay_seconds = 1
    client.submit(pod)
    seen: list[str] = []
    first = AgentProcess(tmp_path, node, client.endpoints[0])
    ready(client, "stays-ready")
    (pid,) = processes(client, "stays-ready")
    revision = client.list_all("pods").revision
    began = time.monotonic()
    assert first.terminate() == 0
    assert time.monotonic() - began < 15 and processes(client, "stays-ready") == [pid]
    with agent_thread(settings(tmp_path, node), client.endpoints[0]):
        another = run(client, node, *sh("exit 0"), policy="Never")
        in_phase(client, another.metadata.name, "Succeeded")
        with client.watch("pods", start_revision=revision + 1, timeout_seconds=1.0) as events:
            for event in events:
                if isinstance(event.object, Pod) and event.object.metadata.name == "stays-ready":
                    seen += [one.status for one in event.object.status.conditions if one.type == "Ready"]
        assert set(seen) <= {"True"} and processes(client, "stays-ready") == [pid]
        client.delete("pod", "stays-ready")
        gone(client, "stays-ready")


@pytest.mark.row("N63")
def test_a_pod_that_was_deleted_while_the_agent_was_away_never_runs_again(client: Client, node: str, tmp_path: Path) -> None:
    note = tmp_path / "runs"
    first = AgentThread(settings(tmp_path / "node", node), client.endpoints[0])
    pod = run(client, node, *sh(f"echo run >> {note}; sleep 0.2; exit 1"))
    until(note.exists, "it ran")
    in_phase(client, pod.metadata.name, "Running")
    first.stop()
    uid = uid_of(client, pod.metadata.name)
    until((tmp_path / "node" / "pods" / uid / "containers" / "main").exists, "its directory")
    client.delete("pod", pod.metadata.name, grace_period_seconds=0)
    time.sleep(0.5)
    runs = note.read_text()
    with agent_thread(settings(tmp_path / "node", node), client.endpoints[0]):
        until(lambda: not (tmp_path / "node" / "pods" / uid).exists(), "its directory is gone")
        time.sleep(1.5)
        assert note.read_text() == runs


@pytest.mark.row("N64")
def test_a_killed_shim_takes_its_containers_along_and_they_are_restarted_by_policy(
    client: Client, node: str, tmp_path: Path
) -> None:
    with agent_thread(settings(tmp_path, node), client.endpoints[0]):
        always = run(client, node, *sh("sleep 1001 & setsid sleep 1002 & sleep 1000"))
        never = run(client, node, "sleep", "1000", policy="Never")
        for pod in (always, never):
            in_phase(client, pod.metadata.name, "Running")
        until(lambda: len(processes(client, always.metadata.name)) == 4, "its children run")
        pids = processes(client, always.metadata.name) + processes(client, never.metadata.name)
        for pod in (always, never):
            uid = uid_of(client, pod.metadata.name)
            os.kill(shim_pid(tmp_path, uid), signal.SIGKILL)
        ended = in_phase(client, never.metadata.name, "Failed").container_statuses[0].state.terminated
        assert (ended.reason, ended.exit_code) == ("ContainerStatusUnknown", 137)
        assert ended.message == "The container could not be located when the pod was terminated"
        until(lambda: status(client, always.metadata.name).container_statuses[0].restart_count == 1, "it is restarted")
        until(lambda: status(client, always.metadata.name).container_statuses[0].state.HasField("running"), "it runs")
        assert all_gone(pids)
        client.delete("pod", always.metadata.name)
        gone(client, always.metadata.name)


@pytest.mark.row("N65")
def test_what_is_left_after_both_were_killed_dies_before_anything_is_restarted(client: Client, node: str, tmp_path: Path) -> None:
    first = AgentProcess(tmp_path, node, client.endpoints[0])
    listens = "import socket,time; s=socket.socket(); s.bind(('127.0.0.1',0)); s.listen(); time.sleep(1000)"
    pod = run(client, node, *sh(f'setsid python3 -c "{listens}" & exec sleep 1000'))
    in_phase(client, pod.metadata.name, "Running")
    until(lambda: len(processes(client, pod.metadata.name)) == 2, "its child runs")
    pids = processes(client, pod.metadata.name)
    uid = uid_of(client, pod.metadata.name)
    first.kill()
    os.kill(shim_pid(tmp_path, uid), signal.SIGKILL)
    until(lambda: len([pid for pid in pids if not all_gone([pid])]) == 1, "main dies with its shim, the daemon stays")
    with agent_thread(settings(tmp_path, node), client.endpoints[0]):
        until(lambda: status(client, pod.metadata.name).container_statuses[0].restart_count == 1, "it is restarted")
        assert all_gone(pids)
        last = status(client, pod.metadata.name).container_statuses[0].last_state.terminated
        assert (last.reason, last.exit_code) == ("ContainerStatusUnknown", 137)
        client.delete("pod", pod.metadata.name)
        gone(client, pod.metadata.name)


def test_a_shim_that_does_not_answer_is_ended_with_what_it_runs(client: Client, node: str, tmp_path: Path) -> None:
    first = AgentProcess(tmp_path, node, client.endpoints[0])
    pod = run(client, node, "sleep", "1000")
    in_phase(client, pod.metadata.name, "Running")
    pids = processes(client, pod.metadata.name)
    first.kill()
    os.kill(shim_pid(tmp_path, uid_of(client, pod.metadata.name)), signal.SIGSTOP)
    with agent_thread(settings(tmp_path, node), client.endpoints[0]):
        until(lambda: status(client, pod.metadata.name).container_statuses[0].restart_count == 1, "it is restarted")
        assert all_gone(pids)
        client.delete("pod", pod.metadata.name)
        gone(client, pod.metadata.name)


def shim_pid(root: Path, uid: str) -> int:
    return int(json.loads((root / "pods" / uid / "shim" / "state.json").read_text())["pid"])


@pytest.mark.row("N6", "N7")
def test_a_second_agent_of_a_name_is_refused_and_one_that_takes_over_ends_the_first(
    client: Client, node: str, tmp_path: Path
) -> None:
    first = AgentThread(settings(tmp_path / "one", node), client.endpoints[0])
    pod = run(client, node, "sleep", "1000")
    in_phase(client, pod.metadata.name, "Running")
    pids = processes(client, pod.metadata.name)
    with agent_thread(settings(tmp_path / "two", node), client.endpoints[0]) as second:
        until(second.ended, "the second ends")
        assert "was heard of" in second.agent.failure and "(--take-over)" in second.agent.failure
        own = json.loads((tmp_path / "one" / "identity.json").read_text())["agent_id"]
        assert own and own not in second.agent.failure
    assert not first.ended() and not all_gone(pids)
    with agent_thread(settings(tmp_path / "two", node, take_over=True), client.endpoints[0]):
        until(first.ended, "the first ends")
        assert first.agent.failure == f"node {node} has another agent now"
        assert all_gone(pids)
        client.delete("pod", pod.metadata.name)
        gone(client, pod.metadata.name)


@pytest.mark.row("N7")
def test_an_agent_that_has_nothing_to_say_learns_from_its_watch_that_it_is_replaced(
    client: Client, node: str, tmp_path: Path
) -> None:
    """Its next sign of life is seconds away."""
    first = AgentThread(settings(tmp_path / "one", node, heartbeat_seconds=60.0), client.endpoints[0])
    pod = run(client, node, "sleep", "1000")
    in_phase(client, pod.metadata.name, "Running")
    pids = processes(client, pod.metadata.name)
    with agent_thread(settings(tmp_path / "two", node, take_over=True), client.endpoints[0]):
        until(first.ended, "the first ends")
        assert first.agent.failure == f"node {node} has another agent now" and all_gone(pids)
        assert not refused_writes(first), "nothing that it wrote told it"
        client.delete("pod", pod.metadata.name)
        gone(client, pod.metadata.name)


def refused_writes(agent: AgentThread) -> float:
    (family,) = agent.agent._metrics.superseded_writes.collect()
    return next(sample.value for sample in family.samples if sample.name.endswith("_total"))


def test_what_an_older_incarnation_writes_is_refused(client: Client, node: str, tmp_path: Path) -> None:
    pod = run(client, node, "sleep", "1000")
    other = run(client, "elsewhere", "sleep", "1000")
    agent = NodeAgentClient(client.endpoints[0])
    with agent:
        request = RegisterNodeRequest(agent_id="a")
        request.node.metadata.name = node
        old = agent.begin(request).incarnation
        request.agent_id, request.take_over = "b", True
        new = agent.begin(request).incarnation
        assert new > old > 0
        uids = {one.metadata.name: one.metadata.uid for one in client.list("pods")}

        def report(of: Pod, incarnation: int) -> ApiError | None:
            name = of.metadata.name
            update = PodStatusUpdate(namespace="default", name=name, uid=uids[name], status=PodStatus(phase="Running"))
            return agent.report_pods(node, incarnation, [update])[0]

        refused = report(pod, old)
        assert refused is not None and refused.code is grpc.StatusCode.FAILED_PRECONDITION
        assert "its agent has been superseded by another one" in refused.message
        assert list(agent.live(node, old).superseded) == [node] and not agent.live(node, new).superseded
        with pytest.raises(ApiError, match="superseded"):
            agent.report_node(node, old, NodeStatus(phase="x"))
        foreign = report(other, new)
        assert foreign is not None and f"is on node elsewhere, and the agent of {node} reports on it" in foreign.message
        assert report(pod, new) is None and status(client, pod.metadata.name).phase == "Running"
        with planted("an older agent writes on"):
            assert report(pod, old) is None, "it is the guard that refuses"


@pytest.mark.row("N8")
def test_one_agent_a_directory(client: Client, node: str, tmp_path: Path) -> None:
    with agent_thread(settings(tmp_path, node), client.endpoints[0]):
        registered(client, node)
        second = AgentProcess(tmp_path, node, client.endpoints[0])
        output, _ = second.process.communicate(timeout=60)
        assert second.process.returncode == 1
        assert f"error: {tmp_path}: another agent lives in it, pid {os.getpid()}" in output


@pytest.mark.row("N9")
def test_a_node_whose_object_is_deleted_registers_again_and_keeps_its_pods(client: Client, node: str, tmp_path: Path) -> None:
    with agent_thread(settings(tmp_path, node), client.endpoints[0]):
        pod = run(client, node, "sleep", "1000")
        in_phase(client, pod.metadata.name, "Running")
        pids = processes(client, pod.metadata.name)
        uid = registered(client, node).metadata.uid
        client.delete("node", node)
        until(lambda: registered(client, node).metadata.uid != uid, "it is registered again")
        assert processes(client, pod.metadata.name) == pids
        client.delete("pod", pod.metadata.name)
        gone(client, pod.metadata.name)


@pytest.mark.row("N45")
def test_a_deadline_counts_on_while_the_agent_is_away(client: Client, node: str, tmp_path: Path) -> None:
    first = AgentProcess(tmp_path, node, client.endpoints[0])
    pod = run(client, node, "sleep", "1000", active_deadline_seconds=8, grace=1)
    in_phase(client, pod.metadata.name, "Running")
    first.kill()
    with agent_thread(settings(tmp_path, node), client.endpoints[0]):
        found = in_phase(client, pod.metadata.name, "Failed")
        assert found.reason == "DeadlineExceeded"
        ended = found.container_statuses[0].state.terminated.finished_at.seconds
        assert 8 <= ended - found.start_time.seconds <= 11


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.row("N60")
def test_an_agent_that_is_killed_fifty_times_starts_nothing_twice_and_changes_no_process(
    client: Client, node: str, tmp_path: Path
) -> None:
    """Each run appends its attempt to a file; an attempt that is there twice was started twice."""
    chance = random.Random(7)
    notes = tmp_path / "notes"
    notes.mkdir()
    note = f"echo $RAYCHED_ATTEMPT $$$$ >> {notes}/$RAYCHED_POD_NAME"
    pods = [run(client, node, *sh(f"{note}; exec sleep 1000")) for _ in range(7)]
    pods += [run(client, node, *sh(f"{note}; sleep 1; exit 0"), policy="Never") for _ in range(7)]
    pods += [run(client, node, *sh(f"{note}; sleep 1; [ $RAYCHED_ATTEMPT = 2 ]"), policy="OnFailure") for _ in range(6)]
    for _ in range(50):
        agent = AgentProcess(tmp_path / "node", node, client.endpoints[0])
        time.sleep(chance.uniform(0.2, 4.0))
        agent.kill()
    with agent_thread(settings(tmp_path / "node", node), client.endpoints[0]):
        for pod in pods[7:]:
            in_phase(client, pod.metadata.name, "Succeeded")
        for pod in pods[:7]:
            ready(client, pod.metadata.name)
        for number, pod in enumerate(pods):
            runs = [line.split()[0] for line in (notes / pod.metadata.name).read_text().splitlines()]
            assert runs == (["0"] if number < 14 else ["0", "1", "2"])
        for pod in pods[:7]:
            noted = (notes / pod.metadata.name).read_text().split()[1:]
            assert [str(pid) for pid in processes(client, pod.metadata.name)] == noted
            client.delete("pod", pod.metadata.name)
        for pod in pods[:7]:
            gone(client, pod.metadata.name)
