"""A pod's object goes when nothing of it lives and its last status is there; also where the agent does not know the pod."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rayched.client.node_agent import NodeAgentClient
from rayched.nodes.agent.agent_settings import steady_clock
from rayched.nodes.agent.pod_reports import PodReports
from rayched.nodes.agent.reports import Reporter, ReportOutcomes
from rayched.v1.core_pb2 import Pod, PodStatus
from rayched.v1.services_pb2 import PodStatusUpdate
from tests.nodes.lone_runners import NOWHERE


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
        outcomes = ReportOutcomes(lambda *_: None, lambda: None, lambda: None, lambda _: None, steady_clock)
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
