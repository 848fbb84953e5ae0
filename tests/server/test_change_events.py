"""What a selection sees of a change: which event, with which object, at which revision; and how often it is encoded."""

from __future__ import annotations

import pytest

from rayched.api.kinds import AnyObject, of_message, wrap
from rayched.server.watching import changes
from rayched.server.watching.changes import LARGE_BYTES, LARGE_DECODED_KEPT, EventEncoder, ObjectChange, bookmark, up_to
from rayched.server.watching.selection import Selection, select
from rayched.store.codec import encode
from rayched.store.entries import Entry
from rayched.store.keys import Keys
from rayched.v1.services_pb2 import WatchEvent, WatchResponse
from tests.server.objects import a_node, a_pod

KEYS = Keys()
ALL = select("Pod", "", "", "")
BLUE = select("Pod", "", "color=blue", "")
COLORED = select("Pod", "", "color", "")
ON_A = select("Pod", "", "", "spec.nodeName=a")
BROKEN = "broken"


def an_entry(message: AnyObject, created: int, revision: int, value: bytes | None = None) -> Entry:
    metadata = message.metadata
    key = KEYS.object_key(of_message(message), metadata.namespace, metadata.name)
    return Entry(key, encode(wrap(message)) if value is None else value, created, revision)


def a_version(color: str | None, revision: int) -> Entry | None:
    """A pod of that color at that revision; the one called broken cannot be read."""
    if color is None:
        return None
    pod = a_pod("web", namespace="default", labels={"color": color})
    return an_entry(pod, 5, revision, b"\xff\xff" if color == BROKEN else None)


def a_change(before: Entry | None, after: Entry | None, revision: int = 9) -> ObjectChange:
    entry = after or before
    assert entry is not None
    key = KEYS.parse(entry.key)
    assert key is not None
    return ObjectChange(key, revision, before, after)


def event(encoded: bytes | None) -> WatchEvent | None:
    if encoded is None:
        return None
    (found,) = WatchResponse.FromString(encoded).events
    return found


def told(encoded: bytes | None) -> str | None:
    """Type, color and revisions of the event."""
    found = event(encoded)
    if found is None:
        return None
    metadata = found.object.pod.metadata
    return f"{WatchEvent.Type.Name(found.type)} {metadata.labels['color']} {metadata.resource_version} at {found.revision}"


@pytest.mark.parametrize(
    ("before", "after", "for_all", "for_blue"),
    [
        (None, "blue", "ADDED blue 9 at 9", "ADDED blue 9 at 9"),
        (None, "red", "ADDED red 9 at 9", None),
        ("blue", "blue", "MODIFIED blue 9 at 9", "MODIFIED blue 9 at 9"),
        ("blue", "red", "MODIFIED red 9 at 9", "DELETED blue 9 at 9"),
        ("red", "blue", "MODIFIED blue 9 at 9", "ADDED blue 9 at 9"),
        ("red", "green", "MODIFIED green 9 at 9", None),
        ("blue", None, "DELETED blue 9 at 9", "DELETED blue 9 at 9"),
        ("red", None, "DELETED red 9 at 9", None),
        (BROKEN, "blue", "ADDED blue 9 at 9", "ADDED blue 9 at 9"),
        ("blue", BROKEN, "DELETED blue 9 at 9", "DELETED blue 9 at 9"),
        (BROKEN, BROKEN, None, None),
        (None, BROKEN, None, None),
        (BROKEN, None, None, None),
    ],
)
def test_an_object_comes_changes_and_goes_for_each_selection(
    before: str | None, after: str | None, for_all: str | None, for_blue: str | None
) -> None:
    for selections in ((ALL, BLUE), (BLUE, ALL)):
        encoder, change = EventEncoder(), a_change(a_version(before, 8), a_version(after, 9))
        for selection in selections:
            assert told(encoder.encode(change, selection)) == (for_all if selection is ALL else for_blue)


def test_the_decoded_object_keeps_its_own_version_when_its_deletion_is_told() -> None:
    encoder, before = EventEncoder(), a_version("blue", 8)
    assert before is not None
    encoder.encode(a_change(before, None), BLUE)
    assert encoder.decode(before).pod.metadata.resource_version == "8"


@pytest.mark.parametrize("selections", [(ALL, ALL), (BLUE, BLUE), (BLUE, COLORED)])
def test_an_event_is_encoded_once_for_all_who_see_it_alike(selections: tuple[Selection, Selection]) -> None:
    encoder = EventEncoder()
    for before in (None, a_version("blue", 8)):
        change = a_change(before, a_version("blue", 9))
        first, second = (encoder.encode(change, selection) for selection in selections)
        assert first is not None and first is second


