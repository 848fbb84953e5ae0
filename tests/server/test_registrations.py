"""What a registration leaves of a node that is there: over a model of etcd."""

from __future__ import annotations

import pytest

from rayched.v1.core_pb2 import Node
from rayched.v1.services_pb2 import RegisterNodeRequest
from tests.server.nodes_over_model import NodesOverModel, identity
from tests.server.objects import a_node

KINDS = ("Ready", "MemoryPressure")


@pytest.fixture
def nodes() -> NodesOverModel:
    return NodesOverModel(identity("one"))


def a_healthy_node(*kinds: str) -> Node:
    node = a_node("one")
    del node.status.conditions[:]
    for kind in kinds:
        node.status.conditions.add(type=kind, status="True" if kind == "Ready" else "False", reason="AsItBegins")
    return node


def conditions(nodes: NodesOverModel) -> dict[str, str]:
    found = nodes.stored(a_node("one"))
    assert found is not None
    return {one.type: one.status for one in found.node.status.conditions}


def test_an_agent_that_registers_again_takes_no_condition_away(nodes: NodesOverModel) -> None:
    request = RegisterNodeRequest(node=a_healthy_node(*KINDS), agent_id="a")
    incarnation = nodes.begin(request).incarnation
    assert conditions(nodes) == {"Ready": "True", "MemoryPressure": "False"}, "of one that is new they are as it says"
    pressed = a_healthy_node(*KINDS).status
    pressed.conditions[1].status = "True"
    nodes.report_node("one", incarnation, pressed)
    request.node.status.conditions.add(type="DiskPressure", status="False")
    again = nodes.begin(request)
    assert {one.type: one.status for one in again.node.status.conditions} == conditions(nodes)
    assert conditions(nodes) == {"Ready": "True", "MemoryPressure": "True", "DiskPressure": "False"}
    nodes.report_node("one", again.incarnation, a_healthy_node(*KINDS).status)
    assert conditions(nodes)["MemoryPressure"] == "False", "what it tells after it has looked counts"


def test_hollow_agents_say_with_it_that_their_node_is_well(nodes: NodesOverModel) -> None:
    """They tell of nothing else afterwards."""
    nodes.identity = ""
    lost = a_healthy_node(*KINDS)
    lost.status.conditions[0].status = "Unknown"
    nodes.put(lost)
    nodes.begin(RegisterNodeRequest(node=a_healthy_node("Ready")))
    assert conditions(nodes)["Ready"] == "True"
