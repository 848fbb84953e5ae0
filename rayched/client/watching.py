"""What a watch has given out and what it asks for next: each event exactly once, in the order of revisions, whatever breaks.

A stream that breaks is opened again, at the next replica, from the revision after the last one received whole. What a watch
cannot survive is the compaction of revisions that it has not seen yet: then ApiError with OUT_OF_RANGE is raised, and the caller
lists again. A watch from the present state begins with a list whose pages all show one revision, so that also the beginning can
be repeated without telling anything twice.

Shared by the synchronous and the asynchronous watch, which carry the messages. One user at a time. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final, NamedTuple

from rayched.api.kinds import AnyObject, unwrap
from rayched.client.calls import has_next_page
from rayched.v1.services_pb2 import ListRequest, ListResponse, WatchEvent, WatchRequest, WatchResponse


class EventType(enum.Enum):
    """What happened to an object."""

    ADDED = WatchEvent.Type.ADDED
    MODIFIED = WatchEvent.Type.MODIFIED
    DELETED = WatchEvent.Type.DELETED
    BOOKMARK = WatchEvent.Type.BOOKMARK
    """Nothing: everything up to the revision has been seen."""


_TYPES: Final = {kind.value: kind for kind in EventType}


class Event(NamedTuple):
    """One change. `object` is None for a bookmark only; of a deletion it is the object as it was last."""

    type: EventType
    object: AnyObject | None
    revision: int


def cached_events(response: WatchResponse) -> Iterator[Event]:
    """Of a message of the present state, that of a replica; a bookmark is the last one."""
    for event in response.events:
        yield Event(_TYPES[event.type], unwrap(event.object) if event.HasField("object") else None, event.revision)


class StreamClosed(Exception):
    """The stream was closed on this side, or its time is over."""


class WatchProgress:
    """One watch: where it stands, and the events of what arrives. An iterator of events is used up before the next one."""

    def __init__(self, request: WatchRequest, *, bookmarks: bool) -> None:
        self._watch = request
        self._bookmarks = bookmarks
        self._list = ListRequest(
            kind=request.kind,
            namespace=request.namespace,
            label_selector=request.label_selector,
            field_selector=request.field_selector,
        )
        self.is_listing = not request.start_revision
        """The present state comes first, and is not complete."""
        self.revision = max(request.start_revision - 1, 0)
        """All events up to it were given out: a new watch from the next one misses nothing. Of the revision after it some events
        may have been given out already, when the watch is left in the middle."""

    def list_request(self) -> ListRequest:
        """The next page of the present state."""
        return self._list

    def watch_request(self) -> WatchRequest:
        """What comes after all that was given out."""
        request = WatchRequest()
        request.CopyFrom(self._watch)
        request.start_revision = self.revision + 1
        return request

    def events_of_page(self, page: ListResponse) -> Iterator[Event]:
        for item in page.objects:
            message = unwrap(item)
            yield Event(EventType.ADDED, message, int(message.metadata.resource_version))
        if not has_next_page(self._list, page):
            self.is_listing = False
            self.revision = page.revision
            if self._bookmarks:
                yield Event(EventType.BOOKMARK, None, page.revision)

    def events_of(self, response: WatchResponse) -> Iterator[Event]:
        for event in response.events:
            kind, revision = _TYPES[event.type], event.revision
            if kind is EventType.BOOKMARK:
                if self._bookmarks:
                    yield Event(EventType.BOOKMARK, None, revision)
            elif revision > self.revision:
                # Events of one revision come together, so those of the revisions before are all out.
                self.revision = revision - 1
                yield Event(kind, unwrap(event.object), revision)
        self.revision = max(self.revision, response.revision)
