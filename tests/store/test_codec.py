"""Objects and the bytes in etcd."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.api import kinds
from rayched.store.codec import PoisonedObject, decode, decode_entry, decode_stored, encode, last_attempt
from rayched.store.entries import Entry
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.storage_pb2 import LeaderWrite, Stored
from rayched.v1.workloads_pb2 import Object

keys = Keys()


def a_pod(name: str = "web", namespace: str = "default") -> Pod:
    pod = Pod(api_version="v1", kind="Pod")
    pod.metadata.name = name
    pod.metadata.namespace = namespace
    pod.metadata.labels["app"] = "web"
    return pod


def test_an_object_comes_back_as_it_was_with_the_revision_of_its_key() -> None:
    pod = a_pod()
    read = decode(encode(kinds.wrap(pod)), 42)
    pod.metadata.resource_version = "42"
    assert read.pod == pod


def test_the_resource_version_is_not_stored_and_the_object_given_keeps_its_own() -> None:
    item = kinds.wrap(a_pod())
    before = encode(item)
    item.pod.metadata.resource_version = "7"
    assert encode(item) == before
    assert item.pod.metadata.resource_version == "7"


def test_the_last_leaders_write_is_kept_beside_the_object() -> None:
    write = LeaderWrite(op="bind", epoch=5, attempt="a-1", decided_at_revision=9)
    value = encode(kinds.wrap(a_pod()), write)
    assert decode_stored(value, 10).leader_write == write
    assert last_attempt(Entry(b"k", value, 1, 10)) == "a-1"
    assert last_attempt(Entry(b"k", encode(kinds.wrap(a_pod())), 1, 10)) == ""


def test_equal_objects_are_equal_bytes() -> None:
    one, other = a_pod(), a_pod()
    for label in ("b", "a"):
        one.metadata.labels[label] = "x"
    for label in ("a", "b"):
        other.metadata.labels[label] = "x"
    assert encode(kinds.wrap(one)) == encode(kinds.wrap(other))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\xff\xff\xff", "does not parse"),
        (b"", "holds no object"),
        (Stored(leader_write=LeaderWrite(op="bind")).SerializeToString(), "holds no object"),
        (encode(kinds.wrap(a_pod("db"))), "calls itself pod default/db"),
        (encode(kinds.wrap(a_pod(namespace="other"))), "calls itself pod other/web"),
        (encode(kinds.wrap(Pod())), "calls itself pod /"),
        (encode(kinds.wrap(a_pod())).replace(b"web", b"w\xffb"), "does not parse"),
    ],
)
def test_a_poisoned_value_names_its_key_and_what_is_wrong(value: bytes, reason: str) -> None:
    key = keys.object_key(kinds.POD, "default", "web")
    with pytest.raises(PoisonedObject, match=reason) as caught:
        decode_entry(Entry(key, value, 3, 8))
    assert caught.value.key == key
    assert caught.value.mod_revision == 8
    assert "/rayched/cluster/pods/default/web at revision 8" in str(caught.value)


def test_one_poisoned_object_among_many_is_set_aside_and_the_rest_is_read() -> None:
    entries = []
    for number in range(1000):
        node = Node()
        node.metadata.name = f"n-{number}"
        entries.append(Entry(keys.object_key(kinds.NODE, "", f"n-{number}"), encode(kinds.wrap(node)), 1, number + 1))
    entries[500] = Entry(entries[500].key, b"\x0a\xff", 1, 501)
    poisoned, read = [], []
    for entry in entries:
        try:
            read.append(decode_entry(entry))
        except PoisonedObject as error:
            poisoned.append(error.key)
    assert poisoned == [entries[500].key]
    assert len(read) == 999


@given(st.binary(max_size=60))
def test_random_bytes_are_an_object_or_poisoned_and_nothing_else(value: bytes) -> None:
    with contextlib.suppress(PoisonedObject):
        assert decode(value, 1, keys.object_key(kinds.NODE, "", "n")).WhichOneof("kind")
    last_attempt(Entry(b"k", value, 1, 1))


def test_an_object_without_a_kind_is_not_stored() -> None:
    with pytest.raises(ValueError, match="without any kind"):
        encode(Object())


@given(st.text(max_size=20_000), st.integers(0, 2**62), st.sampled_from(["", "7"]))
def test_the_value_is_what_protobuf_itself_would_make_of_object_and_write(image: str, epoch: int, version: str) -> None:
    item = Object()
    item.pod.metadata.name, item.pod.metadata.resource_version = "web", version
    item.pod.spec.containers.add(name="main", image=image)
    write = LeaderWrite(op="bind", epoch=epoch, attempt="a-1")
    stored = Stored(object=item, leader_write=write)
    stored.object.pod.metadata.ClearField("resource_version")
    assert encode(item, write) == stored.SerializeToString(deterministic=True)
    assert encode(item) == Stored(object=stored.object).SerializeToString(deterministic=True)
    assert item.pod.metadata.resource_version == version
