"""What an agent says that cannot be, or that was true a moment ago: over a model of etcd."""

from __future__ import annotations

import grpc
import pytest

from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import PodStatus
from rayched.v1.services_pb2 import PodStatusUpdate
from tests.server.nodes_over_model import NodesOverModel, identity, registration
from tests.server.objects import a_node

INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture
def nodes() -> NodesOverModel:
    return NodesOverModel(identity("one"))


@pytest.mark.row("B88")
@pytest.mark.parametrize("part", ["capacity", "allocatable"])
@pytest.mark.parametrize("amount", ["-1", "NaN", "inf", "", "4 cores", "1e", "0x10"])
def test_an_amount_that_is_none_is_refused_of_new_nodes_and_of_those_that_are_there(
    nodes: NodesOverModel, part: str, amount: str
) -> None:
    request = registration("one", "a")
    getattr(request.node.status, part)["memory"].string = amount
    with pytest.raises(ApiError) as refused:
        nodes.begin(request)
    assert refused.value.code is INVALID and nodes.stored(a_node("one")) is None
    incarnation = nodes.begin(registration("one", "a")).incarnation
    before = nodes.stored(a_node("one"))
    assert before is not None
    status = before.node.status
    getattr(status, part)["memory"].string = amount
    with pytest.raises(ApiError) as refused:
        nodes.report_node("one", incarnation, status)
    assert refused.value.code is INVALID
    after = nodes.stored(a_node("one"))
    assert after is not None and getattr(after.node.status, part)["memory"].string == "8Gi"


@pytest.mark.row("B87")
@pytest.mark.parametrize("remove", [False, True])
def test_a_pod_that_moves_between_the_look_and_the_write_is_not_written(nodes: NodesOverModel, remove: bool) -> None:
    incarnation = nodes.begin(registration("one", "a")).incarnation
    pod = nodes.put_pod("web", "one")
    if remove:
        pod.metadata.deletion_timestamp.seconds = 1
        nodes.put(pod)

    def move() -> None:
        nodes.put_pod("web", "two")

    nodes.store.before_next = move
    update = PodStatusUpdate(namespace="default", name="web", uid="uid-web", status=PodStatus(phase="Running"), remove=remove)
    (error,) = nodes.report_pods("one", incarnation, [update])
    assert error is not None
    stored = nodes.stored(pod)
    assert stored is not None and stored.pod.spec.node_name == "two" and stored.pod.status.phase != "Running"
