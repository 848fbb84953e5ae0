"""Where name, uid and time lie in the bytes of a pod, and how much is kept of pods that are alike."""

from __future__ import annotations

import pytest

from rayched.api.wire import framed
from rayched.store import pod_layouts
from rayched.store.pod_layouts import LAYOUTS_MAX, VALUE_BYTES_MAX, AlikePods, Layout, layout_of

NAME, UID, TIME = framed(1, b"web"), framed(4, b"uid-1"), framed(7, b"\x08\x07")
LABEL, SPEC = framed(10, framed(1, b"app") + framed(2, b"web")), framed(4, framed(2, framed(1, b"main")))
NUMBER, FIXED_64, FIXED_32 = b"\xa0\x01\x85\x01", b"\xa1\x01" + b"\x0a" * 8, b"\xa5\x01" + b"\x0a" * 4
"""Fields of number 20 that are no texts: a varint, and numbers of fixed lengths."""
GROUP = b"\xa3\x01\xa4\x01"


def a_value(*metadata: bytes, before: bytes = b"", behind: bytes = SPEC, stored: bool = True) -> bytes:
    pod = framed(1, before + framed(3, b"".join(metadata)) + behind)
    return framed(1, pod) if stored else pod


def parts(value: bytes, layout: Layout) -> tuple[bytes, bytes, bytes]:
    return value[layout.name : layout.name_end], value[layout.uid : layout.uid_end], value[layout.time : layout.time_end]


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(
    ("metadata", "before", "behind", "time"),
    [
        ([NAME, UID, TIME], b"", SPEC, b"\x08\x07"),
        ([NAME, UID], b"", SPEC, b""),
        ([NAME, UID], b"", b"", b""),
        ([NAME, framed(3, b"default"), UID, TIME, LABEL], framed(1, b"v1"), SPEC + framed(5, b""), b"\x08\x07"),
        ([NUMBER, NAME, FIXED_64, UID, FIXED_32, TIME, NUMBER], NUMBER + FIXED_32, FIXED_64 + SPEC, b"\x08\x07"),
        ([NAME, UID, TIME, FIXED_64], FIXED_64, FIXED_32, b"\x08\x07"),
        ([NAME, UID, TIME, FIXED_32], b"", NUMBER, b"\x08\x07"),
        ([NAME, UID, framed(10, b"x" * 300), TIME], b"", SPEC, b""),
    ],
)
def test_name_uid_and_time_are_found_whatever_stands_between_them(
    metadata: list[bytes], before: bytes, behind: bytes, time: bytes, stored: bool
) -> None:
    value = a_value(*metadata, before=before, behind=behind, stored=stored)
    layout = layout_of(value, stored=stored)
    assert layout is not None
    name, uid, found_time = parts(value, layout)
    assert (name, uid) == (b"web", b"uid-1") and found_time == (time or found_time)
    if TIME not in metadata:
        assert layout.time == layout.time_end == layout.uid_end
    around = layout.common(value)
    assert around[0] + name + around[1] + uid + around[2] + found_time + around[3] == value
    assert layout_of(value, stored=not stored) is None


@pytest.mark.parametrize(
    "value",
    [
        b"",
        a_value(UID),
        a_value(NAME),
        a_value(NAME, NAME, UID),
        a_value(NAME, UID, UID),
        a_value(NAME, UID, TIME, TIME),
        a_value(UID, NAME),
        a_value(TIME, NAME, UID),
        a_value(NAME, TIME, UID),
        a_value(NAME, UID, behind=framed(3, NAME)),
        a_value(NAME, UID, GROUP),
        a_value(NAME, UID) + framed(2, b"write"),
        framed(2, framed(1, framed(3, NAME + UID))),
        framed(1, framed(2, framed(3, NAME + UID))),
        framed(1, framed(1, SPEC)),
        framed(1, framed(1, framed(3, NAME + UID[:-1]))),
        framed(1, framed(1, framed(3, NAME + UID + FIXED_64[:-1]))),
        framed(1, framed(1, framed(3, NAME + UID))[:-1]),
        a_value(NAME, UID)[:-1],
    ],
    ids=str,
)
def test_what_is_no_pod_with_one_name_and_one_uid_in_that_order_has_no_layout(value: bytes) -> None:
    assert layout_of(value) is None


