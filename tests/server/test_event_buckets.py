"""Events of agents: so many a node and no more, none while etcd's space is short, and nobody else pays for them."""

from __future__ import annotations

import grpc
import pytest
from prometheus_client import REGISTRY

from rayched.client.errors import ApiError
from rayched.server.admission import event_buckets
from rayched.server.admission.event_buckets import BURST, RATE, EventBuckets
from rayched.store.space import Space, SpaceState
from rayched.v1.services_pb2 import NodeEvent
from tests.server.nodes_over_model import NodesOverModel, identity, registration


def test_a_burst_passes_and_then_so_many_a_second() -> None:
    buckets = EventBuckets()
    assert buckets.take("one", BURST - 1, 100.0) == BURST - 1
    assert buckets.take("one", 10, 100.0) == 1 and buckets.take("one", 10, 100.0) == 0
    assert buckets.seconds_until("one", 10, 100.0) == 10 / RATE and buckets.seconds_until("one", 1000, 100.0) == BURST / RATE
    assert buckets.take("two", BURST, 100.0) == BURST, "another node's is its own"
    assert buckets.take("one", 1000, 101.0) == RATE
    assert buckets.take("one", 1000, 200.0) == BURST, "it holds no more than a burst"
    assert buckets.take("one", 1, 150.0) == 0, "a clock that goes back gives nothing"


def test_no_more_nodes_are_kept_than_were_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_buckets, "NODES_MAX", 2)
    buckets = EventBuckets()
    for node in ("one", "two"):
        assert buckets.take(node, BURST, 100.0) == BURST
    assert buckets.take("one", 1, 100.0) == 0
    buckets.take("three", 1, 100.0)
    assert buckets.take("one", 1, 100.0) == 0 and buckets.take("two", BURST, 100.0) == BURST
    assert len(buckets._allowances) == 2


def happened(nodes: NodesOverModel, number: int) -> NodeEvent:
    now = nodes.now_ms()
    return NodeEvent(kind="Node", name="one", type="Normal", reason=f"R{number}", first_at_ms=now, last_at_ms=now)


@pytest.fixture
def nodes() -> NodesOverModel:
    return NodesOverModel(identity("one"))


def test_what_is_more_than_a_node_may_tell_is_refused_and_nothing_of_it_written(nodes: NodesOverModel) -> None:
    incarnation = nodes.begin(registration("one", "a")).incarnation
    told = [happened(nodes, number) for number in range(60)]
    assert nodes.report_events("one", incarnation, told) == (None,) * 60
    outcomes = nodes.report_events("one", incarnation, [happened(nodes, number) for number in range(100, 160)])
    refused = [one for one in outcomes if one is not None]
    taken = len(outcomes) - len(refused)
    # Some come free again while the calls are made.
    assert BURST - 60 <= taken < 60 and outcomes[:taken] == (None,) * taken
    for one in refused:
        assert one.code is grpc.StatusCode.RESOURCE_EXHAUSTED and one.retry_after_seconds is not None
        assert "Node one tells of more events than it may" in one.message
    assert len(nodes.events()) == 60 + taken


def given_up() -> float:
    found = REGISTRY.get_sample_value("rayched_api_events_given_up_total")
    assert found is not None
    return found


def test_none_is_taken_before_anything_else_is_refused_and_that_is_counted(nodes: NodesOverModel) -> None:
    incarnation, before = nodes.begin(registration("one", "a")).incarnation, given_up()
    nodes.gate.found(Space(SpaceState.FILLING, file_bytes=75, in_use_bytes=75, quota_bytes=100))
    with pytest.raises(ApiError, match="Events of Node one: etcd's space is kept for what matters more: 75 % of") as refused:
        nodes.report_events("one", incarnation, [happened(nodes, number) for number in range(3)])
    assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED and refused.value.retry_after_seconds == 30.0
    assert nodes.gate.refusal() is None and not nodes.events() and given_up() == before + 3


def test_none_is_taken_while_space_is_kept_and_pods_are_told_of_all_the_same(nodes: NodesOverModel) -> None:
    incarnation = nodes.begin(registration("one", "a")).incarnation
    nodes.gate.found(Space(SpaceState.TIGHT, file_bytes=90, in_use_bytes=85, quota_bytes=100))
    revision = nodes.store.model.revision
    with pytest.raises(ApiError, match="Events of Node one: etcd's space is nearly used up") as refused:
        nodes.report_events("one", incarnation, [happened(nodes, 0)])
    assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED and refused.value.retry_after_seconds == 30.0
    assert nodes.store.model.revision == revision
    assert not nodes.live("one", incarnation).superseded
    nodes.gate.found(Space(SpaceState.AMPLE, file_bytes=90, in_use_bytes=10, quota_bytes=100))
    assert nodes.report_events("one", incarnation, [happened(nodes, 0)]) == (None,)
    # It is on its way into that space, and counts.
    nodes.gate.found(Space(SpaceState.AMPLE, file_bytes=90, in_use_bytes=10, quota_bytes=500))
    nodes.report_events("one", incarnation, [happened(nodes, 1)])
    assert nodes.gate.refusal() is not None
