"""Watches for clients of Kubernetes: an object of JSON a line, for as long as the client listens.

    {"type": "ADDED", "object": {...}}      ADDED, MODIFIED, DELETED, BOOKMARK; ERROR, with a Status, is the last line

Headers go out at once, before anything has happened: clients take a watch without them for a hang.

In Kubernetes each change has a version of its own. Here one transaction changes many objects, and all have its revision. A client
that was cut off in the middle of them names that revision when it comes back. So a watch from version N tells again what happened
at N where that was more than one change; told twice is harmless, and not told at all would never be found out.

Source: watches and bookmarks of Kubernetes 1.34.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final

from aiohttp import web

from rayched.client.async_watch import AsyncWatchStream
from rayched.client.errors import ApiError
from rayched.client.watching import Event, EventType
from rayched.gateway import rendering
from rayched.gateway.calls import Document, GatewayCall
from rayched.gateway.queries import ListQuery, revision
from rayched.gateway.shared_bodies import SharedBodies, json_bytes
from rayched.gateway.statuses import StatusSubject, of_api_error

BOOKMARK_SECONDS: Final = 60.0
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


async def serve_watch(
    request: web.Request, call: GatewayCall, query: ListQuery, clock: Callable[[], float], shared: SharedBodies
) -> web.StreamResponse:
    """`clock` gives Unix seconds, for ages in tables. `shared`: by all watches. Raises StatusFailure before the first byte."""
    start = revision(query.resource_version)
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    lines = _WatchLines(call, clock, shared)
    try:
        async with contextlib.aclosing(_events(call, query, start)) as events:
            async for event in events:
                await response.write(lines.of(event, initial_end=query.initial_events and not start))
    except ApiError as error:
        failure = of_api_error(error, StatusSubject(call.path.resource))
        await response.write(_line("ERROR", failure.document()))
    await response.write_eof()
    return response


async def _events(call: GatewayCall, query: ListQuery, start: int) -> AsyncGenerator[Event]:
    """The changes that the client is told of, with as many bookmarks as it wants."""
    loop = asyncio.get_running_loop()
    bookmarks = query.bookmarks or query.initial_events
    last_bookmark = loop.time()
    first_wanted = query.initial_events and not start
    at = start
    async with _open(call, query, start) as events:
        async for event in _without_known(events, start):
            if event.type is not EventType.BOOKMARK:
                yield event
                continue
            at = event.revision
            if first_wanted or (bookmarks and loop.time() - last_bookmark >= BOOKMARK_SECONDS):
                first_wanted, last_bookmark = False, loop.time()
                yield event
    if bookmarks and at:
        yield Event(EventType.BOOKMARK, None, at)


def _open(call: GatewayCall, query: ListQuery, start: int) -> AsyncWatchStream:
    return call.client.watch(
        call.path.resource.kind,
        namespace=call.path.namespace,
        label_selector=query.label_selector,
        field_selector=query.field_selector,
        start_revision=start,
        bookmarks=True,
        timeout_seconds=query.timeout_seconds,
    )


async def _without_known(events: AsyncIterator[Event], start: int) -> AsyncIterator[Event]:
    """The events without what happened at revision `start`, where that was one change: the client has seen it."""
    held: Event | None = None
    told_again = False
    async for event in events:
        if event.type is EventType.BOOKMARK or event.revision != start:
            yield event
        elif held is None:
            held = event
        else:
            if not told_again:
                told_again = True
                yield held
            yield event


class _WatchLines:
    """Events as lines. Of tables the first one has the headings."""

    def __init__(self, call: GatewayCall, clock: Callable[[], float], shared: SharedBodies) -> None:
        self._call = call
        self._clock = clock
        self._shared = shared
        self._headings = True

    def of(self, event: Event, *, initial_end: bool) -> bytes:
        kind, form = self._call.path.resource.kind, self._call.form
        if event.object is None:
            return _line(event.type.name, self._bookmark(event.revision, initial_end))
        if not form.table:
            return _framed(event.type.name, self._shared.of(kind, event.object, form.metadata_only))
        # Its rows have ages.
        shown = rendering.one(kind, event.object, form, self._clock(), self._call.include, headings=self._headings)
        self._headings = False
        return _line(event.type.name, shown)

    def _bookmark(self, at: int, initial_end: bool) -> Document:
        kind, form = self._call.path.resource.kind, self._call.form
        metadata: Document = {"resourceVersion": str(at), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {_INITIAL_EVENTS_END: "true"}
        if form.table:
            return rendering.table(kind, [], self._clock(), self._call.include, metadata, headings=False)
        whole = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}
        return rendering.partial(whole) if form.metadata_only else whole


def _line(event_type: str, shown: Document) -> bytes:
    return _framed(event_type, json_bytes(shown))


def _framed(event_type: str, body: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (event_type.encode(), body)
