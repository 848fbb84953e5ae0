"""Watches for asyncio that go on through the death of replicas; what they give out is decided in watching.py.

A wait for the next event may be cancelled, by `asyncio.timeout` for example: the watch goes on with the next event that was not
given out. One task reads a stream at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from rayched.client.async_transport import AsyncTransport
from rayched.client.endpoints import is_broken
from rayched.client.errors import ApiError
from rayched.client.watching import Event, StreamClosed, WatchProgress
from rayched.v1.services_pb2 import GetLeaderRequest, GetLeaderResponse, WatchRequest


class AsyncResumingStream:
    """The responses of a streaming call, opened again whenever it breaks."""

    def __init__(
        self, transport: AsyncTransport, name: str, request: Callable[[], Any], patience_seconds: float, *, resumes: bool = True
    ) -> None:
        """`request` makes the request of each opening; patience is how long no stream may give its first response. Where it does
        not resume, one that has given a response is not opened again."""
        self._transport = transport
        self._name = name
        self._request = request
        self._patience_seconds = patience_seconds
        self._resumes = resumes
        self._endpoint = ""
        self._call: Any = None
        self._closed = False

    async def next(self) -> Any:
        """The next response. Raises ApiError and StreamClosed."""
        if self._call is not None:
            try:
                return await self._read()
            except ApiError as failure:
                if not self._resumes or not is_broken(failure):
                    raise
        async for attempt in self._transport.attempts(self._patience_seconds, is_broken):
            with attempt:
                if self._closed:
                    raise StreamClosed
                self._endpoint, self._call = self._transport.stream(self._name, self._request())
                return await self._read()
        raise AssertionError("an attempt returns or raises")

    def close(self) -> None:
        self._closed = True
        self._drop()

    async def _read(self) -> Any:
        """One response; after anything else the call is gone."""
        try:
            response = await self._call.read()
        except grpc.RpcError as error:
            self._drop()
            failure = self._transport.endpoints.failed(self._endpoint, error)
        except asyncio.CancelledError:
            # Either this task is cancelled, or the stream or the client was closed elsewhere. A call dies of each.
            self._drop()
            if _is_cancelled():
                raise
            failure = ApiError(grpc.StatusCode.CANCELLED, f"the stream of {self._endpoint} was closed")
        else:
            if response is not grpc.aio.EOF:
                return response
            self._drop()
            failure = ApiError(grpc.StatusCode.UNAVAILABLE, f"{self._endpoint} ended the stream")
        if self._closed:
            raise StreamClosed
        raise failure

    def _drop(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()


class AsyncWatchStream:
    """Iterates over Events until closed, or until its time is over. Use it in an `async with`, or close it."""

    def __init__(
        self,
        transport: AsyncTransport,
        request: WatchRequest,
        *,
        patience_seconds: float,
        timeout_seconds: float | None = None,
        bookmarks: bool = False,
    ) -> None:
        self._transport = transport
        self._progress = progress = WatchProgress(request, bookmarks=bookmarks)
        self._stream = AsyncResumingStream(transport, "Watch.Watch", progress.watch_request, patience_seconds)
        self._ends_at = None if timeout_seconds is None else asyncio.get_running_loop().time() + timeout_seconds
        self._events: Iterator[Event] = iter(())
        self._closed = False

    @property
    def revision(self) -> int:
        """All events up to it were given out: a new watch from the next one misses nothing. Of the revision after it some events
        may have been given out already, when the watch is left in the middle."""
        return self._progress.revision

    def __aiter__(self) -> AsyncWatchStream:
        return self

    async def __anext__(self) -> Event:
        while not self._closed:
            event = next(self._events, None)
            if event is not None:
                return event
            try:
                async with asyncio.timeout_at(self._ends_at) as over:
                    self._events = await self._more()
            except StreamClosed:
                break
            except TimeoutError:
                if not over.expired():
                    raise
                break
        self.close()
        raise StopAsyncIteration

    async def __aenter__(self) -> AsyncWatchStream:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the iteration, also one that waits in another task."""
        self._closed = True
        self._stream.close()

    async def _more(self) -> Iterator[Event]:
        """The events of the next message. Nothing has changed when it is cancelled."""
        progress = self._progress
        if progress.is_listing:
            return progress.events_of_page(await self._transport.call("Submission.List", progress.list_request()))
        return progress.events_of(await self._stream.next())


class AsyncLeaderStream:
    """Iterates over the leader, as replicas see it: now, and after each change."""

    def __init__(self, transport: AsyncTransport, patience_seconds: float) -> None:
        self._stream = AsyncResumingStream(transport, "Leadership.WatchLeader", GetLeaderRequest, patience_seconds)
        self._seen: tuple[str, int] | None = None

    def __aiter__(self) -> AsyncLeaderStream:
        return self

    async def __anext__(self) -> GetLeaderResponse:
        while True:
            try:
                response: GetLeaderResponse = await self._stream.next()
            except StreamClosed:
                raise StopAsyncIteration from None
            if (response.holder, response.epoch) != self._seen:
                self._seen = (response.holder, response.epoch)
                return response

    async def __aenter__(self) -> AsyncLeaderStream:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()


def _is_cancelled() -> bool:
    """Whether somebody has cancelled the running task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
