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


@pytest.mark.parametrize(
    ("first", "last", "wrong"),
    [
        (0, 0, ""),
        (-6 * DAY_MS, 0, ""),
        (-6 * DAY_MS, -5 * DAY_MS, ""),
        (500_000, 500_000, ""),
        (-8 * DAY_MS, 0, "first_at_ms"),
        (-8 * DAY_MS, -8 * DAY_MS, "first_at_ms"),
        (0, 700_000, "last_at_ms"),
        (0, 10**17, "last_at_ms"),
        (1000, 0, "first_at_ms"),
    ],
)
def test_times_lie_around_now(nodes: NodesOverModel, first: int, last: int, wrong: str) -> None:
    incarnation = nodes.begin(registration("one", "a")).incarnation
    nodes.put_pod("a", "one")
    now = nodes.now_ms()
    (outcome,) = nodes.report_events("one", incarnation, [event("a", now + first, now + last)])
    if wrong:
        assert outcome is not None and outcome.code is INVALID and outcome.message.startswith(f"events.{wrong}: found ")
        assert nodes.events() == []
    else:
        assert outcome is None
        (found,) = nodes.events()
        assert (found.first_timestamp.seconds, found.last_timestamp.seconds) == ((now + first) // 1000, (now + last) // 1000)


def test_an_event_without_a_time_is_refused(nodes: NodesOverModel) -> None:
    incarnation = nodes.begin(registration("one", "a")).incarnation
    nodes.put_pod("a", "one")
    assert codes(nodes.report_events("one", incarnation, [event("a", 0)])) == [INVALID]


def test_of_a_pod_the_uid_is_told_as_another_may_have_its_name(nodes: NodesOverModel) -> None:
    incarnation = nodes.begin(registration("one", "a")).incarnation
    nodes.put_pod("a", "one")
    now = nodes.now_ms()
    missing, other, right = nodes.report_events(
        "one", incarnation, [event("a", now, uid=""), event("a", now, uid="another"), event("a", now)]
    )
    assert missing is not None and missing.code is INVALID and missing.message.startswith("events.uid: is required of a pod")
    assert other is not None and other.code is grpc.StatusCode.NOT_FOUND and right is None
    of_node = NodeEvent(kind="Node", name="one", type="Normal", reason="Starting", first_at_ms=now, last_at_ms=now)
    assert codes(nodes.report_events("one", incarnation, [of_node])) == [None], "of its own node it need not be"
