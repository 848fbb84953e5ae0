"""Events that agents report: counted, of their own alone, and gone after their time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import grpc
import pytest

from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.client import ApiError, Client
from rayched.client.node_agent import NodeAgentClient
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.store.keys import Keys, prefix_end
from rayched.v1.core_pb2 import Event
from rayched.v1.services_pb2 import NodeEvent, RegisterNodeRequest
from tests.server.objects import a_node, a_pod
from tests.server.serving import Serving

pytestmark = pytest.mark.cluster


@pytest.fixture
def agent(api: Serving) -> Iterator[NodeAgentClient]:
    with NodeAgentClient(api.address, timeout_seconds=30.0) as found:
        yield found


def event(kind: str, name: str, uid: str = "", *, reason: str = "Started", message: str = "it runs", count: int = 0) -> NodeEvent:
    now = int(time.time() * 1000)
    return NodeEvent(
        kind=kind,
        namespace="default" if kind == "Pod" else "",
        name=name,
        uid=uid,
        type="Normal",
        reason=reason,
        message=message,
        count=count,
        first_at_ms=now,
        last_at_ms=now,
    )


def events_of(client: Client, name: str) -> list[Event]:
    return [one for one in client.list("events") if isinstance(one, Event) and one.involved_object.name == name]


def code(error: ApiError | None) -> object:
    return None if error is None else error.code


def test_what_happens_again_is_counted_and_all_of_it_goes_with_its_lease(
    client: Client, agent: NodeAgentClient, name: str, etcd: EtcdServer, keys: Keys
) -> None:
    client.register_node(a_node(name))
    uid = client.submit(a_pod(f"{name}-pod", node=name)).uid
    first = event("Pod", f"{name}-pod", uid)
    assert agent.report_events(name, 0, [first, event("Node", name, reason="Starting")]) == (None, None)
    again = event("Pod", f"{name}-pod", uid, message="it runs again", count=3)
    assert agent.report_events(name, 0, [again, again]) == (None, None), "one Event, twice in a call"
    (found,) = events_of(client, f"{name}-pod")
    assert (found.reason, found.message, found.count) == ("Started", "it runs again", 7)
    assert (found.source.component, found.source.host) == ("rayched-node", name)
    assert found.involved_object.uid == uid and found.first_timestamp.seconds == first.first_at_ms // 1000
    (of_node,) = events_of(client, name)
    assert of_node.involved_object.kind == "Node" and of_node.metadata.namespace == "default"
    with open_channel([etcd.endpoint]) as channel:
        prefix = keys.events_prefix
        found_keys = rpc.KVStub(channel).Range(rpc.RangeRequest(key=prefix, range_end=prefix_end(prefix))).kvs
        assert found_keys and all(one.lease for one in found_keys), "an Event without a lease stays for ever"


def test_an_agent_tells_of_its_own_alone(client: Client, agent: NodeAgentClient, name: str) -> None:
    client.register_node(a_node(name))
    here = client.submit(a_pod(f"{name}-here", node=name)).uid
    there = client.submit(a_pod(f"{name}-there", node="elsewhere")).uid
    outcomes = agent.report_events(
        name,
        0,
        [
            event("Pod", f"{name}-there", there),
            event("Pod", f"{name}-here", "another-uid"),
            event("Pod", f"{name}-gone", "7"),
            event("Node", "elsewhere"),
            event("Namespace", "default"),
            event("Pod", f"{name}-here", here, reason=""),
            event("Pod", f"{name}-here", here),
        ],
    )
    codes = grpc.StatusCode
    assert [code(one) for one in outcomes] == [
        codes.FAILED_PRECONDITION,
        codes.NOT_FOUND,
        codes.NOT_FOUND,
        codes.FAILED_PRECONDITION,
        codes.INVALID_ARGUMENT,
        codes.INVALID_ARGUMENT,
        None,
    ]
    assert f"is on node elsewhere, and the agent of {name} tells of it" in str(outcomes[0])
    assert 'events.kind: found "Namespace"' in str(outcomes[4]) and "events.reason: 0 characters" in str(outcomes[5])
    assert not events_of(client, f"{name}-there") and len(events_of(client, f"{name}-here")) == 1
    with pytest.raises(ApiError, match="at most 100 are allowed"):
        agent.report_events(name, 0, [event("Node", name)] * 101)


def test_an_older_incarnation_tells_nothing(client: Client, agent: NodeAgentClient, name: str) -> None:
    request = RegisterNodeRequest(node=a_node(name), agent_id="a")
    old = agent.begin(request).incarnation
    new = agent.begin(request).incarnation
    (refused,) = agent.report_events(name, old, [event("Node", name)])
    assert code(refused) is grpc.StatusCode.FAILED_PRECONDITION and "superseded" in str(refused)
    assert not events_of(client, name)
    assert agent.report_events(name, new, [event("Node", name)]) == (None,)
