"""A pod's object goes when nothing of it lives and its last status is there; also where the agent does not know the pod."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import grpc
import pytest

from rayched.client.errors import ApiError
from rayched.client.node_agent import NodeAgentClient, NodeState
from rayched.nodes.agent.agent_settings import steady_clock
from rayched.nodes.agent.disk import NodeDirectory
from rayched.nodes.agent.pod_reports import PodReports
from rayched.nodes.agent.pod_runner import PodRunner
from rayched.nodes.agent.reports import Reporter, ReportOutcomes
from rayched.nodes.agent.shim import proc_table
from rayched.v1.core_pb2 import Pod, PodStatus
from rayched.v1.services_pb2 import PodStatusUpdate
from tests.nodes.bare_shim import BareShim, until
from tests.nodes.lone_runners import NOWHERE, lone_agent
from tests.nodes.real_node import AgentThread


def a_deleted_pod(uid: str, phase: str = "Running") -> Pod:
    pod = Pod(metadata={"name": f"name-of-{uid}", "namespace": "default", "uid": uid}, status={"phase": phase})
    pod.spec.containers.add(name="main", command=["sleep", "1000"])
    pod.metadata.deletion_timestamp.seconds = 1
    return pod


# ---------------------------------------------------------------------------------------------------------- the last status


@pytest.fixture
def reporter() -> Iterator[Reporter]:
    """One that has not begun: what it is to tell waits."""
    with NodeAgentClient(NOWHERE, node="n") as client:
        outcomes = ReportOutcomes(lambda *_: None, lambda: None, lambda: None, lambda _: None, lambda: None, steady_clock)
        yield Reporter(client, "n", 10.0, outcomes)


def waiting(reporter: Reporter, uid: str) -> PodStatusUpdate | None:
    return reporter._pods.get(uid)


def taken(reporter: Reporter, uid: str) -> PodStatusUpdate:
    """As when it is on its way."""
    return reporter._pods.pop(uid)


def test_a_removal_waits_for_the_answer_to_the_status_before_it(reporter: Reporter) -> None:
    reports, pod = PodReports(reporter), a_deleted_pod("u")
    reports.report(pod, PodStatus(phase="Running"))
    early = taken(reporter, "u")
    reports.report(pod, PodStatus(phase="Failed", message="how it ended"))
    reports.remove(pod)
    last = waiting(reporter, "u")
    assert last is not None and last.status.message == "how it ended" and not last.remove
    reports.answered(early)
    assert waiting(reporter, "u") is last, "that was the answer to an older one"
    reports.answered(taken(reporter, "u"))
    found = waiting(reporter, "u")
    assert found is not None and found.remove
    reports.answered(found)
    assert taken(reporter, "u") is found and waiting(reporter, "u") is None, "it is asked for once"


def test_a_removal_without_a_status_on_its_way_is_told_at_once(reporter: Reporter) -> None:
    reports, pod = PodReports(reporter), a_deleted_pod("u")
    reports.report(pod, PodStatus(phase="Failed"))
    reports.answered(taken(reporter, "u"))
    reports.remove(pod)
    found = waiting(reporter, "u")
    assert found is not None and found.remove and found.name == "name-of-u"
    reports.forget("u")
    assert waiting(reporter, "u") is None


# ------------------------------------------------------------------------------------------------------- who nobody knows


def is_removed(agent: AgentThread, uid: str) -> bool:
    found = waiting(agent.agent._reporter, uid)
    return found is not None and found.remove


def a_forgotten_pod(root: Path, uid: str) -> BareShim:
    """It runs below an agent's directory, and the agent cannot take it over: its object is no object."""
    directory = NodeDirectory(root, traversable=True)
    directory.open("alone")
    directory.close()
    shim = BareShim(root / "pods" / uid)
    shim.attempt("main", "(env -i setsid sleep 1001 &) ; (setsid sleep 1002 &) ; sleep 1000")
    assert shim.asked("start", container="main", attempt=0)["ok"]
    until(lambda: len(shim.below()) == 4, "all of it runs")
    (root / "pods" / uid / "pod.json").write_text("{")
    return shim


