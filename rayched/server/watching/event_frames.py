"""Watch events of pods like one that was decoded before: the bytes that are stored, in another frame.

Whoever reads a protobuf message merges the parts in which a field comes. So an event's object need not be put together: its parts
are the pod as it is stored, what a binding put behind it, and the resource version. Nothing is decoded or encoded for it but
what a binding added.

What comes of it is what decoding and encoding give, or nothing: then the pod has to be decoded. No I/O. Owner: an EventEncoder.
Cost: 4 µs an event of a new pod, 6 of its binding; 10 and 14 the other way.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from rayched.api.kinds import POD
from rayched.api.wire import framed, length_delimited
from rayched.store.entries import Entry
from rayched.store.keys import ObjectKey
from rayched.store.pod_layouts import AlikePods, part_behind
from rayched.v1.core_pb2 import Pod
from rayched.v1.meta_pb2 import ObjectMeta
from rayched.v1.services_pb2 import WatchEvent
from rayched.v1.workloads_pb2 import Object

_OBJECT_NUMBER: Final = WatchEvent.DESCRIPTOR.fields_by_name["object"].number
_OBJECT: Final = length_delimited(_OBJECT_NUMBER)
_POD: Final = Object.DESCRIPTOR.fields_by_name[POD.field].number
_METADATA: Final = Pod.DESCRIPTOR.fields_by_name["metadata"].number
_RESOURCE_VERSION: Final = ObjectMeta.DESCRIPTOR.fields_by_name["resource_version"].number


class AlikeEvents:
    """See the module."""

    def __init__(self) -> None:
        self._alike: AlikePods[str] = AlikePods()
        """The namespaces of pods that were decoded."""

    def is_known(self, key: ObjectKey, entry: Entry) -> bool:
        """The pod is like one that was decoded, and what its key names."""
        found = self._alike.find(entry.value)
        if found is None:
            return False
        namespace, name, uid, time = found
        return namespace == key.namespace and name == key.name.encode() and uid.isascii() and _is_time(time)

    def learn(self, key: ObjectKey, entry: Entry) -> None:
        """From a pod that was decoded."""
        self._alike.learn(entry.value, key.namespace)

    def new(self, key: ObjectKey, entry: Entry) -> bytes | None:
        """The object of the event, as fields of a WatchEvent."""
        if not self.is_known(key, entry):
            return None
        return b"".join((_OBJECT, entry.value[1:], _version(entry.mod_revision)))

    def changed(self, key: ObjectKey, before: Entry, entry: Entry) -> bytes | None:
        """As `new`, of a pod behind whose stored bytes something was put."""
        parts = part_behind(entry.value)
        if parts is None or parts[0] != before.value or not self.is_known(key, before):
            return None
        return b"".join((_OBJECT, parts[0][1:], _OBJECT, parts[2], _version(entry.mod_revision)))


@lru_cache(maxsize=256)
def _version(revision: int) -> bytes:
    """The part of the object that has the resource version."""
    metadata = framed(_RESOURCE_VERSION, str(revision).encode())
    return framed(_OBJECT_NUMBER, framed(_POD, framed(_METADATA, metadata)))


@lru_cache(maxsize=64)
def _is_time(time: bytes) -> bool:
    try:
        Timestamp.FromString(time)
    except DecodeError:
        return False
    return True
