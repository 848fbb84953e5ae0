"""An agent whose node another one has registered is told so, wherever it runs: both would run the same pods."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.client.node_agent import NodeAgentClient
from rayched.v1.services_pb2 import RegisterNodeRequest
from tests.server.objects import a_node
from tests.server.serving import Serving

pytestmark = pytest.mark.cluster


def registration(name: str, agent: str, machine: str, **more: object) -> RegisterNodeRequest:
    return RegisterNodeRequest(node=a_node(name, cpu="4"), agent_id=agent, machine_id=machine, **more)  # type: ignore[arg-type]


@pytest.fixture
def agent(api: Serving, name: str) -> Iterator[NodeAgentClient]:
    with NodeAgentClient(api.address, timeout_seconds=5.0, node=name) as found:
        yield found


def refused(agent: NodeAgentClient, request: RegisterNodeRequest) -> ApiError:
    with pytest.raises(ApiError) as error:
        agent.begin(request)
    return error.value


@pytest.mark.row("N76")
@pytest.mark.parametrize("machine", ["one", "two"])
def test_the_first_agent_is_told_when_another_has_taken_over(agent: NodeAgentClient, name: str, machine: str) -> None:
    first = agent.begin(registration(name, "a", "one"))
    agent.begin(registration(name, "b", machine, take_over=True))
    for take_over in (False, True):
        error = refused(agent, registration(name, "a", "one", last_incarnation=first.incarnation, take_over=take_over))
        assert error.code is grpc.StatusCode.FAILED_PRECONDITION and "superseded" in error.message


@pytest.mark.row("N76")
def test_so_it_is_when_the_node_was_deleted_in_between(agent: NodeAgentClient, client: Client, name: str) -> None:
    first = agent.begin(registration(name, "a", "one"))
    client.delete("node", name)
    agent.begin(registration(name, "b", "two"))
    error = refused(agent, registration(name, "a", "one", last_incarnation=first.incarnation))
    assert error.code is grpc.StatusCode.FAILED_PRECONDITION and "superseded" in error.message


def test_its_own_registration_supersedes_nobody(agent: NodeAgentClient, name: str) -> None:
    first = agent.begin(registration(name, "a", "one"))
    again = agent.begin(registration(name, "a", "one", last_incarnation=first.incarnation))
    assert again.incarnation > first.incarnation
    # One that begins is asked for its machine as before.
    assert refused(agent, registration(name, "b", "two")).code is grpc.StatusCode.PERMISSION_DENIED
