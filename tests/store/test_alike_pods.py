"""What is known of pods by their bytes, and how much is learned where few are alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.api.kinds import wrap
from rayched.api.wire import framed
from rayched.store import pod_layouts as alike_pods
from rayched.store.codec import encode
from rayched.store.pod_layouts import FOUND_FOR_EACH_LEARNED, LEARNED_AT_FIRST, AlikePods, layout_of, part_behind
from rayched.v1.core_pb2 import Node, Pod, PodSpec
from rayched.v1.storage_pb2 import LeaderWrite, Stored
from rayched.v1.workloads_pb2 import Object


def content(name: str, label: str = "", stored: bool = True) -> bytes:
    pod = Pod()
    pod.metadata.name, pod.metadata.uid, pod.metadata.labels["app"] = name, f"uid-{name}", label
    return encode(wrap(pod)) if stored else wrap(pod).SerializeToString(deterministic=True)


def test_an_object_has_its_parts_where_a_stored_one_has_them_behind_its_frame() -> None:
    bare, stored = content("web-1", stored=False), content("web-1")
    layout, framed = layout_of(bare, stored=False), layout_of(stored)
    assert layout is not None and framed is not None
    assert [there - here for here, there in zip(layout, framed, strict=True)] == [len(stored) - len(bare)] * 6
    assert layout_of(stored, stored=False) is None


def test_where_few_are_alike_no_more_is_learned_until_enough_are_found() -> None:
    alike: AlikePods[int] = AlikePods()
    for number in range(LEARNED_AT_FIRST + 10):
        alike.learn(content("a", f"{number:04}"), number)
    last = content("a", f"{LEARNED_AT_FIRST + 9:04}")
    assert alike.find(last) is None
    for _ in range(FOUND_FOR_EACH_LEARNED):
        assert alike.find(content("b", "0007")) == (7, b"b", b"uid-b", b"")
    alike.learn(last, 8)
    assert alike.find(last) is not None


def test_beyond_the_bytes_allowed_it_starts_over() -> None:
    alike: AlikePods[int] = AlikePods()
    alike._n_bytes = alike_pods.BYTES_MAX + 1
    alike.learn(content("a", "1"), 1)
    alike._n_bytes = alike_pods.BYTES_MAX + 1
    alike.learn(content("a", "2"), 2)
    assert alike.find(content("b", "1")) is None and alike.find(content("b", "2")) is not None


def behind(**spec: str) -> bytes:
    """A change to put behind a stored pod."""
    return encode(wrap(Pod(spec=PodSpec(**spec))))


WRITE = framed(Stored.DESCRIPTOR.fields_by_name["leader_write"].number, LeaderWrite(attempt="a-1").SerializeToString())


@pytest.mark.parametrize("write", [b"", WRITE], ids=["alone", "with the leader's write"])
@pytest.mark.parametrize("name", ["web", "w" * 300])
def test_a_change_behind_a_stored_pod_is_told_from_it(name: str, write: bytes) -> None:
    pod, change = content(name), behind(node_name="n" * len(name))
    found = part_behind(pod + change + write)
    assert found == (pod, Pod(spec=PodSpec(node_name="n" * len(name))), change[1:])
    # Together they are what protobuf itself reads, and what protobuf reads is the pod with the change.
    merged = Stored.FromString(pod + change + write).object.pod
    expected = Stored.FromString(pod).object.pod
    expected.MergeFrom(found[1])
    assert merged == expected


@pytest.mark.parametrize(
    "value",
    [
        b"",
        content("web"),
        content("web") + WRITE,
        content("web") + content("web"),
        content("web") + behind(node_name="n") + WRITE + WRITE,
        content("web") + behind(node_name="n") + behind(node_name="m"),
        content("web") + behind(node_name="n") + WRITE[:-1],
        content("web") + behind(node_name="n")[:-1],
        WRITE + behind(node_name="n"),
        content("web") + encode(Object(node=Node())),
        content("web")[:-1],
    ],
    ids=str,
)
def test_whatever_else_is_stored_has_no_change_behind_it(value: bytes) -> None:
    assert part_behind(value) is None


@given(st.binary(max_size=40), st.integers(0, 60))
def test_what_is_found_behind_a_pod_is_what_was_put_there_whatever_the_bytes(noise: bytes, cut: int) -> None:
    value = (content("web") + behind(node_name="n"))[:cut] + noise
    found = part_behind(value)
    if found is not None:
        before, change, field = found
        assert value.startswith(before) and field in value[len(before) :]
        assert Stored.FromString(value[len(before) :]).object.pod == change
