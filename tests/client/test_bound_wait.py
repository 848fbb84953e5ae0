"""Waiting for bindings, without a server: which events end the wait, and how."""

from __future__ import annotations

import pytest

from rayched.client import ApiError, Event, EventType, NotBound, Submitted
from rayched.client.bindings import BoundWait
from rayched.v1.core_pb2 import Pod
from rayched.v1.services_pb2 import SubmitResponse
from tests.server.objects import a_node, a_pod

END = Event(EventType.BOOKMARK, None, 9)


def seen(name: str, *, node: str = "", uid: str = "", phase: str = "", why: str = "", namespace: str = "default") -> Event:
    pod = a_pod(name, node=node, uid=uid, namespace=namespace)
    pod.status.phase = phase
    if why:
        pod.status.conditions.add(type="PodScheduled", status="False", reason="Unschedulable", message=why)
    return Event(EventType.MODIFIED, pod, 5)


def gone(name: str, *, uid: str = "") -> Event:
    return Event(EventType.DELETED, a_pod(name, uid=uid, namespace="default"), 6)


def test_all_pods_come_back_in_the_order_asked_for() -> None:
    wait = BoundWait(["b", "other/a", a_pod("c", uid="u3")], "default")
    for event in (seen("a", node="n1", namespace="other"), seen("c", uid="u3"), seen("b", node="n2"), END):
        wait.see(event)
    assert not wait.is_done()
    wait.see(seen("c", node="n3", uid="u3"))
    assert wait.is_done()
    assert [pod.spec.node_name for pod in wait.result()] == ["n2", "n1", "n3"]


def test_another_pod_of_the_same_name_does_not_count() -> None:
    wait = BoundWait(Submitted("u1", 1, (), None, "Pod", "default", "web"), "default")
    wait.see(seen("web", node="n1", uid="u2"))
    wait.see(gone("web", uid="u2"))
    assert not wait.is_done()
    with pytest.raises(NotBound, match="deleted"):
        wait.see(gone("web", uid="u1"))


def test_a_pod_whose_name_the_server_chose_is_known_by_its_uid() -> None:
    wait = BoundWait([Submitted("u1", 1, (), None, "Pod", "default", "")], "default")
    wait.see(seen("web-x7k2p", node="n1", uid="u1"))
    assert [pod.metadata.name for pod in wait.result()] == ["web-x7k2p"]


def test_what_was_submitted_beside_pods_is_not_waited_for() -> None:
    response = SubmitResponse(uid="u1")
    response.object.pod.CopyFrom(a_pod("web", uid="u1"))
    wait = BoundWait([Submitted("u0", 1, (), None, "Node", "", "n1"), response], "default")
    wait.see(seen("web", node="n1", uid="u1"))
    assert wait.is_done()
    assert BoundWait([], "default").is_done()
    with pytest.raises(ValueError, match="no pod"):
        BoundWait(a_node("n1"), "default")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("references", "namespace", "selector"),
    [
        (["web"], "default", "metadata.name=web"),
        (["web", "db"], "default", ""),
        (["web", "other/db"], "", ""),
        ([Submitted("u1", 1, (), None, "Pod", "default", "")], "default", ""),
    ],
)
def test_the_watch_sees_as_few_pods_as_it_can(references: list[str], namespace: str, selector: str) -> None:
    request = BoundWait(references, "default").request()
    assert (request.namespace, request.field_selector) == (namespace, selector)


def test_why_pods_are_not_bound_in_time_is_told_in_one_line() -> None:
    wait = BoundWait([f"pod-{i}" for i in range(5)], "default")
    for event in (seen("pod-0", node="n1"), *(seen(f"pod-{i}", why="0/3 nodes are available.") for i in range(1, 5)), END):
        wait.see(event)
    failure = wait.too_late(2.0)
    one = "0/3 nodes are available."
    assert str(failure) == (
        f"4 of 5 pods are not bound after 2 s: default/pod-1: {one}; default/pod-2: {one}; default/pod-3: {one}; and 1 more"
    )
    assert list(failure.bound) == ["default/pod-0"] and len(failure.pending) == 4


def test_a_pod_that_is_missing_or_over_ends_the_wait_at_once() -> None:
    wait = BoundWait(["web", "db"], "default")
    wait.see(seen("web"))
    with pytest.raises(ApiError, match=r'pod "default/db" not found \(NOT_FOUND\)'):
        wait.see(END)
    with pytest.raises(NotBound, match="ended before it was bound: Failed"):
        wait.see(seen("db", phase="Failed"))


def test_a_pod_that_is_bound_and_then_deleted_was_bound() -> None:
    wait = BoundWait(Pod(metadata=a_pod("web").metadata), "default")
    wait.see(seen("web", node="n1"))
    wait.see(gone("web"))
    assert wait.is_done()
