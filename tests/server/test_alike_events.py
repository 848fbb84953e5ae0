"""Events of pods that are not decoded say what decoding and encoding say."""

from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from rayched.api.kinds import POD, wrap
from rayched.server.watching import changes
from rayched.server.watching.changes import EventEncoder, ObjectChange
from rayched.server.watching.selection import select
from rayched.store.codec import encode
from rayched.store.entries import Entry
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Pod
from rayched.v1.services_pb2 import WatchEvent, WatchResponse
from rayched.v1.storage_pb2 import LeaderWrite, Stored
from rayched.v1.workloads_pb2 import Object

KEYS = Keys()
PODS = select("Pod", "", "", "")
NAMES = ("a", "b", "web-1", "web-2", "web-10")


def a_pod(name: str, namespace: str = "default", app: str = "web", seconds: int = 1_800_000_000) -> Pod:
    pod = Pod(api_version="v1", kind="Pod")
    pod.metadata.name, pod.metadata.namespace, pod.metadata.uid = name, namespace, f"uid-{name}"
    pod.metadata.labels["app"] = app
    pod.metadata.creation_timestamp.seconds = seconds
    pod.spec.containers.add(name="main", image="image").resources.requests["cpu"].string = "1"
    return pod


def bound(pod: Pod, node: str) -> bytes:
    """As a binding is written: the change stands behind what is stored."""
    change = Stored(object=Object(pod=Pod(spec={"node_name": node})))
    change.object.pod.status.conditions.add(type="PodScheduled", status="True").last_transition_time.seconds = 1_800_000_001
    change.leader_write.CopyFrom(LeaderWrite(op="bind", epoch=7, attempt=f"attempt-of-{pod.metadata.name}"))
    return encode(wrap(pod)) + change.SerializeToString()


def change_of(pod: Pod, before: bytes | None, after: bytes | None, revision: int, key_name: str = "") -> ObjectChange:
    metadata = pod.metadata
    key = KEYS.object_key(POD, metadata.namespace, key_name or metadata.name)
    parsed = KEYS.parse(key)
    assert parsed is not None
    return ObjectChange(
        parsed,
        revision,
        None if before is None else Entry(key, before, revision - 1, revision - 1),
        None if after is None else Entry(key, after, revision if before is None else revision - 1, revision),
    )


def event(encoded: bytes | None) -> WatchEvent | None:
    if encoded is None:
        return None
    (found,) = WatchResponse.FromString(encoded).events
    return found


BEHIND = {
    "nothing": b"",
    "a leader's write alone": Stored(leader_write=LeaderWrite(op="status", epoch=7)).SerializeToString(),
    "another name": Stored(object=Object(pod=Pod(metadata={"name": "other"}))).SerializeToString(),
    "a label": Stored(object=Object(pod=Pod(metadata={"labels": {"app": "db"}}))).SerializeToString(),
    "two parts": 2 * Stored(object=Object(pod=Pod(spec={"node_name": "n"}))).SerializeToString(),
    "a part behind the leader's write": Stored(leader_write=LeaderWrite(op="bind")).SerializeToString()
    + Stored(object=Object(pod=Pod(spec={"node_name": "n"}))).SerializeToString(),
    "a part, a leader's write and a part": Stored(
        object=Object(pod=Pod(spec={"node_name": "n"})), leader_write=LeaderWrite(op="bind")
    ).SerializeToString()
    + Stored(object=Object(pod=Pod(spec={"node_name": "m"}))).SerializeToString(),
    "a node name alone": Stored(object=Object(pod=Pod(spec={"node_name": "n"}))).SerializeToString(),
    "another kind": Stored(object=Object(node={"metadata": {"name": "n"}})).SerializeToString(),
    "an empty object": b"\x0a\x00",
    "no message": b"\x0a\x05xx",
    "a cut varint": b"\x0a\xff",
}
PODS_GIVEN = st.builds(
    a_pod, st.sampled_from(NAMES), st.sampled_from(["default", "other"]), st.sampled_from(["web", "web", "db"])
)
STEPS = st.lists(
    st.tuples(PODS_GIVEN, st.sampled_from(["new", "bound", "gone", "behind", "renamed", "broken"]), st.sampled_from(list(BEHIND)))
)


