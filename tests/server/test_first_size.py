"""What a node may offer: no more than at first, whatever its annotation says; and one that is wrong silences nobody."""

from __future__ import annotations

import json

import grpc
import pytest

from rayched.api.kinds import wrap
from rayched.api.node_size import SIZE_ANNOTATION, size_text_fault
from rayched.api.validation import validate, validate_new, validate_update
from rayched.client.errors import ApiError
from rayched.server.admission.first_size import size_fault
from rayched.server.errors import ApiFailure
from rayched.v1.core_pb2 import Node, NodeStatus
from tests.server.api_over_model import ApiOverModel
from tests.server.nodes_over_model import NodesOverModel, identity, registration
from tests.server.objects import a_node

WRONG = {
    "": "is no JSON",
    "4": "is no object of JSON",
    "[]": "is no object of JSON",
    '{"cpu": 4}': '"cpu": is no text',
    '{"cpu": "much"}': '"cpu": ',
    '{"cpu": "-1"}': '"cpu": -1 is less than nothing',
    '{"cpu": null}': '"cpu": is no text',
    "[" * 100_000: "is no JSON",
    '{"cpu": "4"': "is no JSON",
}


def a_sized_node(text: str, cpu: str = "4") -> Node:
    node = a_node("one", cpu=cpu)
    node.metadata.annotations[SIZE_ANNOTATION] = text
    return node


def offer(cpu: str) -> NodeStatus:
    status = NodeStatus()
    status.allocatable["cpu"].string = cpu
    return status


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:16])
def test_a_wrong_annotation_allows_what_the_node_offers_now_and_no_more(text: str) -> None:
    node = a_sized_node(text)
    assert size_fault(node, {}) == "" and size_fault(node, offer("4").allocatable) == ""
    fault = size_fault(node, offer("5").allocatable)
    assert fault.startswith('status.allocatable["cpu"]: found 5, allowed is up to 4, as it offers now, for the annotation ')
    assert WRONG[text] in fault and SIZE_ANNOTATION in fault
    assert size_fault(node, offer("no quantity").allocatable) == "", "validation tells of that"


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:16])
def test_it_is_refused_where_somebody_writes_it_and_nowhere_else(text: str) -> None:
    assert WRONG[text] in size_text_fault(text)
    (error,) = validate_new(a_sized_node(text))
    assert error.path == f"metadata.annotations[{SIZE_ANNOTATION}]" and WRONG[text] in error.message
    right = a_sized_node('{"cpu": "4"}')
    (error,) = validate_update(right, a_sized_node(text))
    assert error.path == f"metadata.annotations[{SIZE_ANNOTATION}]"
    assert validate(a_sized_node(text)) == [] and validate_new(right) == []
    assert validate_update(a_sized_node(text), a_sized_node(text)) == [], "it was wrong before"
    assert validate_update(a_sized_node(text), right) == [] and validate_update(right, a_node("one")) == []


def test_a_submission_with_a_wrong_one_is_refused() -> None:
    api = ApiOverModel()
    (refused,) = api.create(a_sized_node("no sizes"))
    assert isinstance(refused, ApiFailure) and [one.field for one in refused.violations] == [
        f"metadata.annotations[{SIZE_ANNOTATION}]"
    ]
    (taken,) = api.create(a_sized_node('{"cpu": "4"}'))
    assert not isinstance(taken, ApiFailure)


@pytest.fixture
def nodes() -> NodesOverModel:
    return NodesOverModel(identity("one"))


@pytest.mark.parametrize("text", ["no sizes", json.dumps({"cpu": "1"})], ids=["wrong", "less than it offers"])
def test_an_agent_goes_on_reporting_under_it(nodes: NodesOverModel, text: str) -> None:
    incarnation = nodes.begin(registration("one", "a")).incarnation
    found = nodes.stored(a_node("one"))
    assert found is not None
    found.node.metadata.annotations[SIZE_ANNOTATION] = text
    nodes.put(found.node)
    status = NodeStatus()
    status.conditions.add(type="Ready", status="False", reason="KubeletNotReady")
    nodes.report_node("one", incarnation, status)
    found = nodes.stored(a_node("one"))
    assert found is not None and [one.status for one in found.node.status.conditions if one.type == "Ready"] == ["False"]
    with pytest.raises(ApiError) as refused:
        nodes.report_node("one", incarnation, offer("5"))
    assert refused.value.code is grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(ApiError) as refused:
        nodes.report_node("one", incarnation, offer("no quantity"))
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT


def test_an_agent_that_begins_anew_is_registered_under_a_wrong_one(nodes: NodesOverModel) -> None:
    nodes.begin(registration("one", "a"))
    found = nodes.stored(a_node("one"))
    assert found is not None
    found.node.metadata.annotations[SIZE_ANNOTATION] = "no sizes"
    nodes.put(found.node)
    again = nodes.begin(registration("one", "a"))
    assert again.incarnation and again.node.metadata.annotations[SIZE_ANNOTATION] == "no sizes", "it mends nothing itself"


def test_what_others_wrote_wrong_is_not_held_against_a_report(nodes: NodesOverModel) -> None:
    incarnation = nodes.begin(registration("one", "a")).incarnation
    found = nodes.stored(a_node("one"))
    assert found is not None
    found.node.metadata.labels["not a label!"] = "x"
    nodes.put(found.node)
    nodes.report_node("one", incarnation, NodeStatus(phase="Running"))
    assert wrap(found.node) != nodes.stored(a_node("one"))
