"""The watch of one node: its own changes alone, in order, whatever else happens; against a look at every change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayched.api.kinds import NODE, POD, AnyObject, wrap
from rayched.client import ApiError, Client
from rayched.client.node_agent import NodeAgentClient, NodeState, NodeWatch
from rayched.client.watching import Event, EventType
from rayched.server.watching.changes import EventEncoder
from rayched.server.watching.node_index import select_node
from rayched.server.watching.subscriptions import Batch, Loss, Lost, NodeSubscription, Subscription
from rayched.server.watching.watch_hub import HubLimits, WatchHub
from rayched.store.codec import encode
from rayched.store.entries import Deleted, Entry
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.services_pb2 import WatchEvent, WatchResponse
from tests.server.objects import a_node, a_pod
from tests.server.serving import Serving

KEYS = Keys()
NODES = ("one", "two", "")

steps = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from([*NODES, None]), st.booleans()),
    max_size=40,
)
"""A pod, its node from now on (None: it is deleted), and whether that is in the revision of the step before."""


def change_of(pod: int, node: str | None, revision: int) -> Entry | Deleted:
    key = KEYS.object_key(POD, "default", f"pod-{pod}")
    if node is None:
        return Deleted(key, revision)
    found = a_pod(f"pod-{pod}", namespace="default", node=node)
    return Entry(key, encode(wrap(found)), revision, revision)


def node_change(name: str, revision: int) -> Entry:
    return Entry(KEYS.object_key(NODE, "", name), encode(wrap(a_node(name))), revision, revision)


def told(events: Sequence[bytes]) -> list[tuple[int, str, str]]:
    found = []
    for data in events:
        (event,) = WatchResponse.FromString(data).events
        item: AnyObject = event.object.pod if event.object.HasField("pod") else event.object.node
        found.append((event.revision, WatchEvent.Type.Name(event.type), item.metadata.name))
    return found


def read_all(subscription: Subscription, events_max: int) -> list[tuple[int, str, str]]:
    found: list[tuple[int, str, str]] = []
    while True:
        batch = subscription.read(events_max=events_max)
        assert isinstance(batch, Batch)
        found += told(batch.events)
        if not batch.more:
            return found


@settings(max_examples=150, deadline=None)
@given(script=steps, late=st.integers(0, 20), events_max=st.integers(1, 3))
def test_it_tells_what_a_look_at_every_change_would(
    script: list[tuple[int, str | None, bool]], late: int, events_max: int
) -> None:
    """Also of what came before anybody asked for a node."""
    hub = WatchHub(KEYS.parse, EventEncoder())
    hub.listed([change for pod in (0, 1) if isinstance(change := change_of(pod, NODES[pod], 5), Entry)], 5)
    here: NodeSubscription | None = None
    expected: list[tuple[int, str, str]] = []
    found: list[tuple[int, str, str]] = []
    revision, there = 9, {0, 1}
    for number, (pod, node, joined) in enumerate(script):
        if node is None and pod not in there:
            continue
        revision += 0 if joined and revision > 9 else 1
        there = there - {pod} if node is None else there | {pod}
        hub.changed([change_of(pod, node, revision)], revision)
        if number == late:
            here = cast(NodeSubscription, hub.subscribe(select_node("one"), 5, lambda: None))
        if here is not None and number % 3 == 0:
            found += read_all(here, events_max)
    here = here or cast(NodeSubscription, hub.subscribe(select_node("one"), 5, lambda: None))
    assert isinstance(here, NodeSubscription)
    found += read_all(here, events_max)
    plain = Subscription(hub, select_node("one"), hub.first, 5, lambda: None)
    expected += read_all(plain, 1000)
    assert found == expected
    assert {key.name for key in (KEYS.parse(entry.key) for entry in hub.entries(select_node("one"))) if key is not None} == {
        name for name, kind in {name: kind for _, kind, name in [(0, "ADDED", "pod-0"), *expected]}.items() if kind != "DELETED"
    }


def test_it_is_woken_by_its_own_node_alone_and_is_not_behind_by_what_others_do() -> None:
    woken: list[str] = []
    hub = WatchHub(KEYS.parse, EventEncoder(), HubLimits(changes_max=8))
    hub.listed([], 5)
    one = hub.subscribe(select_node("one"), 5, lambda: woken.append("one"))
    two = hub.subscribe(select_node("two"), 5, lambda: woken.append("two"))
    assert one is not None and two is not None
    for subscription in (one, two):
        assert subscription.read() == Batch([], 5, False)
    for revision in range(6, 60):
        hub.changed([change_of(0, "two", revision)], revision)
        assert isinstance(two.read(), Batch)
    assert "one" not in woken and len(woken) == 54
    batch = one.read()
    assert batch == Batch([], 59, False), "its window has moved on, and it missed nothing"
    hub.changed([node_change("one", 60)], 60)
    assert woken[-1] == "one"
    for revision in range(61, 90):
        hub.changed([change_of(1, "one", revision)], revision)
    assert one.read() == Lost(Loss.SLOW, 59), "it was woken, and did not read"
    one.close()
    one.close()
    hub.changed([change_of(1, "one", 90)], 90)
    assert woken.count("one") == 2, "what is closed is not woken"
    hub.listed([], 100)
    lost = two.read()
    assert isinstance(lost, Lost) and lost.reason is Loss.RELISTED


@pytest.fixture
def agent(api: Serving) -> Iterator[NodeAgentClient]:
    with NodeAgentClient(api.address, timeout_seconds=30.0) as found:
        yield found


def next_of(events: Iterator[NodeState | Event]) -> tuple[str, str]:
    found = next(events)
    assert isinstance(found, Event) and isinstance(found.object, Pod | Node)
    return found.type.name, found.object.metadata.name


@pytest.mark.cluster
def test_a_node_and_its_pods_come_in_one_order_and_nothing_else_does(client: Client, agent: NodeAgentClient, name: str) -> None:
    here, elsewhere = f"{name}-here", f"{name}-elsewhere"
    client.register_node(a_node(here))
    client.submit(a_pod(f"{name}-a", node=here))
    client.submit(a_pod(f"{name}-b", node=elsewhere))
    watch: NodeWatch = agent.watch_node(here)
    events = iter(watch)
    state = next(events)
    assert isinstance(state, NodeState) and state.node is not None
    assert state.node.metadata.name == here and [pod.metadata.name for pod in state.pods] == [f"{name}-a"]
    client.label("node", here, add={"disk": "ssd"})
    client.submit(a_pod(f"{name}-c", node=elsewhere))
    client.submit(a_pod(f"{name}-d", node=here))
    client.delete("pod", f"{name}-a", grace_period_seconds=0)
    client.delete("node", here)
    assert [next_of(events) for _ in range(4)] == [
        ("MODIFIED", here),
        ("ADDED", f"{name}-d"),
        ("DELETED", f"{name}-a"),
        ("DELETED", here),
    ]
    watch.close()
    assert next(events, None) is None


@pytest.mark.cluster
def test_a_watch_that_begins_in_the_past_misses_nothing(client: Client, agent: NodeAgentClient, api: Serving, name: str) -> None:
    start = client.list_all("pods").revision + 1
    client.submit(a_pod(f"{name}-a", node=name))
    client.submit(a_pod(f"{name}-b", node="elsewhere"))
    client.delete("pod", f"{name}-a", grace_period_seconds=0)
    watch = agent.watch_node(name)
    watch._revision = start - 1
    events = iter(watch)
    assert [next_of(events) for _ in range(2)] == [("ADDED", f"{name}-a"), ("DELETED", f"{name}-a")]
    watch.close()
    late = agent.watch_node(name)
    late._revision = 1 << 40
    with pytest.raises(ApiError, match="is in the future"):
        next(iter(late))
    assert EventType.ADDED.name == "ADDED" and api.streams >= 0
