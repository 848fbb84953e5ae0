"""Pods whose bytes are those of a pod known before, but for the name, the uid and the time of creation.

Clients send many pods of one kind. Of such a pod nothing has to be worked out again that does not follow from those three. What
is compared is bytes, all of them but those three, so two pods are never taken for alike that are not; the lengths of what differs
stand in the bytes before it and are compared with them.

No I/O. Limit: BYTES_MAX of compared bytes; beyond them it starts over. Cost: 1 µs a pod that is found, 15 for one to learn from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from rayched.api.kinds import POD
from rayched.api.wire import length_delimited, read_varint
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import Stored

BYTES_MAX: Final = 16 << 20
VALUE_BYTES_MAX: Final = 16_384
"""Longer ones are not learned from."""
LAYOUTS_MAX: Final = 8
"""Places of what differs that are remembered for bytes of one length."""
LEARNED_AT_FIRST: Final = 1_000
FOUND_FOR_EACH_LEARNED: Final = 10
"""Once so many were learned, another is only when so many were found for each: where few are alike it is not worth the time."""

_LENGTH_DELIMITED: Final = 2
_FIXED_BYTES: Final = {1: 8, 5: 4}
_OBJECT, _POD, _METADATA = 1, 1, 3
_NAME, _UID, _CREATION_TIMESTAMP = 1, 4, 7
"""Numbers of fields: of Stored, Object, Pod and ObjectMeta."""

_STORED_OBJECT, _STORED_LEADER_WRITE = (
    length_delimited(Stored.DESCRIPTOR.fields_by_name[name].number) for name in ("object", "leader_write")
)

K = TypeVar("K")


class Layout(NamedTuple):
    """Where name, uid and time begin and end; a time that is not there is empty and stands behind the uid."""

    name: int
    name_end: int
    uid: int
    uid_end: int
    time: int
    time_end: int

    def common(self, value: bytes) -> tuple[bytes, bytes, bytes, bytes]:
        """What stands before, between and behind the three."""
        name, name_end, uid, uid_end, time, time_end = self
        return value[:name], value[name_end:uid], value[uid_end:time], value[time_end:]


class AlikePods(Generic[K]):
    """What is known of pods by their bytes, those of a Stored, or of an Object where not `stored`."""

    __slots__ = ("_known", "_layouts", "_n_bytes", "_n_found", "_n_learned", "_stored")

    def __init__(self, stored: bool = True) -> None:
        self._stored = stored
        self._known: dict[tuple[bytes, bytes, bytes, bytes], K] = {}
        self._layouts: dict[int, list[Layout]] = {}
        """By the number of bytes."""
        self._n_bytes = 0
        self._n_found = 0
        self._n_learned = 0

    def find(self, value: bytes) -> tuple[K, bytes, bytes, bytes] | None:
        """What is known of pods like this one, and its own name, uid and time of creation. None: nothing is."""
        for layout in self._layouts.get(len(value), ()):
            name, name_end, uid, uid_end, time, time_end = layout
            known = self._known.get((value[:name], value[name_end:uid], value[uid_end:time], value[time_end:]))
            if known is not None:
                self._n_found += 1
                return known, value[name:name_end], value[uid:uid_end], value[time:time_end]
        return None

    def learn(self, value: bytes, known: K, layout: Layout | None = None) -> None:
        """Where it is too long, or not of the usual form, it is left alone. `layout` is the value's, where that is known."""
        if len(value) > VALUE_BYTES_MAX or self._n_learned >= LEARNED_AT_FIRST + self._n_found // FOUND_FOR_EACH_LEARNED:
            return
        self._n_learned += 1
        layout = layout or layout_of(value, stored=self._stored)
        if layout is None:
            return
        if self._n_bytes > BYTES_MAX:
            self.clear()
        layouts = self._layouts.setdefault(len(value), [])
        if layout not in layouts:
            if len(layouts) >= LAYOUTS_MAX:
                return
            layouts.append(layout)
        self._known[layout.common(value)] = known
        self._n_bytes += len(value)

    def clear(self) -> None:
        self._known.clear()
        self._layouts.clear()
        self._n_bytes = 0


def part_behind(value: bytes) -> tuple[bytes, Pod, bytes] | None:
    """A stored pod behind which a change was put, as a binding is: the pod as it was stored before, what the change says, and the
    change as a field of a Stored without its tag. None: it is no such, or the change touches metadata."""
    try:
        length, start = read_varint(value, 1)
        before = start + length
        if not value.startswith(_STORED_OBJECT) or not value.startswith(_STORED_OBJECT, before):
            return None
        length, start = read_varint(value, before + 1)
        end = start + length
        if end < len(value):
            if not value.startswith(_STORED_LEADER_WRITE, end):
                return None
            length, start = read_varint(value, end + 1)
            if start + length != len(value):
                return None
        item = Stored.FromString(value[before:]).object
    except (DecodeError, IndexError):
        return None
    if item.WhichOneof("kind") != POD.field or item.pod.HasField("metadata"):
        return None
    return value[:before], item.pod, value[before + 1 : end]


def layout_of(value: bytes, *, stored: bool = True) -> Layout | None:
    """None: the value is not one pod with one name and one uid, each written once, or not in that order."""
    try:
        field, item, item_end = _OBJECT, 0, len(value)
        if stored:
            ((field, item, item_end),) = _fields(value, 0, len(value))
        ((kind, pod, pod_end),) = _fields(value, item, item_end)
        if (field, kind) != (_OBJECT, _POD):
            return None
        ((metadata, metadata_end),) = [place for field, *place in _fields(value, pod, pod_end) if field == _METADATA]
        found: dict[int, tuple[int, int]] = {}
        for field, start, end in _fields(value, metadata, metadata_end):
            if field in (_NAME, _UID, _CREATION_TIMESTAMP):
                if field in found:
                    return None
                found[field] = start, end
        uid = found[_UID]
        layout = Layout(*found[_NAME], *uid, *found.get(_CREATION_TIMESTAMP, (uid[1], uid[1])))
    except (ValueError, IndexError, KeyError):
        return None
    return layout if list(layout) == sorted(layout) else None


def _fields(value: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, begin and end of the content of each field of a protobuf message. Raises ValueError, IndexError."""
    while start < end:
        tag, start = read_varint(value, start)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            length, start = read_varint(value, start)
            until = start + length
        elif kind == 0:
            _, until = read_varint(value, start)
        else:
            until = start + _FIXED_BYTES[kind]
        if until > end:
            raise ValueError("a field ends behind its message")
        yield tag >> 3, start, until
        start = until
