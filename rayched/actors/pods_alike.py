"""Pending pods whose stored bytes are those of a pod read before, but for the name, the uid and the time of creation.

Clients send many pods of one kind. Of such a pod nothing has to be worked out again: its template is that of the pod before. What
is compared is bytes, all of them but those three, so two pods are never taken for alike that are not; the lengths of what differs
stand in the bytes before it and are compared with them.

A pod is learned from when its template was there before, so pods that are all different cost nothing here.

No I/O. Owner: the Cache. Limit: BYTES_MAX of compared bytes; beyond them it starts over. Cost: 1 µs a pod that is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from rayched.snapshot.templates import PodTemplate

BYTES_MAX: Final = 16 << 20
VALUE_BYTES_MAX: Final = 16_384
"""Longer values are not learned from."""
TIMES_MAX: Final = 1_000
LAYOUTS_MAX: Final = 8
"""Places of what differs that are remembered for values of one length."""

_LENGTH_DELIMITED: Final = 2
_FIXED_BYTES: Final = {1: 8, 5: 4}
_OBJECT, _POD, _METADATA = 1, 1, 3
_NAME, _UID, _CREATION_TIMESTAMP = 1, 4, 7
"""Numbers of fields: of Stored, Object, Pod and ObjectMeta."""

_Layout = tuple[int, int, int, int, int, int]
"""Where name, uid and time begin and end in a value; a time that is not there is empty and stands behind the uid."""


class KnownPod(NamedTuple):
    """What pods alike have in common."""

    template: PodTemplate
    namespace: str
    key_prefix: bytes
    """Their keys in the store without the name."""
    nominated: str = ""
    """The node that their status nominates, "" for none."""


class PodsAlike:
    """See the module."""

    __slots__ = ("_known", "_layouts", "_n_bytes", "_times")

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes, bytes, bytes], KnownPod] = {}
        self._layouts: dict[int, list[_Layout]] = {}
        """By the length of the value."""
        self._n_bytes = 0
        self._times: set[bytes] = set()
        """Some that were read: pods of one second have the same."""

    def find(self, key: bytes, value: bytes) -> tuple[KnownPod, str, str] | None:
        """What is known of a pod with this value, its name and its uid; None: it has to be read as a whole.

        A value that is found can be read.
        """
        for layout in self._layouts.get(len(value), ()):
            name, name_end, uid, uid_end, time, time_end = layout
            known = self._known.get((value[:name], value[name_end:uid], value[uid_end:time], value[time_end:]))
            if known is not None:
                if key != known.key_prefix + value[name:name_end] or not self._is_time(value[time:time_end]):
                    return None
                try:
                    return known, value[name:name_end].decode(), value[uid:uid_end].decode()
                except UnicodeDecodeError:
                    return None
        return None

    def _is_time(self, value: bytes) -> bool:
        if value in self._times:
            return True
        try:
            Timestamp.FromString(value)
        except DecodeError:
            return False
        if len(self._times) >= TIMES_MAX:
            self._times.clear()
        self._times.add(value)
        return True

    def learn(self, value: bytes, known: KnownPod) -> None:
        """A pending pod that was read as a whole, and that no leader has written."""
        if len(value) > VALUE_BYTES_MAX:
            return
        layout = _layout(value)
        if layout is None:
            return
        if self._n_bytes > BYTES_MAX:
            self._known.clear()
            self._layouts.clear()
            self._n_bytes = 0
        layouts = self._layouts.setdefault(len(value), [])
        if layout not in layouts:
            if len(layouts) >= LAYOUTS_MAX:
                return
            layouts.append(layout)
        name, name_end, uid, uid_end, time, time_end = layout
        self._known[value[:name], value[name_end:uid], value[uid_end:time], value[time_end:]] = known
        self._n_bytes += len(value)


def _layout(value: bytes) -> _Layout | None:
    """None: the value is not one pod with one name and one uid, each written once, or not in that order."""
    try:
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
        layout = (*found[_NAME], *uid, *found.get(_CREATION_TIMESTAMP, (uid[1], uid[1])))
    except (ValueError, IndexError, KeyError):
        return None
    return layout if list(layout) == sorted(layout) else None


def _fields(value: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, begin and end of the content of each field of a protobuf message. Raises ValueError, IndexError."""
    while start < end:
        tag, start = _varint(value, start)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            length, start = _varint(value, start)
            until = start + length
        elif kind == 0:
            _, until = _varint(value, start)
        else:
            until = start + _FIXED_BYTES[kind]
        if until > end:
            raise ValueError("a field ends behind its message")
        yield tag >> 3, start, until
        start = until


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends."""
    number = shift = 0
    while True:
        byte = value[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
