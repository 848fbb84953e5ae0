"""An object that cannot be read is never told to a node's agent as gone: it would end a pod that is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayched.api.kinds import NODE, POD, wrap
from rayched.client.node_agent import NodeState, NodeWatch, UnreadableObject
from rayched.server.errors import ApiFailure
from rayched.server.watching.changes import EventEncoder, ObjectChange, unreadable_object
from rayched.server.watching.node_index import NodeSelection, select_node
from rayched.server.watching.selection import select
from rayched.server.watching.subscriptions import Batch, Subscription
from rayched.server.watching.watch_hub import WatchHub
from rayched.store.codec import encode
from rayched.store.entries import Deleted, Entry
from rayched.store.keys import Keys, ObjectKey
from rayched.v1 import services_pb2
from rayched.v1.services_pb2 import WatchEvent, WatchNodeRequest, WatchResponse
from tests.server.objects import a_node, a_pod

KEYS = Keys()
POD_KEY = KEYS.object_key(POD, "default", "web")
NODE_KEY = KEYS.object_key(NODE, "", "one")
BROKEN = b"\xff\xff"
NAME = "Pod default/web"


def pod_on(node: str, revision: int) -> Entry:
    return Entry(POD_KEY, encode(wrap(a_pod("web", namespace="default", node=node))), 1, revision)


def node_one(revision: int) -> Entry:
    return Entry(NODE_KEY, encode(wrap(a_node("one"))), 1, revision)


def broken(key: bytes, revision: int) -> Entry:
    return Entry(key, BROKEN, 1, revision)


def a_hub(*entries: Entry) -> WatchHub:
    hub = WatchHub(KEYS.parse, EventEncoder())
    hub.listed(entries, 5)
    return hub


def watched(hub: WatchHub, node: str, after: int = 5) -> Subscription:
    found = hub.subscribe(select_node(node), after, lambda: None)
    assert found is not None
    return found


def told(responses: Sequence[bytes]) -> list[str]:
    whole = WatchResponse.FromString(b"".join(responses))
    events = [f"{WatchEvent.Type.Name(event.type)} {event.revision}" for event in whole.events]
    return events + [f"unreadable {key.kind} {key.namespace}/{key.name}" for key in whole.unreadable]


def read(subscription: Subscription) -> list[str]:
    batch = subscription.read()
    assert isinstance(batch, Batch) and not batch.more
    return told(batch.events)


def present(hub: WatchHub, node: str) -> list[str]:
    selection = select_node(node)
    events = [hub.encoder.encode_initial(entry, selection) for entry in hub.entries(selection)]
    return told([event for event in events if event] + [unreadable_object(key, selection) for key in hub.unreadable(selection)])


def lists_again(call: Callable[[], object]) -> None:
    with pytest.raises(ApiFailure, match=r"can be read again, or is gone, at revision \d+; list again") as failure:
        call()
    assert failure.value.code is grpc.StatusCode.OUT_OF_RANGE


def test_a_pod_that_becomes_unreadable_is_told_as_there_to_its_node_alone() -> None:
    hub = a_hub(pod_on("one", 3), node_one(4))
    one, two = watched(hub, "one"), watched(hub, "two")
    hub.changed([broken(POD_KEY, 6)], 6)
    assert read(one) == ["unreadable Pod default/web"] and read(two) == []
    assert present(hub, "one") == ["ADDED 4", "unreadable Pod default/web"] and present(hub, "two") == []
    hub.changed([broken(POD_KEY, 7)], 7)
    assert present(hub, "one")[1:] == ["unreadable Pod default/web"], "its node is still known"


@pytest.mark.parametrize("end", ["read again", "gone", "elsewhere"])
def test_who_was_told_so_lists_again_when_it_is_readable_or_gone(end: str) -> None:
    hub = a_hub(pod_on("one", 3))
    one, two = watched(hub, "one"), watched(hub, "two")
    hub.changed([broken(POD_KEY, 6)], 6)
    assert read(one) and read(two) == []
    after = {"read again": pod_on("one", 7), "gone": Deleted(POD_KEY, 7), "elsewhere": pod_on("two", 7)}[end]
    hub.changed([after], 7)
    lists_again(one.read)
    if end == "elsewhere":
        lists_again(two.read)
    else:
        assert read(two) == []
    assert present(hub, "one") == {"read again": ["ADDED 7"], "gone": [], "elsewhere": []}[end]
    assert present(hub, "two") == (["ADDED 7"] if end == "elsewhere" else [])


def test_one_that_was_never_read_may_be_on_any_node() -> None:
    hub = a_hub(broken(POD_KEY, 3))
    for node in ("one", "two"):
        assert present(hub, node) == ["unreadable Pod default/web"]
    one, two = watched(hub, "one"), watched(hub, "two")
    assert read(one) == [] and read(two) == []
    woken: list[int] = []
    three = hub.subscribe(select_node("three"), 5, lambda: woken.append(3))
    assert three is not None and read(three) == []
    hub.changed([pod_on("one", 6)], 6)
    assert woken == [3]
    for each in (one, two, three):
        lists_again(each.read)
    assert present(hub, "one") == ["ADDED 6"] and present(hub, "two") == []


def test_so_it_is_for_whoever_begins_to_watch_after_it_happened() -> None:
    hub = a_hub(pod_on("one", 3))
    hub.changed([broken(POD_KEY, 6)], 6)
    hub.changed([pod_on("one", 7)], 7)
    lists_again(watched(hub, "one").read)
    assert read(watched(hub, "one", after=7)) == []


def test_a_node_that_cannot_be_read_is_no_node_that_is_gone() -> None:
    hub = a_hub(node_one(4))
    one, two = watched(hub, "one"), watched(hub, "two")
    hub.changed([broken(NODE_KEY, 6)], 6)
    assert read(one) == ["unreadable Node /one"] == present(hub, "one")
    assert read(two) == [] == present(hub, "two")
    hub.changed([node_one(7)], 7)
    lists_again(one.read)


def test_one_that_does_not_know_of_such_objects_is_told_nothing_instead_of_half() -> None:
    hub = a_hub(pod_on("one", 3))
    old = select_node("one", takes_unreadable=False)
    subscription = hub.subscribe(old, 5, lambda: None)
    assert subscription is not None
    hub.changed([broken(POD_KEY, 6)], 6)
    for call in (subscription.read, lambda: [unreadable_object(key, old) for key in hub.unreadable(old)]):
        with pytest.raises(ApiFailure, match=f"{NAME}: is there and cannot be read") as failure:
            call()
        assert failure.value.code is grpc.StatusCode.DATA_LOSS


@pytest.mark.parametrize("selection", [select_node("one"), select_node("two")], ids=["one", "two"])
def test_what_etcds_history_has_is_judged_the_same(selection: NodeSelection) -> None:
    """Nobody knows there whose it was, so all are told."""
    encoder, key = EventEncoder(), cast(ObjectKey, KEYS.parse(POD_KEY))
    event = encoder.encode(ObjectChange(key, 6, pod_on("one", 3), broken(POD_KEY, 6)), selection)
    assert event is not None and told([event]) == ["unreadable Pod default/web"]
    lists_again(lambda: encoder.encode(ObjectChange(key, 7, broken(POD_KEY, 6), None), selection))
    others = select("Pod", "", "", "")
    found = encoder.encode(ObjectChange(key, 6, pod_on("one", 3), broken(POD_KEY, 6)), others)
    assert found is not None and told([found]) == ["DELETED 6"], "who has nothing running skips it as before"


class WatchingAgent:
    """What the agent of node one believes to run there, by what it is told."""

    def __init__(self, hub: WatchHub) -> None:
        self._hub = hub
        self.pods: set[str] = set()
        self._list()

    def _list(self) -> None:
        hub, selection = self._hub, select_node("one")
        there = {key.name for entry in hub.entries(selection) if (key := KEYS.parse(entry.key)) is not None}
        hidden = {key.name for key in hub.unreadable(selection)}
        self.pods = there | (self.pods & hidden)
        self._subscription = watched(hub, "one", hub.revision)

    def read(self) -> None:
        try:
            batch = self._subscription.read()
        except ApiFailure as failure:
            assert failure.code is grpc.StatusCode.OUT_OF_RANGE
            self._subscription.close()
            self._list()
            return
        assert isinstance(batch, Batch)
        for event in WatchResponse.FromString(b"".join(batch.events)).events:
            name = event.object.pod.metadata.name
            (self.pods.discard if event.type == WatchEvent.Type.DELETED else self.pods.add)(name)


steps = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["one", "two", "", "broken", "gone"]), st.booleans()), max_size=30)
"""A pod, what becomes of it, and whether the agent reads then."""


@settings(max_examples=300, deadline=None)
@given(first=st.lists(st.sampled_from(["one", "two", "broken", "gone"]), min_size=3, max_size=3), script=steps)
def test_whatever_happens_an_agent_ends_what_is_gone_and_nothing_else(
    first: list[str], script: list[tuple[int, str, bool]]
) -> None:
    def entry(number: int, what: str, revision: int) -> Entry:
        name = f"pod-{number}"
        key = KEYS.object_key(POD, "default", name)
        pod = a_pod(name, namespace="default", node="" if what == "broken" else what)
        return Entry(key, BROKEN if what == "broken" else encode(wrap(pod)), 1, revision)

    hub = a_hub(*(entry(number, what, 3) for number, what in enumerate(first) if what != "gone"))
    agent, revision = WatchingAgent(hub), 5
    there = {f"pod-{number}": what for number, what in enumerate(first) if what != "gone"}
    ended = set[str]()
    for number, what, reads in script:
        name = f"pod-{number}"
        if what == "gone" and name not in there:
            continue
        revision += 1
        change = Deleted(KEYS.object_key(POD, "default", name), revision) if what == "gone" else entry(number, what, revision)
        hub.changed([change], revision)
        if what == "gone":
            del there[name]
        else:
            there[name] = what
        if what not in ("one", "broken"):
            ended.add(name)
        if not reads:
            continue
        goes_on = agent.pods - ended
        ended.clear()
        agent.read()
        assert goes_on <= agent.pods, "what is there all the time, readable or not, goes on"
        right = {name for name, what in there.items() if what == "one"}
        hidden = {name for name, what in there.items() if what == "broken"}
        assert right <= agent.pods <= right | hidden


class Responses:
    """A stream that gives these."""

    def __init__(self, *responses: WatchResponse) -> None:
        self._responses = responses
        self.requests: list[WatchNodeRequest] = []

    def responses(self, request: Callable[[], WatchNodeRequest]) -> Iterator[WatchResponse]:
        self.requests.append(request())
        yield from self._responses


def test_the_agent_gets_to_know_which_objects_these_are() -> None:
    bookmark = WatchResponse(events=[WatchEvent(type=WatchEvent.Type.BOOKMARK, revision=9)], revision=9)
    named = WatchResponse(unreadable=[services_pb2.ObjectKey(kind="Pod", namespace="default", name="web")])
    stream = Responses(named, bookmark, named)
    state, later = list(NodeWatch(cast(Any, stream), "one", 1))
    unreadable = UnreadableObject("Pod", "default", "web")
    assert state == NodeState(None, [], 9, frozenset({unreadable})) and later == unreadable
    assert isinstance(state, NodeState)
    assert state.hides(a_pod("web", namespace="default")) and not state.hides(a_pod("web", namespace="other"))
    assert stream.requests == [WatchNodeRequest(name="one", takes_unreadable=True, incarnation=1)]