def step(pod: Pod, what: str, behind: str, revision: int) -> ObjectChange:
    stored = encode(wrap(pod))
    match what:
        case "new":
            return change_of(pod, None, stored, revision)
        case "bound":
            return change_of(pod, stored, bound(pod, "node-1"), revision)
        case "gone":
            return change_of(pod, stored, None, revision)
        case "renamed":
            return change_of(pod, None, stored, revision, key_name="web-9")
        case "broken":
            return change_of(pod, stored[:-1], stored, revision)
        case _:
            return change_of(pod, stored, stored + BEHIND[behind], revision)


@given(STEPS)
def test_events_are_those_of_an_encoder_that_decodes_everything(steps: list[tuple[Pod, str, str]]) -> None:
    encoder = EventEncoder()
    for revision, (pod, what, behind) in enumerate(steps, start=10):
        change = step(pod, what, behind, revision)
        found = encoder.encode(change, PODS)
        assert event(found) == event(EventEncoder().encode(step(pod, what, behind, revision), PODS))
        assert encoder.encode(change, PODS) == found


def an_encoder_that_knows(pod: Pod) -> EventEncoder:
    encoder = EventEncoder()
    assert encoder.encode(change_of(pod, None, encode(wrap(pod)), 9), PODS) is not None
    return encoder


@pytest.mark.parametrize("behind", BEHIND)
def test_whatever_was_put_behind_a_pod_that_is_known(behind: str) -> None:
    pod = a_pod("web-2")
    change = step(pod, "behind", behind, 11)
    found = an_encoder_that_knows(a_pod("web-1")).encode(change, PODS)
    assert event(found) == event(EventEncoder().encode(step(pod, "behind", behind, 11), PODS))


def test_a_pod_under_the_key_of_another_namespace_is_not_told_of() -> None:
    pod = a_pod("web-2")
    change = change_of(pod, None, encode(wrap(pod)), 11)
    change.key = change.key._replace(namespace="other")
    assert change.after is not None
    change.after = change.after._replace(key=KEYS.object_key(POD, "other", "web-2"))
    assert an_encoder_that_knows(a_pod("web-1")).encode(change, PODS) is None


# Where the uid is, bytes that are no text; where the time is, a field that does not end.
SPOILED = {
    "uid": (b"uid-web-2", b"uid-web-\xff"),
    "time": (Timestamp(seconds=1_800_000_000).SerializeToString(), b"\x08" + 5 * b"\xff"),
}


@pytest.mark.parametrize("what", SPOILED)
def test_what_cannot_be_read_is_left_to_the_decoder(what: str) -> None:
    pod = a_pod("web-2")
    encoder, good = an_encoder_that_knows(pod), encode(wrap(pod))
    bad = good.replace(*SPOILED[what])
    assert len(bad) == len(good) and bad != good
    assert encoder.encode(change_of(pod, None, bad, 11), PODS) is None
    change = change_of(pod, bad, bad + bound(pod, "node-1")[len(good) :], 12)
    assert encoder.encode(change, PODS) is None


def test_a_pod_like_one_before_and_its_binding_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = EventEncoder()
    encoder.encode(change_of(a_pod("web-1"), None, encode(wrap(a_pod("web-1"))), 10), PODS)
    monkeypatch.setattr(changes, "_encoded", None)
    pod = a_pod("web-2", seconds=1_800_000_009)
    new = event(encoder.encode(change_of(pod, None, encode(wrap(pod)), 11), PODS))
    changed = event(encoder.encode(change_of(pod, encode(wrap(pod)), bound(pod, "node-1"), 12), PODS))
    assert new is not None and changed is not None
    assert (new.type, new.revision, new.object.pod.metadata.resource_version) == (WatchEvent.ADDED, 11, "11")
    assert (changed.type, changed.revision, changed.object.pod.metadata.resource_version) == (WatchEvent.MODIFIED, 12, "12")
    assert changed.object.pod.spec.node_name == "node-1"
