"""Watches that go on through the death of replicas: each event exactly once, in the order of revisions.

A stream that breaks is opened again, at the next replica, from the revision after the last one received whole. What a watch
cannot survive is the compaction of revisions that it has not seen yet: then ApiError with OUT_OF_RANGE is raised, and the caller
lists again.

A watch from the present state begins with a list whose pages all show one revision, so that also the beginning can be repeated
without telling anything twice.

A stream is read by one thread; `close` may be called by another.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import grpc

from rayched.api.kinds import AnyObject, unwrap
from rayched.client.errors import ApiError
from rayched.client.transport import Transport
from rayched.v1.services_pb2 import GetLeaderRequest, GetLeaderResponse, ListRequest, ListResponse, WatchEvent, WatchRequest

_BROKEN: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
)
"""How a stream may end that is opened again. A connection that is torn down shows as any of them; ABORTED: read too slowly."""


class EventType(enum.Enum):
    """What happened to an object."""

    ADDED = WatchEvent.Type.ADDED
    MODIFIED = WatchEvent.Type.MODIFIED
    DELETED = WatchEvent.Type.DELETED
    BOOKMARK = WatchEvent.Type.BOOKMARK
    """Nothing: everything up to the revision has been seen."""


@dataclass(frozen=True, slots=True)
class Event:
    """One change. `object` is None for a bookmark only; of a deletion it is the object as it was last."""

    type: EventType
    object: AnyObject | None
    revision: int


class StreamClosed(Exception):
    """The stream was closed on this side."""


class ResumingStream:
    """The response of a streaming call, opened again whenever it breaks; shared by the watches of objects and of the leader."""

    def __init__(self, transport: Transport, name: str, patience_seconds: float) -> None:
        self._transport = transport
        self._name = name
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._call: Any = None
        self._closed = False

    def responses(self, request: Callable[[], Any]) -> Iterator[Any]:
        """Responses without end; `request` makes the request of each opening. Raises ApiError and StreamClosed.

        Patience is how long no stream may give its first response.
        """
        while True:
            endpoint, call, first = self._opened(request)
            try:
                yield first
                while True:
                    try:
                        response = self._next(endpoint, call)
                    except ApiError as failure:
                        if not _is_broken(failure):
                            raise
                        break
                    yield response
            finally:
                call.cancel()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            call = self._call
        if call is not None:
            call.cancel()

    def _opened(self, request: Callable[[], Any]) -> tuple[str, Any, Any]:
        """An open stream and its first response, after as many attempts as patience allows."""
        for attempt in self._transport.attempts(self._patience_seconds, _is_broken):
            with attempt:
                endpoint, call = self._transport.stream(self._name, request())
                with self._lock:
                    self._call = call
                return endpoint, call, self._next(endpoint, call)
        raise AssertionError("an attempt returns or raises")

    def _next(self, endpoint: str, call: Any) -> Any:
        if self._closed:
            call.cancel()
            raise StreamClosed
        try:
            return next(call)
        except StopIteration:
            failure = ApiError(grpc.StatusCode.UNAVAILABLE, f"{endpoint} ended the stream")
        except grpc.RpcError as error:
            failure = self._transport.failed(endpoint, error)
        if self._closed:
            raise StreamClosed
        raise failure


class WatchStream:
    """Iterates over Events until closed. Use it in a `with`, or close it."""

    def __init__(
        self,
        transport: Transport,
        request: WatchRequest,
        list_page: Callable[[ListRequest], ListResponse],
        patience_seconds: float,
        bookmarks: bool,
    ) -> None:
        self._request = request
        self._list_page = list_page
        self._bookmarks = bookmarks
        self._stream = ResumingStream(transport, "Watch.Watch", patience_seconds)
        self.revision = max(request.start_revision - 1, 0)
        """All events up to it were given out: a new watch from the next one misses nothing. Of the revision after it some events
        may have been given out already, when the watch is left in the middle."""
        self._events = self._run()

    def __iter__(self) -> WatchStream:
        return self

    def __next__(self) -> Event:
        return next(self._events)

    def __enter__(self) -> WatchStream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the iteration, also one that waits in another thread."""
        self._stream.close()

    def _run(self) -> Iterator[Event]:
        try:
            if not self._request.start_revision:
                yield from self._present_state()
            for response in self._stream.responses(self._request_from_here):
                yield from self._events_of(response)
        except StreamClosed:
            return

    def _request_from_here(self) -> WatchRequest:
        request = WatchRequest()
        request.CopyFrom(self._request)
        request.start_revision = self.revision + 1
        return request

    def _present_state(self) -> Iterator[Event]:
        watch = self._request
        request = ListRequest(
            kind=watch.kind,
            namespace=watch.namespace,
            label_selector=watch.label_selector,
            field_selector=watch.field_selector,
        )
        while True:
            page = self._list_page(request)
            for item in page.objects:
                message = unwrap(item)
                yield Event(EventType.ADDED, message, int(message.metadata.resource_version))
            token = getattr(page, "continue")
            if not token:
                break
            setattr(request, "continue", token)
        self.revision = page.revision
        if self._bookmarks:
            yield Event(EventType.BOOKMARK, None, page.revision)

    def _events_of(self, response: Any) -> Iterator[Event]:
        for event in response.events:
            if event.type == WatchEvent.Type.BOOKMARK:
                if self._bookmarks:
                    yield Event(EventType.BOOKMARK, None, event.revision)
            elif event.revision > self.revision:
                # Events of one revision come together, so those of the revisions before are all out.
                self.revision = event.revision - 1
                yield Event(EventType(event.type), unwrap(event.object), event.revision)
        self.revision = max(self.revision, response.revision)


class LeaderStream:
    """Iterates over the leader, as replicas see it: now, and after each change."""

    def __init__(self, transport: Transport, patience_seconds: float) -> None:
        self._stream = ResumingStream(transport, "Leadership.WatchLeader", patience_seconds)
        self._responses = self._run()

    def __iter__(self) -> LeaderStream:
        return self

    def __next__(self) -> GetLeaderResponse:
        return next(self._responses)

    def __enter__(self) -> LeaderStream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()

    def _run(self) -> Iterator[GetLeaderResponse]:
        seen: tuple[str, int] | None = None
        try:
            for response in self._stream.responses(GetLeaderRequest):
                if (response.holder, response.epoch) != seen:
                    seen = (response.holder, response.epoch)
                    yield response
        except StreamClosed:
            return


def _is_broken(error: BaseException) -> bool:
    return isinstance(error, ApiError) and error.code in _BROKEN
