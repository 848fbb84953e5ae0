"""Events that agents report, over a model of etcd: each is judged alone, and shown as of a time at which it can have happened."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
import pytest

from rayched.client.errors import ApiError
from rayched.v1.services_pb2 import NodeEvent, PodStatusUpdate
from tests.server.nodes_over_model import BROKEN, NodesOverModel, identity, registration

INVALID = grpc.StatusCode.INVALID_ARGUMENT
DAY_MS = 86_400_000


@pytest.fixture
def nodes() -> NodesOverModel:
    return NodesOverModel(identity("one"))


def event(name: str, first_ms: int, last_ms: int | None = None, *, reason: str = "Started", uid: str | None = None) -> NodeEvent:
    return NodeEvent(
        kind="Pod",
        namespace="default",
        name=name,
        uid=f"uid-{name}" if uid is None else uid,
        type="Normal",
        reason=reason,
        first_at_ms=first_ms,
        last_at_ms=first_ms if last_ms is None else last_ms,
    )


def codes(outcomes: Sequence[ApiError | None]) -> list[object]:
    return [None if one is None else one.code for one in outcomes]


def test_a_pod_that_cannot_be_read_spoils_no_event_but_its_own(nodes: NodesOverModel) -> None:
    incarnation = nodes.begin(registration("one", "a")).incarnation
    for name in ("a", "c"):
        nodes.put_pod(name, "one")
    nodes.put_pod("b", "one", BROKEN)
    told = [event(name, nodes.now_ms()) for name in "abc"]
    assert codes(nodes.report_events("one", incarnation, told)) == [None, grpc.StatusCode.DATA_LOSS, None]
    assert sorted(one.involved_object.name for one in nodes.events()) == ["a", "c"]


def test_an_event_that_cannot_be_read_is_written_anew(nodes: NodesOverModel) -> None:
    incarnation = nodes.begin(registration("one", "a")).incarnation
    nodes.put_pod("a", "one")
    assert codes(nodes.report_events("one", incarnation, [event("a", nodes.now_ms())])) == [None]
    (key,) = [key for key in nodes.store.model.now if b"/events/" in key]
    nodes.store.model.put(key, BROKEN)
    assert codes(nodes.report_events("one", incarnation, [event("a", nodes.now_ms())])) == [None]
    (found,) = nodes.events()
    assert found.count == 1


def test_a_uid_that_is_none_spoils_no_report_but_its_own(nodes: NodesOverModel) -> None:
    incarnation = nodes.begin(registration("one", "a")).incarnation
    deleted = nodes.put_pod("a", "one")
    deleted.metadata.deletion_timestamp.seconds = 1
    nodes.put(deleted)
    updates = [PodStatusUpdate(namespace="default", name="a", uid=uid, remove=True) for uid in ("a\0b", "a/b", "", "uid-a")]
    assert codes(nodes.report_pods("one", incarnation, updates)) == [None, None, INVALID, None]
    assert nodes.stored(deleted) is None
