"""A change of one object: what it was before and is after, and the bytes of the watch event that a selection makes of it.

An object that a selector begins to match is ADDED, one that it ceases to match is DELETED with its last matching state. A value
that cannot be decoded counts as no object: it is logged and skipped, and never stops a stream. The watch of a node differs: to
its agent no object means that a pod has to end. So it is told that such an object is there, and lists again when that changes.

Bytes of an event are a whole WatchResponse with that one event. Protobuf messages concatenate, so a response of many events is
the join of such bytes, and each event is encoded once, however many subscribers read it. The frame around the object is put
together here: protobuf copies an object three times on its way into a response. For those whom the key alone decides, most pods
are not decoded at all (event_frames.py).

Source: the semantics of Kubernetes' watch cache. Cost: decoding 3 µs, encoding 2 µs, a repeated encoding a dictionary look-up.
"""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass, field
from typing import Final

from rayched.api.kinds import POD, AnyObject, unwrap, wrap
from rayched.api.wire import framed, varint
from rayched.server.errors import ApiFailure, Code, watch_ended
from rayched.server.watching.event_frames import AlikeEvents
from rayched.server.watching.selection import Selection, UnreadablePolicy
from rayched.store.codec import PoisonedObject, decode_entry
from rayched.store.entries import Entry
from rayched.store.keys import ObjectKey
from rayched.v1 import services_pb2
from rayched.v1.services_pb2 import WatchEvent, WatchResponse
from rayched.v1.workloads_pb2 import Object

_log = logging.getLogger(__name__)

DECODED_KEPT: Final = 4096
"""Objects that were looked at last; subscribers and followers read the same changes at about the same time."""
LARGE_BYTES: Final = 16 << 10
LARGE_DECODED_KEPT: Final = 128
"""Of objects above LARGE_BYTES: with objects of any sizes that the API takes, 64 MiB of bytes of either kind are kept at most."""

UNREADABLE_KEPT: Final = 1024
"""Of so many objects that cannot be read it is known that the log has them: the watches of all nodes may ask for each."""

EventType = WatchEvent.Type
# Asking the enumeration for a value by name takes as long as encoding a pod.
_ADDED: Final = EventType.ADDED
_MODIFIED: Final = EventType.MODIFIED
_DELETED: Final = EventType.DELETED
_HEADS: Final = {kind: WatchEvent(type=kind).SerializeToString() for kind in (_ADDED, _MODIFIED, _DELETED)}
_EVENTS: Final = WatchResponse.DESCRIPTOR.fields_by_name["events"].number
_OBJECT: Final = WatchEvent.DESCRIPTOR.fields_by_name["object"].number
_REVISION_TAG: Final = bytes([WatchEvent.DESCRIPTOR.fields_by_name["revision"].number << 3])


@dataclass(slots=True, eq=False)
class ObjectChange:
    """One object's step at one revision. Only its encodings, which are kept, are mutable."""

    key: ObjectKey
    revision: int
    before: Entry | None
    after: Entry | None
    encoded: dict[EventType, bytes] = field(default_factory=dict)
    by_key: bytes | None = None
    """The event for those whom the key alone decides, once one of them has asked."""

    @property
    def size(self) -> int:
        """Bytes it holds, its encodings included."""
        before = len(self.before.value) if self.before else 0
        after = len(self.after.value) if self.after else 0
        return 2 * (before + after) + 400


