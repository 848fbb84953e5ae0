"""Reports of an agent: nobody's wait for somebody else's fault; the Nodes service over a model of etcd answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import grpc
import pytest

from rayched.client.errors import ApiError
from rayched.nodes.agent import reports
from rayched.nodes.agent.reports import Reporter, ReportOutcomes
from rayched.v1.core_pb2 import NodeStatus, PodStatus
from rayched.v1.services_pb2 import PodStatusUpdate
from tests.server.nodes_over_model import BROKEN, NodesOverModel, identity, registration
from tests.server.objects import a_node, a_pod


def until(holds: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 30.0
    while not holds():
        assert time.monotonic() < ends_at
        time.sleep(0.01)


@dataclass
class Told:
    """What a Reporter told the agent."""

    pods: list[tuple[str, ApiError | None]] = field(default_factory=list)
    superseded: list[int] = field(default_factory=list)
    unanswered: int = 0

    def outcomes(self) -> ReportOutcomes:
        return ReportOutcomes(
            lambda update, error: self.pods.append((update.name, error)),
            lambda: self.superseded.append(1),
            lambda: None,
            lambda _: None,
            self._not_answered,
            time.monotonic,
        )

    def _not_answered(self) -> None:
        self.unanswered += 1


@pytest.fixture
def nodes() -> NodesOverModel:
    return NodesOverModel(identity("one"))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(reports, "_REFUSED_SECONDS", 0.3)


@contextmanager
def reporting(nodes: Any, told: Told, incarnation: int) -> Iterator[Reporter]:
    found = Reporter(cast(Any, nodes), "one", 60.0, told.outcomes())
    found.registered(incarnation, 0.0)
    found.start()
    try:
        yield found
    finally:
        found.stop(2.0)


def running(name: str, **fields: Any) -> PodStatusUpdate:
    return PodStatusUpdate(namespace="default", name=name, uid=f"uid-{name}", status=PodStatus(phase="Running", **fields))


def phase(nodes: NodesOverModel, name: str) -> str:
    found = nodes.stored(a_pod(name, namespace="default"))
    return "" if found is None else found.pod.status.phase


def refused_status() -> NodeStatus:
    status = NodeStatus()
    status.allocatable["cpu"].string = "1000"
    return status


def test_pods_are_told_of_while_the_nodes_status_is_refused(nodes: NodesOverModel) -> None:
    told = Told()
    incarnation = nodes.begin(registration("one", "a")).incarnation
    for name in ("web", "db"):
        nodes.put_pod(name, "one")
    with reporting(nodes, told, incarnation) as reporter:
        reporter.node(refused_status())
        reporter.pod(running("web"))
        until(lambda: phase(nodes, "web") == "Running")
        reporter.pod(running("db"))
        until(lambda: phase(nodes, "db") == "Running" and not reporter.waiting)
        # A later status takes the place of the one that was refused.
        reporter.node(NodeStatus(phase="Running"))
        until(lambda: (nodes.stored(a_node("one")) or NodeStatus()).node.status.phase == "Running")  # type: ignore[union-attr]
    assert sorted(told.pods, key=str) == [("db", None), ("web", None)] and not told.superseded


class Picky:
    """Refuses each call that has a certain pod in it, as a rule about a whole request does."""

    def __init__(self, nodes: NodesOverModel) -> None:
        self._nodes = nodes
        self.refuses = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nodes, name)

    def report_pods(self, node: str, incarnation: int, updates: list[PodStatusUpdate]) -> tuple[ApiError | None, ...]:
        if self.refuses and any(update.name == "bad" for update in updates):
            raise ApiError(grpc.StatusCode.PERMISSION_DENIED, "this may not be")
        return self._nodes.report_pods(node, incarnation, updates)


def test_an_answer_to_an_older_incarnation_says_nothing_about_the_present_one(nodes: NodesOverModel) -> None:
    told = Told()
    old = nodes.begin(registration("one", "a")).incarnation
    nodes.put_pod("web", "one")
    client = Late(nodes)
    with reporting(client, told, old) as reporter:
        # Both calls are under way when the same agent registers anew.
        reporter.pod(running("web"))
        reporter.node(NodeStatus(phase="Running"))
        until(lambda: client.asked >= 2)
        reporter.registered(nodes.begin(registration("one", "a")).incarnation, 0.0)
        client.go_on.set()
        until(lambda: phase(nodes, "web") == "Running")
        found = nodes.stored(a_node("one"))
        until(lambda: found is not None and not reporter.waiting)
    assert told.pods == [("web", None)] and not told.superseded


def test_that_the_present_one_is_over_is_told(nodes: NodesOverModel) -> None:
    told = Told()
    old = nodes.begin(registration("one", "a")).incarnation
    nodes.put_pod("web", "one")
    nodes.begin(registration("one", "b", take_over=True))
    with reporting(nodes, told, old) as reporter:
        until(lambda: bool(told.superseded))
        told.superseded.clear()
        reporter.pod(running("web"))
        until(lambda: bool(told.superseded))
        told.superseded.clear()
        reporter.node(NodeStatus(phase="Running"))
        until(lambda: bool(told.superseded))
    assert told.pods == [] and phase(nodes, "web") == ""


def test_words_of_a_refusal_supersede_nobody(nodes: NodesOverModel) -> None:
    told = Told()
    incarnation = nodes.begin(registration("one", "a")).incarnation
    name = "superseded"
    nodes.put_pod(name, "another")
    with reporting(nodes, told, incarnation) as reporter:
        reporter.pod(running(name))
        until(lambda: bool(told.pods))
    ((_, refusal),) = told.pods
    assert refusal is not None and refusal.code is grpc.StatusCode.FAILED_PRECONDITION and "superseded" in refusal.message
    assert not told.superseded


class Late:
    """Calls that report wait, with what they were made with, until they may go on."""

    def __init__(self, nodes: NodesOverModel) -> None:
        self._nodes = nodes
        self.asked = 0
        self.go_on = threading.Event()

    def live(self, node: str, incarnation: int, **more: Any) -> Any:
        self.asked += 1
        assert self.go_on.wait(30.0)
        return self._nodes.live(node, incarnation)

    def report_node(self, node: str, incarnation: int, status: NodeStatus) -> None:
        self._nodes.report_node(node, incarnation, status)

    def report_pods(self, node: str, incarnation: int, updates: list[PodStatusUpdate]) -> tuple[ApiError | None, ...]:
        self.asked += 1
        assert self.go_on.wait(30.0)
        return self._nodes.report_pods(node, incarnation, updates)


def test_one_that_spoils_a_whole_call_delays_none_of_the_others(nodes: NodesOverModel) -> None:
    told = Told()
    incarnation = nodes.begin(registration("one", "a")).incarnation
    names = ["a", "b", "bad", "c", "d"]
    for name in names:
        nodes.put_pod(name, "one")
    client = Picky(nodes)
    with reporting(client, told, incarnation) as reporter:
        for name in names:
            reporter.pod(running(name))
        until(lambda: all(phase(nodes, name) == "Running" for name in "abcd"))
        assert reporter.waiting == 1 and phase(nodes, "bad") == ""
        client.refuses = False
        until(lambda: phase(nodes, "bad") == "Running")
    assert sorted(name for name, _ in told.pods) == sorted(names)


def test_the_status_of_a_pod_that_cannot_be_read_waits_until_it_can(nodes: NodesOverModel) -> None:
    told = Told()
    incarnation = nodes.begin(registration("one", "a")).incarnation
    nodes.put_pod("fine", "one")
    pod = nodes.put_pod("web", "one", BROKEN)
    with reporting(nodes, told, incarnation) as reporter:
        reporter.pod(running("web"))
        reporter.pod(running("fine"))
        until(lambda: phase(nodes, "fine") == "Running")
        until(lambda: reporter.waiting == 1)
        assert told.pods == [("fine", None)]
        nodes.put(pod)
        until(lambda: phase(nodes, "web") == "Running")
    assert told.pods == [("fine", None), ("web", None)]


def test_of_a_pod_that_waits_the_latest_status_is_told_and_one_that_is_gone_is_forgotten(nodes: NodesOverModel) -> None:
    told = Told()
    incarnation = nodes.begin(registration("one", "a")).incarnation
    pod, other = nodes.put_pod("web", "one", BROKEN), nodes.put_pod("other", "one", BROKEN)
    with reporting(nodes, told, incarnation) as reporter:
        reporter.pod(running("web", message="old"))
        reporter.pod(running("other"))
        until(lambda: nodes.calls >= 2)
        reporter.forget("uid-other")
        reporter.pod(running("web", message="new"))
        until(lambda: reporter.waiting == 1)
        nodes.put(pod)
        nodes.put(other)
        until(lambda: phase(nodes, "web") == "Running")
    found = nodes.stored(a_pod("web", namespace="default"))
    assert found is not None and found.pod.status.message == "new" and phase(nodes, "other") == ""
    assert told.pods == [("web", None)]


class Silent(Late):
    """A cluster that takes no sign of life."""

    def live(self, node: str, incarnation: int, **more: Any) -> Any:
        raise ApiError(grpc.StatusCode.UNAVAILABLE, "nobody is there")


def test_a_sign_of_life_that_nobody_took_is_told(nodes: NodesOverModel) -> None:
    told = Told()
    incarnation = nodes.begin(registration("one", "a")).incarnation
    with reporting(Silent(nodes), told, incarnation):
        until(lambda: told.unanswered == 1)
    taken, answers = Told(), Late(nodes)
    answers.go_on.set()
    with reporting(answers, taken, incarnation):
        until(lambda: answers.asked == 1)
    assert taken.unanswered == 0
