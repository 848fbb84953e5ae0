"""The hub alone: random changes, readers of every speed, against a plain replay of the whole history."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayched.api.kinds import EVENT, POD, wrap
from rayched.server.watching.changes import EventEncoder
from rayched.server.watching.selection import Selection, select
from rayched.server.watching.subscriptions import Batch, Loss, Lost, Subscription
from rayched.server.watching.watch_hub import HubLimits, WatchHub
from rayched.store.codec import encode
from rayched.store.entries import Deleted, Entry
from rayched.store.keys import Keys
from rayched.v1.services_pb2 import WatchEvent, WatchResponse
from tests.server.objects import a_node, a_pod

KEYS = Keys()
ALL_PODS = select("Pod", "", "", "")


@dataclass(frozen=True)
class Step:
    """One change of one pod: its new color, or None: it is deleted. `joined`: in the revision of the step before."""

    pod: int
    color: str | None
    joined: bool


steps = st.lists(st.builds(Step, st.integers(0, 4), st.sampled_from(["red", "blue", None]), st.booleans()), max_size=60)


def revisions_of(script: list[Step]) -> list[list[tuple[int, str | None]]]:
    """Groups of (pod, color), one a revision; a pod is changed at most once in it, and deleted only when it is there."""
    groups: list[list[tuple[int, str | None]]] = []
    alive: set[int] = set()
    for step in script:
        if step.color is None and step.pod not in alive:
            continue
        if not step.joined or not groups or any(pod == step.pod for pod, _ in groups[-1]):
            groups.append([])
        groups[-1].append((step.pod, step.color))
        alive = alive - {step.pod} if step.color is None else alive | {step.pod}
    return groups


def namespace_of(pod: int) -> str:
    return "other" if pod % 2 else "default"


def expected(
    groups: list[list[tuple[int, str | None]]], wanted: str, after: int, namespace: str = ""
) -> list[tuple[int, str, int]]:
    """Revision, type, pod: by replaying everything. Group i has revision 10 + i."""
    colors: dict[int, str | None] = {}
    found = []
    for index, group in enumerate(groups):
        for pod, color in group:
            before, now = colors.get(pod), color
            was = before is not None and wanted in ("", before)
            is_now = now is not None and wanted in ("", now)
            colors[pod] = color
            if 10 + index > after and (was or is_now) and namespace in ("", namespace_of(pod)):
                found.append((10 + index, "MODIFIED" if was and is_now else "ADDED" if is_now else "DELETED", pod))
    return found


def feed(hub: WatchHub, revision: int, group: Iterable[tuple[int, str | None]]) -> None:
    changes = []
    for pod, color in group:
        key = KEYS.object_key(POD, namespace_of(pod), f"pod-{pod}")
        if color is None:
            changes.append(Deleted(key, revision))
        else:
            value = encode(wrap(a_pod(f"pod-{pod}", namespace=namespace_of(pod), labels={"app": color})))
            changes.append(Entry(key, value, revision, revision))
    hub.changed(changes, revision)


def decoded(batch: Batch) -> list[tuple[int, str, int]]:
    events = [event for data in batch.events for event in WatchResponse.FromString(data).events]
    return [
        (event.revision, WatchEvent.Type.Name(event.type), int(event.object.pod.metadata.name.removeprefix("pod-")))
        for event in events
    ]


def a_hub(changes_max: int = 1000, revision: int = 9) -> WatchHub:
    hub = WatchHub(KEYS.parse, EventEncoder(), HubLimits(changes_max=changes_max))
    hub.listed((), revision)
    return hub


def drained(subscription: Subscription) -> list[tuple[int, str, int]]:
    found = []
    while True:
        batch = subscription.read()
        assert isinstance(batch, Batch)
        found += decoded(batch)
        if not batch.more:
            return found


@settings(max_examples=150, deadline=None)
@given(steps, st.data())
def test_readers_of_any_speed_see_each_change_once_in_whole_revisions(script: list[Step], data: st.DataObject) -> None:
    groups = revisions_of(script)
    hub = a_hub()
    readers: list[tuple[str, str, int, Subscription, list[tuple[int, str, int]]]] = []
    for index, group in enumerate(groups):
        if data.draw(st.booleans()):
            wanted, after = data.draw(st.sampled_from(["", "red"])), data.draw(st.integers(9, 9 + index))
            namespace = data.draw(st.sampled_from(["", "default", "other"]))
            selection = select(data.draw(st.sampled_from(["Pod", ""])), namespace, f"app={wanted}" if wanted else "", "")
            subscription = hub.subscribe(selection, after, lambda: None)
            assert subscription is not None
            readers.append((wanted, namespace, after, subscription, []))
        feed(hub, 10 + index, group)
        for wanted, namespace, after, subscription, seen in readers:
            if data.draw(st.booleans()):
                batch = subscription.read(events_max=data.draw(st.integers(1, 3)))
                assert isinstance(batch, Batch)
                seen += decoded(batch)
                assert seen == [event for event in expected(groups, wanted, after, namespace) if event[0] <= batch.revision]
    for wanted, namespace, after, subscription, seen in readers:
        assert seen + drained(subscription) == expected(groups, wanted, after, namespace)
        assert subscription.revision == max(9 + len(groups), after)


@settings(max_examples=100, deadline=None)
@given(steps, st.integers(1, 8), st.integers(0, 59))
def test_a_window_that_has_moved_on_loses_a_reader_or_gives_it_everything(script: list[Step], size: int, read_at: int) -> None:
    groups = revisions_of(script)
    hub = a_hub(changes_max=size)
    subscription = hub.subscribe(ALL_PODS, 9, lambda: None)
    assert subscription is not None
    seen: list[tuple[int, str, int]] = []
    for index, group in enumerate(groups):
        feed(hub, 10 + index, group)
        assert len(hub.window) <= size + len(group)
        if index == read_at:
            batch = subscription.read(events_max=1000)
            if isinstance(batch, Lost):
                break
            seen += decoded(batch)
    batch = subscription.read(events_max=1000)
    everything = expected(groups, "", 9)
    if isinstance(batch, Lost):
        assert batch.reason is Loss.SLOW
        assert seen == [event for event in everything if event[0] <= batch.revision]
        assert hub.subscribe(ALL_PODS, batch.revision, lambda: None) is None
    else:
        assert seen + decoded(batch) == everything


def test_the_window_is_never_cut_within_a_revision() -> None:
    hub = a_hub(changes_max=4)
    feed(hub, 10, [(1, "red")])
    feed(hub, 11, [(number, "red") for number in range(2, 6)])
    feed(hub, 12, [(1, "blue")])
    assert (hub.floor, [change.revision for change in hub.window]) == (11, [12])


def test_a_reader_of_another_kind_is_not_lost_by_what_does_not_concern_it() -> None:
    hub = a_hub(changes_max=3)
    nodes = hub.subscribe(select("Node", "", "", ""), 9, lambda: None)
    assert nodes is not None
    assert isinstance(nodes.read(), Batch)
    for revision in range(10, 40):
        feed(hub, revision, [(revision % 3, "red")])
    batch = nodes.read()
    assert isinstance(batch, Batch)
    assert (batch.events, batch.revision) == ([], 39)


def test_changes_of_one_namespace_wake_nobody_in_another_who_is_up_to_date_all_the_same() -> None:
    hub = a_hub()
    woken: list[str] = []
    readers = {
        namespace: hub.subscribe(select("Pod", namespace, "", ""), 9, lambda namespace=namespace: woken.append(namespace))
        for namespace in ("default", "other", "")
    }
    for reader in readers.values():
        assert reader is not None
        drained(reader)
    for revision in range(10, 60):
        feed(hub, revision, [(2, "red")])
    assert woken == ["default", ""]
    other = readers["other"]
    assert other is not None and not other.pending
    batch = other.read()
    assert isinstance(batch, Batch) and (batch.events, batch.revision) == ([], 59)
    feed(hub, 60, [(2, "blue"), (1, "red")])
    assert woken == ["default", "", "other"]
    assert (other.pending, other.revision) == (True, 59), "it is one revision behind"
    assert drained(other) == [(60, "ADDED", 1)]
    other.close()
    other.close()
    feed(hub, 61, [(1, "blue")])
    assert woken == ["default", "", "other"]


def test_a_reader_is_woken_once_for_its_kind_until_it_has_read() -> None:
    hub, calls = a_hub(), []
    pods = hub.subscribe(ALL_PODS, 9, lambda: calls.append("pods"))
    nodes = hub.subscribe(select("Node", "", "", ""), 9, lambda: calls.append("nodes"))
    assert pods is not None and nodes is not None
    pods.read(), nodes.read()
    feed(hub, 10, [(1, "red")])
    feed(hub, 11, [(1, "blue")])
    assert calls == ["pods"]
    pods.read()
    feed(hub, 12, [(1, "red")])
    assert calls == ["pods", "pods"]


def test_a_reader_that_begins_ahead_of_the_hub_gets_nothing_from_before() -> None:
    hub = a_hub()
    subscription = hub.subscribe(ALL_PODS, 11, lambda: None)
    assert subscription is not None
    for revision in (10, 11, 12):
        feed(hub, revision, [(revision, "red")])
    assert drained(subscription) == [(12, "ADDED", 12)]


@pytest.mark.parametrize("revision", [20, 5, 9], ids=["later", "earlier", "the same revision of another history"])
def test_a_new_list_ends_what_the_hub_no_longer_knows(revision: int) -> None:
    hub = a_hub()
    subscription = hub.subscribe(ALL_PODS, 9, lambda: None)
    assert subscription is not None
    subscription.read()
    hub.listed([Entry(KEYS.object_key(POD, "default", "other"), b"", revision, revision)], revision)
    assert subscription.read() == Lost(Loss.RELISTED, 9)
    assert hub.subscribe(ALL_PODS, revision - 1, lambda: None) is None
    assert hub.subscribe(ALL_PODS, revision, lambda: None) is not None


def test_a_list_at_the_same_revision_changes_nothing() -> None:
    hub = a_hub()
    feed(hub, 10, [(1, "red")])
    subscription = hub.subscribe(ALL_PODS, 9, lambda: None)
    assert subscription is not None
    hub.listed(tuple(hub.all_of(POD)), 10)
    assert drained(subscription) == [(10, "ADDED", 1)]


def test_a_value_that_cannot_be_read_counts_as_no_object() -> None:
    hub = a_hub()
    subscription = hub.subscribe(ALL_PODS, 9, lambda: None)
    assert subscription is not None
    feed(hub, 10, [(1, "red")])
    hub.changed([Entry(KEYS.object_key(POD, namespace_of(1), "pod-1"), b"\xff", 10, 11)], 11)
    feed(hub, 12, [(1, "red")])
    assert drained(subscription) == [(10, "ADDED", 1), (11, "DELETED", 1), (12, "ADDED", 1)]


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (select("Pod", "", "", ""), ["one", "two"]),
        (select("Pod", "kube-system", "", ""), ["two"]),
        (select("Pod", "", "app=red", "status.phase!=Running"), ["one"]),
        (select("Node", "", "", "metadata.name=node-1"), ["node-1"]),
        (select("", "", "", ""), ["node-1", "one", "two"]),
        (select("", "default", "", ""), ["one"]),
        (select("Event", "", "", ""), []),
    ],
)
def test_the_present_state_is_what_the_selection_covers_and_matches(selection: Selection, names: list[str]) -> None:
    hub = a_hub()
    one, two, node = (
        a_pod("one", namespace="default", labels={"app": "red"}),
        a_pod("two", namespace="kube-system"),
        a_node("node-1"),
    )
    entries = [
        Entry(KEYS.object_key(POD, "default", "one"), encode(wrap(one)), 3, 3),
        Entry(KEYS.object_key(POD, "kube-system", "two"), encode(wrap(two)), 4, 4),
        Entry(b"/rayched/cluster/nodes/node-1", encode(wrap(node)), 5, 5),
        Entry(KEYS.epoch, b"{}", 6, 6),
    ]
    hub.listed(entries, 9)
    encoded = [hub.encoder.encode_initial(entry, selection) for entry in hub.entries(selection)]
    events = [event for data in encoded if data is not None for event in WatchResponse.FromString(data).events]
    found = [getattr(event.object, event.object.WhichOneof("kind") or "").metadata.name for event in events]
    assert found == names
    assert EVENT.name not in {event.object.WhichOneof("kind") for event in events}


@given(st.integers(1, 2**62), st.text(max_size=300), st.booleans())
def test_an_event_is_what_protobuf_itself_would_make_of_it(revision: int, image: str, is_there: bool) -> None:
    item = wrap(a_pod("one", namespace="default"))
    item.pod.spec.containers[0].image = image
    key = KEYS.object_key(POD, "default", "one")
    entry = Entry(key, encode(item), revision, revision)
    hub = a_hub(changes_max=10, revision=0)
    hub.changed([entry] if is_there else [entry, Deleted(key, revision + 1)], revision + 1)
    reader = hub.subscribe(ALL_PODS, 0 if is_there else revision, lambda: None)
    assert reader is not None
    batch = reader.read()
    assert isinstance(batch, Batch)
    seen_at = revision if is_there else revision + 1
    item.pod.metadata.resource_version = str(seen_at)
    kind = WatchEvent.Type.ADDED if is_there else WatchEvent.Type.DELETED
    (data,) = batch.events
    assert data == WatchResponse(events=[WatchEvent(type=kind, object=item, revision=seen_at)]).SerializeToString()


NAMESPACES = ["a", "a-b", "a.b", "b"]
presence = st.lists(st.tuples(st.sampled_from(NAMESPACES), st.integers(0, 12), st.booleans()), max_size=80)


@settings(max_examples=150, deadline=None)
@given(presence, st.integers(0, 20), st.data())
def test_entries_are_those_covered_in_the_order_of_their_keys_after_any_changes(
    script: list[tuple[str, int, bool]], listed: int, data: st.DataObject
) -> None:
    """Namespaces of which one begins with the other, pods that go and come back, and a list in between."""
    hub = a_hub()
    there: dict[bytes, Entry] = {}
    for index, (namespace, pod, present) in enumerate(script):
        key, revision = KEYS.object_key(POD, namespace, f"pod-{pod}"), 10 + index
        if present:
            there[key] = Entry(key, b"", revision, revision)
            hub.changed([there[key]], revision)
        else:
            there.pop(key, None)
            hub.changed([Deleted(key, revision)], revision)
        if index == listed:
            hub.listed(data.draw(st.permutations(list(there.values()))), revision)
        if data.draw(st.booleans()):
            selection = data.draw(st.sampled_from(ENTRIES_ASKED))
            assert hub.entries(selection) == [there[key] for key in sorted(there) if wanted_key(selection, key)], selection
            assert hub.n_objects == len(there)


ENTRIES_ASKED = [
    *(select("Pod", namespace, "", "") for namespace in ["", *NAMESPACES]),
    select("", "", "", ""),
    select("", "a", "", ""),
    select("Node", "", "", ""),
    select("Pod", "a", "", "metadata.name=pod-1"),
    select("Pod", "", "", "metadata.name=pod-1"),
    select("Pod", "a", "", "metadata.name=pod-1,metadata.name=pod-2"),
    select("Pod", "a", "", "metadata.name!=pod-1"),
]


def wanted_key(selection: Selection, key: bytes) -> bool:
    """Names that are asked for are part of the key; the other selectors are still to be asked."""
    parsed = KEYS.parse(key)
    assert parsed is not None
    names = {term.value for term in selection.fields.terms if term.field == "metadata.name" and term.equal}
    return selection.covers(parsed) and all(parsed.name == name for name in names)


def test_what_a_watch_from_0_asks_of_the_hub_costs_in_proportion_to_what_it_selects() -> None:
    """30,000 pods of another namespace cost the watch of a small one, or of one pod, nothing; also while pods come."""
    hub = a_hub()
    hub.changed([Entry(KEYS.object_key(POD, "large", f"pod-{index}"), b"", 10, 10) for index in range(30_000)], 10)
    hub.changed([Entry(KEYS.object_key(POD, "small", f"pod-{index}"), b"", 11, 11) for index in range(10)], 11)

    def cpu_seconds(selection: Selection, found: int) -> float:
        began = time.thread_time()
        for turn in range(20):
            revision = hub.revision + 1
            key = KEYS.object_key(POD, "other", f"pod-{revision}")
            hub.changed([Entry(key, b"", revision, revision)], revision)
            assert len(hub.entries(selection)) == found, turn
        return time.thread_time() - began

    whole = cpu_seconds(select("Pod", "large", "", ""), 30_000)
    assert cpu_seconds(select("Pod", "small", "", ""), 10) < whole / 10
    assert cpu_seconds(select("Pod", "large", "", "metadata.name=pod-7"), 1) < whole / 10
