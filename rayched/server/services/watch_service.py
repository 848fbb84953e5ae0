"""The service rayched.v1.Watch: streams from the hub, from etcd's history where the hub's window does not reach back.

```
  start_revision 0 ──▶ the present state, BOOKMARK ─┐
  start_revision r, in the window ──────────────────┴─▶ LIVE ──▶ ABORTED: too slow; UNAVAILABLE: shutting down;
                                                        ▲    OUT_OF_RANGE: the hub itself had to list again
             the first revision that both have ─────────┘
  start_revision r, older ──────────────────────────▶ CATCHING UP ──▶ OUT_OF_RANGE: compacted
```

A hub lists again when it cannot prove that etcd has the past that it followed (docs/adr/0013). Then nobody's position in it says
anything either, so each caller has to list, too.

A caller that does not read occupies one response, of 256 KiB or one revision, and a number. Those that begin with the same
present state share its pages. When the window has moved past a caller, or one response could not be sent for
`write_seconds_max`, the stream is cut as ABORTED and names the revision from which the next one goes on. Each stream is a task of
gRPC's; `close` ends them all with UNAVAILABLE and the same.

Cost: one wake-up a stream for each delivery of its kind, fewer when it is behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from rayched.api.kinds import EVENT
from rayched.server.errors import ApiFailure, Code, invalid, unavailable, watch_ended
from rayched.server.rpc import Call
from rayched.server.watching.changes import EventEncoder, ObjectChange, bookmark, unreadable_object, up_to
from rayched.server.watching.history import History, HistoryGone
from rayched.server.watching.node_index import select_node
from rayched.server.watching.open_streams import OpenStreams
from rayched.server.watching.present_pages import PresentViews
from rayched.server.watching.selection import Selection, select
from rayched.server.watching.subscriptions import BYTES_A_BATCH, EVENTS_A_BATCH, Batch, Loss, Lost, Subscription
from rayched.server.watching.watch_feed import WatchFeed
from rayched.server.watching.watch_hub import WatchHub
from rayched.v1.services_pb2 import WatchNodeRequest, WatchRequest


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """Bounds of the streams of one replica."""

    streams_max: int = 10_000
    bookmark_seconds: float = 10.0
    write_seconds_max: float = 10.0
    sync_seconds_max: float = 2.5
    histories_max: int = 32
    """Streams that read etcd's history at a time, each by a watch of its own: those of a replica that ended come all at once to
    another one, whose window may begin later. The others wait for their turn."""
    history_seconds_max: float = 60.0
    """Of one turn; a stream that is not done then is cut, and goes on from where it is."""


@dataclass(frozen=True, slots=True)
class WatchSource:
    """One prefix: its feed for the present, its history for the past."""

    feed: WatchFeed
    history: History


class WatchSources(Protocol):
    """Where streams come from."""

    def cluster(self) -> WatchSource: ...

    def events(self) -> WatchSource:
        """Of the kind Event; opened when first asked for."""

    async def revision(self) -> int:
        """The store's newest revision, by a linearizable read."""


WatchFence = Callable[[WatchHub], Awaitable[None]]
"""Asked before each response, all of which the hub has. Raises ApiFailure where the caller may see no more."""


@dataclass(slots=True, eq=False)
class _WatchCall:
    """One stream: its call, what it is about, and up to which revision everything was sent."""

    call: Call
    selection: Selection
    source: WatchSource
    revision: int
    fence: WatchFence | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)


