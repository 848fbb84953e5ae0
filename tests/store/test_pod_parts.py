"""The parts of a stored pod, of any length and with any label, are those that its message has."""

from __future__ import annotations

import pytest

from rayched.api.kinds import wrap
from rayched.store.codec import encode
from rayched.store.pod_parts import VALUE_BYTES_MAX, PlainPod, plain_pod
from rayched.v1.core_pb2 import Pod


def a_pod(name: str = "web", image: str = "i", **labels: str) -> Pod:
    pod = Pod(api_version="v1", kind="Pod")
    pod.metadata.name, pod.metadata.namespace, pod.metadata.uid = name, "default", f"uid-{name}"
    pod.metadata.labels.update(labels)
    pod.spec.containers.add(name="main", image=image)
    return pod


def assert_its_parts(pod: Pod) -> PlainPod:
    found = plain_pod(encode(wrap(pod)))
    assert found is not None
    metadata = pod.metadata
    assert (found.name.decode(), found.uid.decode(), found.namespace.decode()) == (
        metadata.name,
        metadata.uid,
        metadata.namespace,
    )
    assert found.labels == dict(metadata.labels)
    assert found.spec == pod.spec.SerializeToString(deterministic=True)
    kept = Pod()
    kept.metadata.MergeFromString(found.kept)
    assert dict(kept.metadata.labels) == found.labels and kept.metadata.namespace == metadata.namespace
    bare = Pod()
    bare.metadata.MergeFromString(found.unlabelled)
    assert not bare.metadata.labels and bare.metadata.namespace == metadata.namespace
    return found


@pytest.mark.parametrize("labelled", [False, True])
def test_a_pod_of_any_length_is_cut_into_its_parts(labelled: bool) -> None:
    """Among them all lengths at which one of the lengths within becomes a byte longer."""
    for length in (*range(260), 8_000 // 2):
        assert_its_parts(a_pod(image="i" * length, **({"app": "web"} if labelled else {})))
    for length in (1, 126, 127, 128, 129, 253):
        assert_its_parts(a_pod(name="n" * length, **({"app": "web"} if labelled else {})))


@pytest.mark.parametrize("length", [0, 1, 60, 110, 111, 112, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 300, 1269])
def test_a_label_is_read_where_it_is_below_128_bytes_and_left_to_messages_else(length: int) -> None:
    """The second key has bytes at which a reading that takes a long one for a short one would find another entry."""
    several = [{key: "v" * length, "zone": "west"} for key in ("app", "a" * 9 + "\x12w")]
    for labels in (*several, {"k" * length: "v"}):
        pod = a_pod(**labels)
        if all(4 + len(key) + len(value) < 128 for key, value in labels.items()):
            assert_its_parts(pod)
        else:
            assert plain_pod(encode(wrap(pod))) is None


def test_a_value_that_is_too_long_is_left_to_messages() -> None:
    assert plain_pod(encode(wrap(a_pod(image="i" * (VALUE_BYTES_MAX - 200))))) is not None
    assert plain_pod(encode(wrap(a_pod(image="i" * VALUE_BYTES_MAX)))) is None


def test_of_its_owners_the_controller_is_kept() -> None:
    pod = a_pod(app="web")
    pod.metadata.owner_references.add(name="other", kind="Whatever", uid="v")
    pod.metadata.owner_references.add(name="web", kind="ReplicaSet", uid="u", controller=True)
    found = assert_its_parts(pod)
    for part in (found.kept, found.unlabelled):
        kept = Pod()
        kept.metadata.MergeFromString(part)
        assert [owner.name for owner in kept.metadata.owner_references] == ["web"]


@pytest.mark.parametrize("fields", [{"api_version": "v2"}, {"kind": "Pot"}, {"api_version": "v1beta"}, {"kind": ""}])
def test_what_calls_itself_something_else_than_a_pod_is_left_to_messages(fields: dict[str, str]) -> None:
    pod = a_pod()
    for field, value in fields.items():
        setattr(pod, field, value)
    assert plain_pod(encode(wrap(pod))) is None
    pod.ClearField("api_version")
    pod.ClearField("kind")
    assert_its_parts(pod)
