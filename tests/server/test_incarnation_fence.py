"""Who says nothing of an incarnation passes only where no agent has one: over a model of etcd."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import pytest

from rayched.api.agents import INCARNATION_ANNOTATION
from rayched.api.kinds import NODE
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import NodeStatus, PodStatus
from rayched.v1.services_pb2 import NodeEvent, PodStatusUpdate
from rayched.v1.storage_pb2 import AgentRecord, SubmissionRecord
from tests.planted_bugs import planted
from tests.server.nodes_over_model import KEYS, NodesOverModel, registration
from tests.server.objects import a_node

STATE = grpc.StatusCode.FAILED_PRECONDITION


@pytest.fixture
def nodes() -> NodesOverModel:
    found = NodesOverModel()
    found.put_pod("web", "one")
    return found


def update(name: str, *, remove: bool = False) -> PodStatusUpdate:
    return PodStatusUpdate(namespace="default", name=name, uid=f"uid-{name}", status=PodStatus(phase="Running"), remove=remove)


def event(nodes: NodesOverModel) -> NodeEvent:
    now = nodes.now_ms()
    return NodeEvent(kind="Node", name="one", type="Normal", reason="Starting", first_at_ms=now, last_at_ms=now)


def refusals(nodes: NodesOverModel, incarnation: int) -> dict[str, object]:
    """Of each call that writes: the code it is refused with; None: it is taken."""

    def raised(call: Callable[[], object]) -> object:
        try:
            call()
        except ApiError as error:
            return error.code
        return None

    def outcome(found: tuple[ApiError | None, ...]) -> object:
        return None if found[0] is None else found[0].code

    nodes.put_pod("web", "one")
    return {
        "heartbeat": STATE if nodes.live("one", incarnation).superseded else None,
        "node": raised(lambda: nodes.report_node("one", incarnation, NodeStatus(phase=f"at {nodes.store.model.revision}"))),
        "pod": outcome(nodes.report_pods("one", incarnation, [update("web")])),
        "event": outcome(nodes.report_events("one", incarnation, [event(nodes)])),
    }


def test_without_an_incarnation_nothing_is_written_where_an_agent_has_one(nodes: NodesOverModel) -> None:
    nodes.begin(registration("one", ""))
    assert set(refusals(nodes, 0).values()) == {None}, "a hollow node, which has none"
    incarnation = nodes.begin(registration("one", "a")).incarnation
    assert set(refusals(nodes, 0).values()) == {STATE}
    assert set(refusals(nodes, incarnation).values()) == {None}
    assert set(refusals(nodes, incarnation - 1).values()) == {STATE}
    with planted("an older agent writes on"):
        assert set(refusals(nodes, 0).values()) == {None}, "it is the guard that refuses"


@pytest.mark.parametrize("incarnation", [-1, -(2**63)])
def test_an_incarnation_that_is_no_revision_is_refused_and_of_heartbeats_it_alone(
    nodes: NodesOverModel, incarnation: int
) -> None:
    nodes.begin(registration("one", "a"))
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    calls: dict[str, Callable[[], object]] = {
        "node": lambda: nodes.report_node("one", incarnation, NodeStatus()),
        "pod": lambda: nodes.report_pods("one", incarnation, [update("web")]),
        "event": lambda: nodes.report_events("one", incarnation, [event(nodes)]),
    }
    for call in calls.values():
        with pytest.raises(ApiError, match=f"incarnation: found {incarnation}, want 0 or the revision") as refused:
            call()
        assert refused.value.code is invalid
    assert list(nodes.live("one", incarnation).superseded) == ["one"]


def test_an_agent_of_many_nodes_reports_on_pods_of_those_alone_that_have_no_other(nodes: NodesOverModel) -> None:
    nodes.begin(registration("one", "a"))
    nodes.begin(registration("two", ""))
    nodes.put_pod("hollow", "two")
    deleted = nodes.put_pod("ends", "one")
    deleted.metadata.deletion_timestamp.seconds = 1
    nodes.put(deleted)
    outcomes = nodes.report_pods("", 0, [update("web"), update("hollow"), update("ends", remove=True)])
    assert [None if one is None else one.code for one in outcomes] == [STATE, None, STATE]
    assert nodes.stored(deleted) is not None
    with pytest.raises(ApiError, match="node: is required with incarnation 7") as refused:
        nodes.report_pods("", 7, [update("hollow")])
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT


def test_a_removal_whose_record_has_changed_is_made_again_and_nobody_is_superseded(nodes: NodesOverModel) -> None:
    incarnation = nodes.begin(registration("one", "a")).incarnation
    deleted = nodes.put_pod("ends", "one")
    deleted.metadata.deletion_timestamp.seconds = 1
    nodes.put(deleted)
    record = KEYS.submission("uid-ends")
    value = SubmissionRecord(uid="uid-ends").SerializeToString()
    nodes.store.model.put(record, value)

    def changes() -> None:
        nodes.store.model.put(record, value)

    nodes.store.before_next = changes
    assert nodes.report_pods("one", incarnation, [update("ends", remove=True)]) == (None,)
    assert nodes.stored(deleted) is None


def test_an_agent_without_an_id_takes_no_node_from_one_that_runs_pods_before_it_is_deleted(nodes: NodesOverModel) -> None:
    nodes.begin(registration("one", "a"))
    with pytest.raises(
        ApiError, match="has an agent that runs pods; one without an id has it once the node is deleted"
    ) as refused:
        nodes.begin(registration("one", ""))
    assert refused.value.code is STATE
    found = nodes.stored(a_node("one"))
    assert found is not None and found.node.metadata.annotations[INCARNATION_ANNOTATION]
    nodes.store.model.delete(KEYS.object_key(NODE, "", "one"))
    assert nodes.begin(registration("one", "")).incarnation == 0
    assert set(refusals(nodes, 0).values()) == {None}


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("agent", ["a", ""])
def test_a_registration_that_another_one_overtakes_leaves_nothing(nodes: NodesOverModel, agent: str, is_new: bool) -> None:
    if not is_new:
        nodes.begin(registration("one", ""))
    store = nodes.store
    before = nodes.stored(a_node("one"))

    def overtake() -> None:
        store.model.put(KEYS.agent("one"), AgentRecord(agent_id="b").SerializeToString())

    def after_its_record() -> None:
        store.before_next = overtake

    store.before_next = after_its_record if agent else overtake
    request = registration("one", agent)
    request.node.metadata.labels["of"] = "slower"
    with pytest.raises(ApiError, match="is registered by another call meanwhile; try again") as refused:
        nodes.begin(request)
    assert refused.value.code is grpc.StatusCode.ABORTED, "not as superseded: it may have been the same agent's own call"
    assert nodes.stored(a_node("one")) == before
