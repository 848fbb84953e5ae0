"""Stored pods of the usual form, cut into the parts that scheduling reads and those that it does not, without a message of them.

The usual form is what the codec writes for a pod that no leader has written yet: each field once, in the order of their numbers,
no field that is not known here, labels in the order of their keys and of less than 128 bytes each, no length longer than it has
to be. So a part that is kept is byte for byte what a message of it alone is serialised to. Anything else is left to whoever reads
messages.

What spec and status say is not looked at. Pure. Cost: 4 µs a pod with two labels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from rayched.api.wire import length_delimited, read_varint, varint
from rayched.v1.core_pb2 import Pod
from rayched.v1.meta_pb2 import ObjectMeta, OwnerReference
from rayched.v1.storage_pb2 import Stored
from rayched.v1.workloads_pb2 import Object

VALUE_BYTES_MAX: Final = 8_192
"""Longer values are left to messages, as parts of them are kept."""


def _tags(message: type[Stored | Object | Pod | ObjectMeta], *fields: str) -> list[int]:
    """First bytes of fields that hold messages or texts."""
    return [length_delimited(message.DESCRIPTOR.fields_by_name[field].number)[0] for field in fields]


(_OBJECT,) = _tags(Stored, "object")
(_POD,) = _tags(Object, "pod")
_API_VERSION, _METADATA, _SPEC, _STATUS = _tags(Pod, "api_version", "metadata", "spec", "status")
_NAME, _NAMESPACE, _UID, _TIME, _LABELS, _ANNOTATIONS, _OWNERS = _tags(
    ObjectMeta, "name", "namespace", "uid", "creation_timestamp", "labels", "annotations", "owner_references"
)
_KIND: Final = Pod(api_version="v1", kind="Pod").SerializeToString()
_KEY, _VALUE = (length_delimited(number)[0] for number in (1, 2))
"""Of an entry of a map."""


class PlainPod(NamedTuple):
    """A pod without a leader's write. All are parts of its value."""

    name: bytes
    uid: bytes
    time: bytes
    """Empty where there is none, as is the status."""
    namespace: bytes
    labels: dict[str, str]
    kept: bytes
    """Of its metadata what templates hold: namespace, labels and controller, as fields."""
    unlabelled: bytes
    """The same without labels."""
    spec: bytes
    status: bytes
    places: tuple[int, int, int, int, int, int]
    """As a Layout has them."""


def plain_pod(value: bytes) -> PlainPod | None:
    """None: the value is of another form, or cannot be read."""
    if len(value) > VALUE_BYTES_MAX:
        return None
    try:
        return _plain_pod(value)
    except (ValueError, IndexError, DecodeError):
        return None


def _plain_pod(value: bytes) -> PlainPod:
    whole = len(value)
    opening = _opening(whole)
    if not value.startswith(opening):
        raise ValueError("no pod alone")
    at = len(opening)
    if value[at] == _API_VERSION:
        if not value.startswith(_KIND, at):
            raise ValueError("not the kind of a pod")
        at += len(_KIND)
    at, metadata_end = _part(value, at, _METADATA)
    name, name_end = _part(value, at, _NAME)
    start, namespace_end = _part(value, name_end, _NAMESPACE)
    namespace = value[start:namespace_end]
    uid, uid_end = _part(value, namespace_end, _UID)
    time = at = uid_end
    # Behind the metadata another field of the pod has to stand: it has none of these tags, or the value is refused further down.
    if value[at] == _TIME:
        time, at = _part(value, at, _TIME)
    time_end = first = at
    labels: dict[str, str] = {}
    last = b""
    while value[at] == _LABELS:
        size, key = value[at + 1], at + 4
        key_end = key + value[at + 3]
        content = key_end + 2
        is_entry = value[at + 2] == _KEY and value[key_end] == _VALUE and content + value[key_end + 1] == at + 2 + size
        if size >= 128 or not is_entry:
            raise ValueError("a label that is long, or none")
        at += 2 + size
        key_bytes = value[key:key_end]
        if labels and key_bytes <= last:
            raise ValueError("labels are not in order")
        labels[key_bytes.decode()] = value[content:at].decode()
        last = key_bytes
    unlabelled = value[name_end:namespace_end]
    kept = unlabelled + value[first:at]
    if at != metadata_end:
        controllers = _controllers(value, at, metadata_end)
        kept += controllers
        unlabelled += controllers
    spec, spec_end = _part(value, metadata_end, _SPEC)
    if spec_end == whole:
        status = b""
    else:
        start, end = _part(value, spec_end, _STATUS)
        if end != whole:
            raise ValueError("something stands behind the status")
        status = value[start:]
    return PlainPod(
        value[name:name_end],
        value[uid:uid_end],
        value[time:time_end],
        namespace,
        labels,
        kept,
        unlabelled,
        value[spec:spec_end],
        status,
        (name, name_end, uid, uid_end, time, time_end),
    )


@lru_cache(maxsize=VALUE_BYTES_MAX)
def _opening(size: int) -> bytes:
    """What a Stored of so many bytes begins with that has nothing but a pod, up to what the pod begins with.

    Raises ValueError: there is none of so many bytes.
    """
    for pod_size in reversed(range(size)):
        opening = bytes((_POD,)) + varint(pod_size)
        opening = bytes((_OBJECT,)) + varint(len(opening) + pod_size) + opening
        if len(opening) + pod_size == size:
            return opening
    raise ValueError(f"no pod has a value of {size} bytes")


def _controllers(value: bytes, at: int, end: int) -> bytes:
    """The fields of owners that control the pod, where nothing but annotations stands before them, and nothing behind."""
    kept = b""
    before = at
    while value[at] == _ANNOTATIONS:
        _, at = _part(value, at, _ANNOTATIONS)
    ObjectMeta.FromString(value[before:at])
    while at < end:
        begin = at
        owner, at = _part(value, at, _OWNERS)
        content = value[owner:at]
        reference = OwnerReference.FromString(content)
        if reference.SerializeToString() != content:
            raise ValueError("an owner is not written as it should be")
        if reference.controller:
            kept += value[begin:at]
    if at != end:
        raise ValueError("a field ends behind its message")
    return kept


def _part(value: bytes, at: int, tag: int) -> tuple[int, int]:
    """Begin and end of the content of the field at this place. Raises ValueError, IndexError."""
    if value[at] != tag:
        raise ValueError("another field")
    size = value[at + 1]
    if size < 128:
        return at + 2, at + 2 + size
    size, start = read_varint(value, at + 1)
    if not value[start - 1]:
        raise ValueError("a length is longer than it has to be")
    return start, start + size
