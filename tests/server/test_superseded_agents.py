"""An agent whose node another one has registered is told so, wherever it runs: both would run the same pods."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import pytest

from rayched.api.agents import INCARNATION_ANNOTATION
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.client.node_agent import NodeAgentClient, NodeState, UnreadableObject
from rayched.client.watching import Event, EventType
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Pod
from rayched.v1.services_pb2 import RegisterNodeRequest
from tests.planted_bugs import planted
from tests.server.objects import a_node, a_pod
from tests.server.serving import Serving, serving

pytestmark = pytest.mark.cluster


def registration(name: str, agent: str, machine: str, **more: object) -> RegisterNodeRequest:
    return RegisterNodeRequest(node=a_node(name, cpu="4"), agent_id=agent, machine_id=machine, **more)  # type: ignore[arg-type]


@pytest.fixture
def agent(api: Serving, name: str) -> Iterator[NodeAgentClient]:
    with NodeAgentClient(api.address, timeout_seconds=30.0, node=name) as found:
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


PATIENCE_SECONDS = 30.0


class OpenWatch:
    """A watch of a node. It is closed after a while, so that one that does not end is no riddle."""

    def __init__(self, agent: NodeAgentClient, node: str, incarnation: int) -> None:
        self._watch = agent.watch_node(node, incarnation)
        self.events: Iterator[NodeState | Event | UnreadableObject] = iter(self._watch)
        self._timer = threading.Timer(PATIENCE_SECONDS, self._watch.close)
        self._timer.daemon = True
        self._timer.start()

    def state(self) -> NodeState:
        found = next(self.events)
        assert isinstance(found, NodeState)
        return found

    def close(self) -> None:
        self._timer.cancel()
        self._watch.close()

    def pods_until_superseded(self, incarnation: int) -> list[str]:
        """Names of the pods that it tells of before it ends as over."""
        found: list[str] = []
        with pytest.raises(ApiError, match="its agent has been superseded by another one") as error:
            for event in self.events:
                pods = event.pods if isinstance(event, NodeState) else [event.object] if isinstance(event, Event) else []
                found += [one.metadata.name for one in pods if isinstance(one, Pod)]
        self.close()
        assert error.value.code is grpc.StatusCode.FAILED_PRECONDITION
        assert error.value.superseded_incarnation == incarnation
        return found


@pytest.mark.row("N7")
def test_the_watch_of_an_older_agent_ends_through_any_replica_and_shows_nothing_that_came_later(
    agent: NodeAgentClient, client: Client, etcd: EtcdServer, keys: Keys, name: str
) -> None:
    first = agent.begin(registration(name, "a", "one")).incarnation
    watch = OpenWatch(agent, name, first)
    assert watch.state().node is not None
    client.submit(a_pod(f"{name}-pod-1", node=name))
    with (
        serving(ServerOptions("127.0.0.1:0", [etcd.endpoint], keys), "replica-1") as other,
        NodeAgentClient(other.address, timeout_seconds=30.0, node=name) as second,
    ):
        incarnation = second.begin(registration(name, "b", "one", take_over=True)).incarnation
        client.submit(a_pod(f"{name}-pod-2", node=name))
        assert watch.pods_until_superseded(first) == [f"{name}-pod-1"]
        assert not OpenWatch(agent, name, first).pods_until_superseded(first)
        present = OpenWatch(second, name, incarnation)
        assert len(present.state().pods) == 2
        present.close()
        # Who says nothing of an incarnation is not this agent either.
        assert not OpenWatch(second, name, 0).pods_until_superseded(0)
        with planted("an older agent writes on"):
            unguarded = OpenWatch(agent, name, first)
            assert len(unguarded.state().pods) == 2, "it is the guard that refuses"
            unguarded.close()


def test_a_watch_goes_on_whatever_else_is_written_into_the_node(agent: NodeAgentClient, client: Client, name: str) -> None:
    watch = OpenWatch(agent, name, agent.begin(registration(name, "a", "one")).incarnation)
    assert watch.state().node is not None
    node = client.get("node", name)
    # It is not true, and the node's agent is who it was.
    node.metadata.annotations[INCARNATION_ANNOTATION] = "1"
    client.apply(node)
    client.submit(a_pod(f"{name}-pod", node=name))
    kinds = []
    while len(kinds) < 2:
        event = next(watch.events)
        assert isinstance(event, Event)
        kinds.append(type(event.object).__name__)
    assert kinds == ["Node", "Pod"]
    watch.close()


def test_the_watch_ends_also_where_the_node_was_deleted_in_between(agent: NodeAgentClient, client: Client, name: str) -> None:
    first = agent.begin(registration(name, "a", "one")).incarnation
    watch = OpenWatch(agent, name, first)
    assert watch.state().node is not None
    client.delete("node", name)
    gone = next(watch.events)
    assert isinstance(gone, Event) and gone.type is EventType.DELETED, "nobody else has it yet"
    agent.begin(registration(name, "b", "two"))
    assert not watch.pods_until_superseded(first)
    client.delete("node", name)
    client.submit(a_pod(f"{name}-pod", node=name))
    assert not OpenWatch(agent, name, first).pods_until_superseded(first), "though there is no node that says so"