def like(kind: int, name: bytes = b"web", uid: bytes = b"uid-1", size: int = 4) -> bytes:
    return a_value(framed(1, name), framed(4, uid), framed(10, b"%0*d" % (size, kind)))


def test_pods_are_alike_where_all_else_is_the_same() -> None:
    alike: AlikePods[str] = AlikePods()
    assert alike.find(like(7)) is None
    alike.learn(a_value(NAME, UID, TIME, LABEL), "web")
    other = a_value(framed(1, b"api"), framed(4, b"uid-9"), framed(7, b"\x08\x09"), LABEL)
    assert alike.find(other) == ("web", b"api", b"uid-9", b"\x08\x09")
    assert alike.find(a_value(NAME, UID, TIME, framed(10, b"another thing"))) is None
    assert alike.find(a_value(framed(1, b"longer"), UID, TIME, LABEL)) is None


def test_what_is_too_long_is_not_learned_from() -> None:
    alike: AlikePods[int] = AlikePods()
    for size, is_learned in ((VALUE_BYTES_MAX - 100, True), (VALUE_BYTES_MAX, False)):
        value = like(1, size=size)
        alike.learn(value, size)
        assert (alike.find(value) is not None) is is_learned


def test_a_layout_that_is_known_is_taken_as_it_is() -> None:
    alike: AlikePods[int] = AlikePods()
    value = a_value(NAME, UID) + framed(2, b"write")
    alike.learn(value, 1)
    assert alike.find(value) is None
    at = value.index(b"web"), value.index(b"uid-1")
    alike.learn(value, 2, Layout(at[0], at[0] + 3, at[1], at[1] + 5, at[1] + 5, at[1] + 5))
    assert alike.find(value) == (2, b"web", b"uid-1", b"")


def test_for_bytes_of_one_length_few_layouts_are_remembered() -> None:
    alike: AlikePods[int] = AlikePods()
    values = [like(0, b"n" * (1 + length), b"u" * (30 - length)) for length in range(LAYOUTS_MAX + 2)]
    assert len({len(value) for value in values}) == 1
    for number, value in enumerate(values):
        alike.learn(value, number)
    assert [alike.find(value) is not None for value in values] == [True] * LAYOUTS_MAX + [False] * 2
    again = like(5, b"x", b"v" * 30)
    alike.learn(again, 99)
    assert alike.find(again) is not None, "of a layout that is remembered, more kinds are learned"


def test_once_enough_bytes_are_kept_it_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_layouts, "BYTES_MAX", 2 * len(like(0)))
    alike: AlikePods[int] = AlikePods()
    kept = []
    for number in range(9):
        alike.learn(like(number), number)
        kept.append([one for one in range(number + 1) if alike.find(like(one)) is not None])
    assert kept == [[0], [0, 1], [0, 1, 2], [3], [3, 4], [3, 4, 5], [6], [6, 7], [6, 7, 8]]


def test_so_many_are_learned_at_first_and_then_one_for_each_ten_that_were_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_layouts, "LEARNED_AT_FIRST", 3)
    alike: AlikePods[int] = AlikePods()
    for number in range(5):
        alike.learn(like(number), number)
    found = [alike.find(like(number)) is not None for number in range(5)]
    assert found == [True, True, True, False, False]
    for _ in range(6):
        assert alike.find(like(0)) is not None
    alike.learn(like(3), 3)
    assert alike.find(like(3)) is None, "nine were found"
    assert alike.find(like(0)) is not None
    for number in (3, 4):
        alike.learn(like(number), number)
    assert [alike.find(like(number)) is not None for number in (3, 4)] == [True, False]
