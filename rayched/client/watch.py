"""Watches that go on through the death of replicas; what they give out is decided in watching.py.

A stream is read by one thread; `close` may be called by another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from rayched.client.endpoints import is_broken
from rayched.client.errors import ApiError
from rayched.client.transport import Transport
from rayched.client.watching import Event, EventType, StreamClosed, WatchProgress
from rayched.v1.services_pb2 import GetLeaderRequest, GetLeaderResponse, ListResponse, WatchRequest

__all__ = ["Event", "EventType", "LeaderStream", "ResumingStream", "StreamClosed", "WatchStream"]


class ResumingStream:
    """The response of a streaming call, opened again whenever it breaks; shared by the watches of objects and of the leader."""

    def __init__(
        self,
        transport: Transport,
        name: str,
        patience_seconds: float,
        timeout_seconds: float | None = None,
        *,
        resumes: bool = True,
    ) -> None:
        """`timeout_seconds`: the stream ends by itself, with StreamClosed, when it was there for so long. Where it does not
        resume, one that has given a response is not opened again."""
        self._transport = transport
        self._name = name
        self._patience_seconds = patience_seconds
        self._resumes = resumes
        self._ends_at = None if timeout_seconds is None else time.monotonic() + timeout_seconds
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
                        if not self._resumes or not is_broken(failure):
                            raise
                        break
                    yield response
            finally:
                call.cancel()

    def call(self, name: str, request: Any) -> Any:
        """A unary call within the time of the stream. Raises ApiError and StreamClosed."""
        self._check()
        left = self.seconds_left()
        total = self._transport.patience.total_seconds
        try:
            return self._transport.call(name, request, total_seconds=total if left is None else min(left, total))
        except ApiError:
            self._check()
            raise

    def seconds_left(self) -> float | None:
        return None if self._ends_at is None else max(self._ends_at - time.monotonic(), 0.001)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            call = self._call
        if call is not None:
            call.cancel()

    def _opened(self, request: Callable[[], Any]) -> tuple[str, Any, Any]:
        """An open stream and its first response, after as many attempts as patience allows."""
        for attempt in self._transport.attempts(self._patience_seconds, is_broken):
            with attempt:
                self._check()
                endpoint, call = self._transport.stream(self._name, request(), self.seconds_left())
                with self._lock:
                    self._call = call
                return endpoint, call, self._next(endpoint, call)
        raise AssertionError("an attempt returns or raises")

    def _next(self, endpoint: str, call: Any) -> Any:
        if self._is_over():
            call.cancel()
            raise StreamClosed
        try:
            return next(call)
        except StopIteration:
            failure = ApiError(grpc.StatusCode.UNAVAILABLE, f"{endpoint} ended the stream")
        except grpc.RpcError as error:
            # The end of this stream's own time is no fault of the replica.
            self._check()
            failure = self._transport.endpoints.failed(endpoint, error)
        self._check()
        raise failure

    def _check(self) -> None:
        if self._is_over():
            raise StreamClosed

    def _is_over(self) -> bool:
        return self._closed or (self._ends_at is not None and time.monotonic() >= self._ends_at)


class WatchStream:
    """Iterates over Events until closed, or until its time is over. Use it in a `with`, or close it."""

    def __init__(
        self,
        transport: Transport,
        request: WatchRequest,
        *,
        patience_seconds: float,
        timeout_seconds: float | None = None,
        bookmarks: bool = False,
    ) -> None:
        self._progress = WatchProgress(request, bookmarks=bookmarks)
        self._stream = ResumingStream(transport, "Watch.Watch", patience_seconds, timeout_seconds)
        self._events = self._run()

    @property
    def revision(self) -> int:
        """All events up to it were given out: a new watch from the next one misses nothing. Of the revision after it some events
        may have been given out already, when the watch is left in the middle."""
        return self._progress.revision

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
        progress = self._progress
        try:
            while progress.is_listing:
                page: ListResponse = self._stream.call("Submission.List", progress.list_request())
                yield from progress.events_of_page(page)
            for response in self._stream.responses(progress.watch_request):
                yield from progress.events_of(response)
        except StreamClosed:
            return


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
