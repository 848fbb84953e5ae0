"""What is known of pods by their bytes, and how much is learned where few are alike."""

from __future__ import annotations

from rayched.api.kinds import wrap
from rayched.store import pod_layouts as alike_pods
from rayched.store.codec import encode
from rayched.store.pod_layouts import FOUND_FOR_EACH_LEARNED, LEARNED_AT_FIRST, AlikePods, layout_of
from rayched.v1.core_pb2 import Pod


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
