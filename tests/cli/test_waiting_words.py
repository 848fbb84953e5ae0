"""What a command says while it waits: whoever looks at a silent terminal does not know what is missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import grpc
import pytest

from rayched.api.kinds import AnyObject
from rayched.cli import connection
from rayched.cli.nodes import node_commands
from rayched.cli.work import pod_patience, run_command
from rayched.cli.work.following import follow_pod
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.services_pb2 import SubmitResponse
from rayched.v1.workloads_pb2 import Object
from tests.cli.cluster import run_here


def test_hollow_nodes_say_which_replicas_they_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LISTENS_SECONDS", 0.1)
    monkeypatch.setattr(node_commands, "_PATIENCE_SECONDS", 1.0)
    result = run_here(["hollow-nodes", "1", "--server", "127.0.0.1:1,127.0.0.1:2"])
    first, last = result.errors
    assert first == "waiting for a replica at 127.0.0.1:1, 127.0.0.1:2, for 1 s at most"
    assert last.startswith("error: no rayched answers at 127.0.0.1:1, 127.0.0.1:2; ")
    assert (result.code, result.out) == (1, "")


def test_a_command_that_does_not_wait_longer_says_only_how_it_ended() -> None:
    (line,) = run_here(["get", "pods", "--server", "127.0.0.1:1"]).errors
    assert line.startswith("error: no rayched answers at 127.0.0.1:1; ")


def a_pod(node: str = "", phase: str = "Pending", message: str = "", reason: str = "Unschedulable") -> Pod:
    pod = Pod(metadata={"name": "hi", "namespace": "default", "uid": "1"}, spec={"node_name": node}, status={"phase": phase})
    pod.spec.containers.add(name="hi")
    if message:
        pod.status.conditions.add(type="PodScheduled", status="False", reason=reason, message=message)
    return pod


class SlowCluster:
    """A cluster of one pod, whose states are shown one by one, and of one node."""

    def __init__(self, states: list[Pod], node: Node | None = None) -> None:
        self.states = states
        self.node = node
        self.told: list[str] = []

    def wait_for(self, *_: Any, until: Callable[[AnyObject | None], bool], **__: Any) -> Pod:
        for state in self.states:
            seen = len(self.told)
            if until(state):
                return state
            for _ in range(200):
                if len(self.told) > seen:
                    break
                time.sleep(0.01)
        raise KeyboardInterrupt

    def get(self, *_: Any) -> Node:
        if self.node is None:
            raise ApiError(grpc.StatusCode.NOT_FOUND, "Node n-1 not found")
        return self.node

    def submit(self, item: Object, **_: Any) -> SubmitResponse:
        return SubmitResponse(uid="1", object=item)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_patience, "QUIET_SECONDS", 0.02)
    monkeypatch.setattr(pod_patience, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(pod_patience, "missing_scheduler", lambda *_: "")


def said(monkeypatch: pytest.MonkeyPatch, cluster: SlowCluster) -> list[str]:
    monkeypatch.setattr(pod_patience, "note", cluster.told.append)
    follow_pod(cluster, "hi", "default", "1", 1e9)  # type: ignore[arg-type]
    return cluster.told


def not_ready() -> Node:
    node = Node(metadata={"name": "n-1"})
    node.status.conditions.add(type="Ready", status="Unknown")
    return node


@pytest.mark.usefixtures("quick")
def test_why_a_pod_does_not_run_is_said_and_again_when_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    full = a_pod(message="0/3 nodes are available: 3 Insufficient cpu.")
    cluster = SlowCluster([a_pod(), full, a_pod(), a_pod("n-1"), a_pod("n-1", "Succeeded")], not_ready())
    assert said(monkeypatch, cluster) == [
        "waiting for pod default/hi: Pending, no node is chosen yet",
        "waiting for pod default/hi: Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.",
        "waiting for pod default/hi: Pending, no node is chosen yet",
        "waiting for pod default/hi: it is bound to node n-1, which is not Ready",
    ]


@pytest.mark.usefixtures("quick")
def test_a_pod_on_a_node_that_is_gone_and_one_whose_image_is_missing_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = said(monkeypatch, SlowCluster([a_pod("n-1"), a_pod("n-1", "Failed")]))
    assert line == "waiting for pod default/hi: it is bound to node n-1, which is not there any more"
    ready, pulling = Node(metadata={"name": "n-1"}), a_pod("n-1")
    ready.status.conditions.add(type="Ready", status="True")
    pulling.status.container_statuses.add(name="hi").state.waiting.reason = "ImagePullBackOff"
    (line,) = said(monkeypatch, SlowCluster([pulling, a_pod("n-1", "Succeeded")], ready))
    assert line == "waiting for pod default/hi: it is bound to node n-1, which has not started it yet (ImagePullBackOff)"


def test_a_pod_that_runs_soon_is_no_word_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_patience, "QUIET_SECONDS", 60.0)
    cluster = SlowCluster([a_pod("n-1", "Succeeded")], not_ready())
    assert said(monkeypatch, cluster) == []


@pytest.mark.parametrize(
    ("words", "last"),
    [
        ("run hi --image=x -- echo hi", "pod default/hi stays; delete it with: rayched delete pod hi"),
        ("run hi -n shop -- echo hi", "pod shop/hi stays; delete it with: rayched delete pod hi -n shop"),
        ("run hi --count 2 -- echo hi", "job default/hi stays; delete it with: rayched delete job hi"),
    ],
)
def test_who_interrupts_a_run_hears_what_stays_and_how_it_is_deleted(
    monkeypatch: pytest.MonkeyPatch, words: str, last: str
) -> None:
    monkeypatch.setattr(run_command, "connected", lambda _, **__: nullcontext(SlowCluster([])))
    result = run_here(words.split())
    assert (result.code, result.errors) == (130, [last])