@pytest.mark.parametrize("selection", [ALL, select("Node", "", "", "")])
def test_other_kinds_come_and_go_as_pods_do(selection: Selection) -> None:
    for kind, before, after in (
        (WatchEvent.ADDED, None, an_entry(a_node("a"), 9, 9)),
        (WatchEvent.MODIFIED, an_entry(a_node("a", cpu="2"), 8, 8), an_entry(a_node("a"), 8, 9)),
        (WatchEvent.DELETED, an_entry(a_node("a"), 8, 8), None),
    ):
        found = event(EventEncoder().encode(a_change(before, after), selection))
        assert found is not None and (found.type, found.object.node.metadata.name, found.revision) == (kind, "a", 9)
        assert found.object.node.status.capacity["cpu"].string == "4"


def test_nothing_is_learnt_from_a_pod_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next one that is broken in the same way would be told of."""
    encoder = EventEncoder()
    for name in ("web-1", "web-2"):
        pod = a_pod(name, namespace="default", uid=f"uid-{name}")
        pod.metadata.creation_timestamp.seconds = 1_800_000_000
        good = encode(wrap(pod))
        # The image is no text.
        bad = good.replace(b"nginx:1", b"nginx:\xff")
        assert len(bad) == len(good) and bad != good
        assert encoder.encode(a_change(None, an_entry(pod, 9, 9, bad)), ALL) is None


@pytest.mark.parametrize(
    ("color", "node", "selection", "is_told"),
    [
        ("blue", "", ALL, True),
        ("blue", "", BLUE, True),
        ("red", "", BLUE, False),
        (BROKEN, "", ALL, False),
        (BROKEN, "", BLUE, False),
        ("blue", "a", ON_A, True),
        ("blue", "b", ON_A, False),
    ],
)
def test_what_was_there_before_the_watch_is_added(color: str, node: str, selection: Selection, is_told: bool) -> None:
    pod = a_pod("web", namespace="default", labels={"color": color}, node=node)
    entry = an_entry(pod, 5, 7, b"\xff\xff" if color == BROKEN else None)
    assert told(EventEncoder().encode_initial(entry, selection)) == ("ADDED blue 7 at 7" if is_told else None)


def test_the_message_of_an_entry_is_none_where_there_is_none_that_can_be_read() -> None:
    encoder, entry = EventEncoder(), a_version("blue", 8)
    message = encoder.message(entry)
    assert message is not None and message.metadata.name == "web" and encoder.message(entry) is message
    assert encoder.message(None) is None and encoder.message(a_version(BROKEN, 8)) is None


@pytest.mark.parametrize(("before", "after"), [(0, 0), (100, 0), (0, 7), (100, 7)])
def test_the_size_of_a_change_counts_each_version_and_its_encoding(before: int, after: int) -> None:
    key = KEYS.parse(KEYS.object_key(of_message(a_pod()), "default", "web"))
    assert key is not None
    old, new = (Entry(b"key", b"x" * size, 1, 1) if size else None for size in (before, after))
    assert ObjectChange(key, 9, old, new).size == 2 * (before + after) + 400


def test_an_object_of_just_the_large_size_counts_as_small() -> None:
    encoder, seen = EventEncoder(), []
    for number in range(LARGE_DECODED_KEPT + 1):
        pod = a_pod(f"pod-{number:04}", namespace="default")
        pod.metadata.annotations["text"] = "x" * (LARGE_BYTES - 200)
        pod.metadata.annotations["text"] += "x" * (LARGE_BYTES - len(encode(wrap(pod))))
        entry = an_entry(pod, 1, 1)
        assert len(entry.value) == LARGE_BYTES
        seen.append((entry, encoder.decode(entry)))
    assert all(encoder.decode(entry) is item for entry, item in seen)


@pytest.mark.parametrize("revision", [1, 127, 128, 1 << 40])
def test_responses_without_objects_say_up_to_where_all_was_sent(revision: int) -> None:
    found = WatchResponse.FromString(bookmark(revision))
    assert found.revision == revision
    assert [(one.type, one.revision) for one in found.events] == [(WatchEvent.BOOKMARK, revision)]
    appended = EventEncoder().encode(a_change(None, a_version("blue", 9)), BLUE)
    assert appended is not None
    whole = WatchResponse.FromString(appended + up_to(revision))
    assert whole.revision == revision and len(whole.events) == 1


def test_what_is_in_the_frame_is_as_protobuf_would_encode_it() -> None:
    entry = a_version("blue", 300)
    assert entry is not None
    item = EventEncoder().decode(entry)
    for kind, before in ((WatchEvent.ADDED, None), (WatchEvent.MODIFIED, a_version("blue", 299))):
        expected = WatchResponse(events=[WatchEvent(type=kind, object=item, revision=300)])
        encoded = changes.EventEncoder().encode(a_change(before, entry, 300), BLUE)
        assert encoded is not None and WatchResponse.FromString(encoded) == expected