class WatchService:
    """All streams of a replica."""

    def __init__(self, sources: WatchSources, encoder: EventEncoder, limits: WatchLimits | None = None) -> None:
        self._sources = sources
        self._encoder = encoder
        self._limits = limits or WatchLimits()
        self._streams = OpenStreams()
        self._views = PresentViews()
        self._histories = asyncio.Semaphore(self._limits.histories_max)

    @property
    def streams(self) -> int:
        return len(self._streams)

    async def watch(self, request: WatchRequest, call: Call) -> None:
        selection = select(request.kind, request.namespace, request.label_selector, request.field_selector)
        await self._open(selection, request.start_revision, call)

    async def watch_node(self, request: WatchNodeRequest, name: str, call: Call, fence: WatchFence) -> None:
        """As `watch`, of one node and the pods on it."""
        selection = select_node(name, takes_unreadable=request.takes_unreadable)
        await self._open(selection, request.start_revision, call, fence)

    async def _open(self, selection: Selection, start_revision: int, call: Call, fence: WatchFence | None = None) -> None:
        if start_revision < 0:
            raise invalid(f"start_revision: found {start_revision}, want 0 or the first revision to be sent")
        self._streams.refuse_when_closing()
        if len(self._streams) >= self._limits.streams_max:
            raise call.refused("watches", f"this replica serves {self._limits.streams_max} watches, and no more")
        call.counts_as_watch(wide=selection.by_key)
        source = self._sources.events() if selection.kind is EVENT else self._sources.cluster()
        stream = _WatchCall(call, selection, source, max(start_revision - 1, 0), fence)
        await self._streams.run(lambda: self._run(stream, start_revision), lambda: _watch_elsewhere(stream))

    async def close(self) -> None:
        """Ends all streams; new ones are refused."""
        await self._streams.close()

    async def _run(self, stream: _WatchCall, start_revision: int) -> None:
        await self._synced(stream.source.feed)
        if start_revision:
            await self._must_have_happened(stream, start_revision)
            await stream.call.accept()
            subscription = self._subscribe(stream, stream.revision)
        else:
            await stream.call.accept()
            subscription = await self._send_present_state(stream)
        stream.call.settled()
        if subscription is None:
            subscription = await self._catch_up(stream)
        try:
            await self._follow(stream, subscription)
        finally:
            subscription.close()

    async def _synced(self, feed: WatchFeed) -> None:
        try:
            async with asyncio.timeout(self._limits.sync_seconds_max):
                await feed.synced.wait()
        except TimeoutError:
            raise unavailable("this replica has not read the cluster's state from etcd yet") from None
        if feed.failed.is_set():
            raise unavailable("this replica's own watch of etcd has failed; ask another one")

    async def _must_have_happened(self, stream: _WatchCall, start_revision: int) -> None:
        """A start right after the newest revision is the ordinary case; the hub may lag behind what the caller has seen."""
        if start_revision <= stream.source.feed.hub.revision + 1:
            return
        revision = await self._sources.revision()
        if start_revision > revision + 1:
            text = f"start_revision: {start_revision} is in the future, the store is at {revision}; list again"
            raise watch_ended(Code.OUT_OF_RANGE, text, 0, revision + 1)

    def _subscribe(self, stream: _WatchCall, after_revision: int) -> Subscription | None:
        return stream.source.feed.hub.subscribe(stream.selection, after_revision, stream.ready.set)

    # ---- the present

    async def _send_present_state(self, stream: _WatchCall) -> Subscription | None:
        hub, selection = stream.source.feed.hub, stream.selection
        view, revision, unreadable = self._views.of(hub, selection), hub.revision, hub.unreadable(selection)
        subscription = self._subscribe(stream, revision)
        try:
            if unreadable:
                await self._write(stream, b"".join(unreadable_object(key, selection) for key in unreadable))
            at = 0
            while at < len(view):
                page = await view.page(at)
                if page.content:
                    await self._write(stream, page.content)
                at = page.end
            await self._write(stream, bookmark(revision))
            stream.revision = revision
        except BaseException:
            if subscription is not None:
                subscription.close()
            raise
        return subscription

    async def _follow(self, stream: _WatchCall, subscription: Subscription) -> None:
        """Sends what the hub has, until it raises."""
        bookmark_due = False
        while True:
            stream.ready.clear()
            match subscription.read():
                case Batch(events, revision, more):
                    if events:
                        await self._write(stream, b"".join((*events, up_to(revision))))
                    elif bookmark_due and not more:
                        await self._write(stream, bookmark(revision))
                    stream.revision = revision
                    if more:
                        await asyncio.sleep(0)
                    else:
                        bookmark_due = not await self._something_to_read(stream)
                case Lost(Loss.FAILED):
                    raise _watch_elsewhere(stream, "this replica's own watch of etcd has failed")
                case Lost(Loss.SLOW):
                    raise _too_slow(stream)
                case Lost(Loss.RELISTED):
                    revision = stream.source.feed.hub.revision
                    text = (
                        f"this replica had to read etcd anew, at revision {revision}: etcd was restored, or compacted; list again"
                    )
                    raise watch_ended(Code.OUT_OF_RANGE, text, 0, revision + 1)

    async def _something_to_read(self, stream: _WatchCall) -> bool:
        """Waits for it; False when that takes so long that the caller wants a sign."""
        try:
            async with asyncio.timeout(self._limits.bookmark_seconds):
                await stream.ready.wait()
        except TimeoutError:
            return False
        return True

    # ---- the past

    async def _catch_up(self, stream: _WatchCall) -> Subscription:
        """Sends etcd's history until the hub's window takes over, once it is this stream's turn."""
        async with self._histories:
            try:
                async with asyncio.timeout(self._limits.history_seconds_max):
                    return await self._send_history(stream)
            except TimeoutError:
                raise _too_slow(stream) from None

    async def _send_history(self, stream: _WatchCall) -> Subscription:
        history = stream.source.history.after(stream.revision)
        try:
            async for changes in history:
                for part in _parts_of_changes(changes, stream.selection, self._encoder):
                    if part.events:
                        await self._write(stream, b"".join((*part.events, up_to(part.revision))))
                    stream.revision = part.revision
                subscription = self._subscribe(stream, stream.revision)
                if subscription is not None:
                    return subscription
            raise unavailable("etcd closed a watch; watch again")
        except HistoryGone as error:
            first = min(error.first_available, stream.source.feed.hub.floor + 1)
            text = f"revision {stream.revision + 1} was compacted, the first one available is {first}; list again"
            raise watch_ended(Code.OUT_OF_RANGE, text, stream.revision + 1, first) from None
        finally:
            await history.aclose()

    async def _write(self, stream: _WatchCall, response: bytes) -> None:
        if stream.fence is not None:
            await stream.fence(stream.source.feed.hub)
        try:
            async with asyncio.timeout(self._limits.write_seconds_max):
                await stream.call.write(response)
        except TimeoutError:
            raise _too_slow(stream) from None


def _watch_elsewhere(stream: _WatchCall, why: str = "this replica is shutting down") -> ApiFailure:
    resume = stream.revision + 1 if stream.revision else 0
    return watch_ended(Code.UNAVAILABLE, f"{why}; watch on from revision {resume} elsewhere", resume)


def _too_slow(stream: _WatchCall) -> Exception:
    resume = stream.revision + 1 if stream.revision else 0
    return watch_ended(Code.ABORTED, f"this watch was read too slowly; watch on from revision {resume}", resume)


def _parts_of_changes(changes: list[ObjectChange], selection: Selection, encoder: EventEncoder) -> Iterator[Batch]:
    """Batches of whole revisions; the last one reaches the last change even without an event."""
    events: list[bytes] = []
    size = 0
    for index, change in enumerate(changes):
        if selection.covers(change.key):
            event = encoder.encode(change, selection)
            if event is not None:
                events.append(event)
                size += len(event)
        last = index + 1 == len(changes)
        full = len(events) >= EVENTS_A_BATCH or size >= BYTES_A_BATCH
        if last or (full and changes[index + 1].revision != change.revision):
            yield Batch(events, change.revision, not last)
            events, size = [], 0