class EventEncoder:
    """Turns changes and entries into bytes of events. Owned by one thread, but for `decode`."""

    def __init__(self) -> None:
        self._small: Final = functools.lru_cache(maxsize=DECODED_KEPT)(decode_entry)
        self._large: Final = functools.lru_cache(maxsize=LARGE_DECODED_KEPT)(decode_entry)
        self._warn: Final = functools.lru_cache(maxsize=UNREADABLE_KEPT)(_warn_of)
        self._alike = AlikeEvents()

    def decode(self, entry: Entry) -> Object:
        """The object of an entry: shared, not to be changed. Raises PoisonedObject. From any thread."""
        return self._small(entry) if len(entry.value) <= LARGE_BYTES else self._large(entry)

    def message(self, entry: Entry | None) -> AnyObject | None:
        """The object of an entry: shared, not to be changed. None when there is none that can be read."""
        item = None if entry is None else self._item(entry)
        return None if item is None else unwrap(item)

    def _item(self, entry: Entry) -> Object | None:
        try:
            return self.decode(entry)
        except PoisonedObject as error:
            self._warn(str(error))
            return None

    def encode(self, change: ObjectChange, selection: Selection) -> bytes | None:
        """The event that `selection` sees in a change that it covers, or None."""
        if not selection.by_key:
            return self._encode(change, selection)
        if change.by_key is None:
            change.by_key = self._alike_event(change) or self._encode(change, selection)
        return change.by_key

    def _alike_event(self, change: ObjectChange) -> bytes | None:
        """The event of a new pod or of a binding, without decoding it. None: it has to be decoded."""
        key, before, after = change.key, change.before, change.after
        if after is None or key.kind != POD.name:
            return None
        if before is not None:
            changed = self._alike.changed(key, before, after)
            return None if changed is None else _framed(_MODIFIED, changed, change.revision)
        new = self._alike.new(key, after)
        if new is not None:
            return _framed(_ADDED, new, change.revision)
        if self._item(after) is not None:
            self._alike.learn(key, after)
        return None

    def _encode(self, change: ObjectChange, selection: Selection) -> bytes | None:
        before = None if change.before is None else self._item(change.before)
        after = None if change.after is None else self._item(change.after)
        if selection.unreadable is not UnreadablePolicy.SKIPPED:
            if change.after is not None and after is None:
                return unreadable_object(change.key, selection)
            if change.before is not None and before is None:
                text = f"{change.key}: can be read again, or is gone, at revision {change.revision}; list again"
                raise watch_ended(Code.OUT_OF_RANGE, text, 0, change.revision + 1)
        by_key = selection.by_key
        was = before is not None and (by_key or selection.matches(unwrap(before)))
        now = after is not None and (by_key or selection.matches(unwrap(after)))
        if not (was or now):
            return None
        kind = _MODIFIED if was and now else _ADDED if now else _DELETED
        found = change.encoded.get(kind)
        if found is None:
            item = after if now else before
            assert item is not None
            found = change.encoded[kind] = _encoded(kind, item if now else _as_of(item, change.revision), change.revision)
        return found

    def encode_initial(self, entry: Entry, selection: Selection) -> bytes | None:
        """The event that tells of an object that was there before the watch began."""
        item = self._item(entry)
        if item is None or not (selection.by_key or selection.matches(unwrap(item))):
            return None
        return _encoded(_ADDED, item, entry.mod_revision)


def _warn_of(fault: str) -> None:
    _log.warning("an object cannot be read: %s", fault)


def unreadable_object(key: ObjectKey, selection: Selection) -> bytes:
    """A response that says: it is there, and cannot be read. Raises ApiFailure where the selection cannot bear that."""
    if selection.unreadable is UnreadablePolicy.REFUSED:
        text = f"{key}: is there and cannot be read; a watch that leaves it out would say that it is gone"
        raise ApiFailure(Code.DATA_LOSS, text)
    named = services_pb2.ObjectKey(kind=key.kind, namespace=key.namespace, name=key.name)
    return WatchResponse(unreadable=[named]).SerializeToString()


def bookmark(revision: int) -> bytes:
    """A response that says: all events up to `revision` have been sent."""
    return WatchResponse(events=[WatchEvent(type=EventType.BOOKMARK, revision=revision)], revision=revision).SerializeToString()


def up_to(revision: int) -> bytes:
    """What is appended to the events of a response."""
    return WatchResponse(revision=revision).SerializeToString()


def _as_of(item: Object, revision: int) -> Object:
    """A copy with another resource version: a deleted object's is that of its deletion."""
    changed = wrap(unwrap(item))
    unwrap(changed).metadata.resource_version = str(revision)
    return changed


def _encoded(kind: EventType, item: Object, revision: int) -> bytes:
    """WatchResponse(events=[WatchEvent(type=kind, object=item, revision=revision)]), as bytes; the revision is above 0."""
    return _framed(kind, framed(_OBJECT, item.SerializeToString()), revision)


def _framed(kind: EventType, item: bytes, revision: int) -> bytes:
    """As `_encoded`, of an object that is a field of the event already."""
    return framed(_EVENTS, b"".join((_HEADS[kind], item, _REVISION_TAG, varint(revision))))