@pytest.mark.row("N53")
@pytest.mark.parametrize("lost", ["nothing", "state", "directory"])
def test_a_deleted_pod_that_the_agent_does_not_know_goes_when_nothing_of_it_lives(tmp_path: Path, lost: str) -> None:
    shim = a_forgotten_pod(tmp_path, "forgotten")
    pids = [shim.pid, *shim.below()]
    directory = tmp_path / "pods" / "forgotten"
    if lost == "state":
        (directory / "shim" / "state.json").write_text("no state")
    elif lost == "directory":
        shutil.rmtree(directory)
    with lone_agent(tmp_path) as agent:
        alive: list[int] = []

        def looks() -> bool:
            # In the loop, so that nothing comes between.
            if not is_removed(agent, "forgotten"):
                return False
            alive.extend(pid for pid in pids if proc_table.is_alive(pid))
            return True

        agent.agent._loop.post(lambda: agent.agent._changed(a_deleted_pod("forgotten")))
        until(lambda: agent.agent._loop.ask(looks, 30.0), "its removal is told")
        assert not alive and not directory.exists()


@pytest.mark.row("N53")
def test_what_runs_of_a_pod_whose_object_is_gone_ends_though_the_agent_does_not_know_it(tmp_path: Path) -> None:
    shim = a_forgotten_pod(tmp_path, "absent")
    pids = [shim.pid, *shim.below()]
    kept = a_forgotten_pod(tmp_path, "kept")
    with lone_agent(tmp_path) as agent:
        there = a_deleted_pod("kept", "Succeeded")
        there.metadata.ClearField("deletion_timestamp")
        state = NodeState(None, [there], 1)
        agent.agent._loop.ask(lambda: agent.agent._listed(state, frozenset()), 30.0)
        until(lambda: not (tmp_path / "pods" / "absent").exists(), "it is cleared away")
        assert not [pid for pid in pids if proc_table.is_alive(pid)]
        assert not is_removed(agent, "absent"), "there is no object to remove"
        assert len(kept.below()) == 4 and (tmp_path / "pods" / "kept").exists()
    kept.end()


@pytest.mark.row("N53")
def test_so_it_does_when_its_object_goes_while_the_agent_runs(tmp_path: Path) -> None:
    shim = a_forgotten_pod(tmp_path, "forced")
    pids = [shim.pid, *shim.below()]
    with lone_agent(tmp_path) as agent:
        agent.agent._loop.ask(lambda: agent.agent._object_gone(a_deleted_pod("forced")), 30.0)
        until(lambda: not (tmp_path / "pods" / "forced").exists(), "it is cleared away")
        assert not [pid for pid in pids if proc_table.is_alive(pid)]


def test_the_last_word_on_a_pod_that_never_ran_comes_before_its_removal(tmp_path: Path) -> None:
    with lone_agent(tmp_path) as agent:
        inner = agent.agent
        pod = a_deleted_pod("waits", "Pending")
        pod.metadata.ClearField("deletion_timestamp")
        pod.spec.containers[0].ClearField("command")
        inner._loop.ask(lambda: inner._changed(pod), 30.0)
        until(lambda: waiting(inner._reporter, "waits") is not None, "it is taken on")
        inner._loop.ask(lambda: inner._changed(a_deleted_pod("waits", "Pending")), 30.0)
        said = taken(inner._reporter, "waits")
        assert not said.remove and not is_removed(agent, "waits")
        assert isinstance(inner._runners["waits"], PodRunner)
        inner._loop.ask(lambda: inner._pod_reported(said, None), 30.0)
        assert is_removed(agent, "waits")


def test_a_last_status_that_is_refused_holds_no_object(tmp_path: Path) -> None:
    with lone_agent(tmp_path) as agent:
        inner = agent.agent
        pod = a_deleted_pod("refused", "Pending")
        pod.metadata.ClearField("deletion_timestamp")
        pod.spec.node_selector["no"] = "such"
        inner._loop.ask(lambda: inner._intake.judge(pod, fresh=True), 30.0)
        said = waiting(inner._reporter, "refused")
        assert said is not None and said.status.reason == "NodeAffinity"
        inner._loop.ask(lambda: inner._changed(a_deleted_pod("refused", "Pending")), 30.0)
        until(lambda: "refused" in inner._reports._to_remove, "it is swept")
        assert waiting(inner._reporter, "refused") is said, "its last status is still to be told"
        refusal = ApiError(grpc.StatusCode.FAILED_PRECONDITION, "no")
        inner._loop.ask(lambda: inner._pod_reported(cast(PodStatusUpdate, said), refusal), 30.0)
        assert is_removed(agent, "refused")
