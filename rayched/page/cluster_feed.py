"""What one reader of the page sees, in however many windows: usage, the scheduler's figures, leaders, Events.

    nodes, pods     what a replica has in memory, then the watch of all kinds from there: columns exact as of a revision
    scheduler       GetSchedulerStatus once a second
    leader          WatchLeader
    Events          a list, then their watch

What the reader may not see is denied by the replica, and not shown: `denied` has it, and what was known of it is forgotten. Where
the reader's credential counts no more the feed is over, and streams of it end.

It is followed while somebody looks, and half a minute longer; a gateway whose page nobody opens asks for nothing. What breaks
begins anew: nothing here is a truth.

Owner: the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import grpc

from rayched.api import kinds
from rayched.api.columns import event_time
from rayched.client.async_client import AsyncClient
from rayched.client.errors import ApiError
from rayched.client.watching import EventType
from rayched.page.histories import LeaderTimeline, Sample, StatusHistory
from rayched.page.recent_events import RecentEvents
from rayched.page.usage_columns import UsageColumns
from rayched.v1.core_pb2 import Event, Node, Pod
from rayched.v1.services_pb2 import GetSchedulerStatusResponse

_log = logging.getLogger(__name__)

STATUS_SECONDS: Final = 1.0
IDLE_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 1.0
_DENIED_AGAIN_SECONDS: Final = 10.0
"""Until it is asked for again what the reader may not see, or did not see then."""
_ANSWER_SECONDS: Final = 2.0
"""How long a replica may take to say how the scheduler is doing before readers are told that none answers."""
_ABOUT_THE_READER: Final = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_TOPIC_OF: Final = {
    "_follow_usage": "usage",
    "_follow_status": "status",
    "_follow_leader": "leader",
    "_follow_events": "events",
}


class ClusterFeed:
    """See the module. Readers stand in a `with watched()` while they look."""

    def __init__(self, client: AsyncClient, clock: Callable[[], float]) -> None:
        """`clock` gives Unix seconds."""
        self._client = client
        self._clock = clock
        self._readers = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._ending: asyncio.TimerHandle | None = None
        self.over = ""
        """Why the reader is nobody any more; "": they are somebody."""
        self._begin()

    def _begin(self) -> None:
        """As nobody has looked yet."""
        self.usage = UsageColumns()
        self.has_usage = False
        """All nodes and pods have been seen once."""
        self.history = StatusHistory()
        self.timeline = LeaderTimeline()
        self.events = RecentEvents()
        self.status: GetSchedulerStatusResponse | None = None
        self.sample: Sample | None = None
        self.samples = 0
        self.problem = ""
        """Why what is shown is old; "" where it is not."""
        self.since = self._clock()
        self.denied: frozenset[str] = frozenset()
        """Topics of streaming.py that the reader may not see."""

    @property
    def is_followed(self) -> bool:
        return bool(self._tasks)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        self._readers += 1
        if not self._tasks:
            self._begin()
            follow = (self._follow_usage, self._follow_status, self._follow_leader, self._follow_events)
            self._tasks = [asyncio.create_task(self._again(one)) for one in follow]
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self._ending = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._stop)

    async def close(self) -> None:
        tasks = self._stop()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _stop(self) -> list[asyncio.Task[None]]:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        return tasks

    # ---------------------------------------------------------------------------------------------------------- private

    async def _again(self, follow: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await follow()
            except ApiError as error:
                _log.info("the page begins anew with %s: %s", follow.__name__.strip("_"), error)
                if error.code is grpc.StatusCode.UNAUTHENTICATED:
                    self.over = error.message
                    return
                if error.code is grpc.StatusCode.PERMISSION_DENIED:
                    self._deny(_TOPIC_OF[follow.__name__])
                    await asyncio.sleep(_DENIED_AGAIN_SECONDS)
            except Exception as error:
                # A reader is told; the others' pictures go on.
                self.problem = "internal error; the gateway's log has the cause"
                _log.error("%s failed: %s", follow.__name__.strip("_"), error, exc_info=error)
            await asyncio.sleep(_AGAIN_SECONDS)

    def _deny(self, topic: str) -> None:
        """Forgets what was known, from when it was allowed."""
        self.denied |= {topic}
        match topic:
            case "usage":
                self.usage, self.has_usage = UsageColumns(), False
            case "status":
                self.status, self.sample, self.history = None, None, StatusHistory()
            case "events":
                self.events = RecentEvents()
            case "leader":
                self.timeline = LeaderTimeline()

    async def _follow_usage(self) -> None:
        usage = self.usage
        self.has_usage = False
        usage.clear()
        async with aclosing(self._client.cached(None)) as present:
            async for event in present:
                if event.object is not None:
                    self._see(event.object)
                usage.revision = event.revision
        self.has_usage = True
        self.denied -= {"usage"}
        async with self._client.watch(None, start_revision=usage.revision + 1, bookmarks=True) as events:
            async for event in events:
                if event.type is EventType.DELETED:
                    self._forget(event.object)
                else:
                    self._see(event.object)
                usage.revision = event.revision

    def _see(self, item: Any) -> None:
        if isinstance(item, Pod):
            self.usage.see_pod(item)
        elif isinstance(item, Node):
            self.usage.see_node(item)

    def _forget(self, item: Any) -> None:
        if isinstance(item, Pod):
            self.usage.forget_pod(item.metadata.uid)
        elif isinstance(item, Node):
            self.usage.forget_node(item.metadata.name)

    async def _follow_status(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                self.status = await self._client.scheduler_status(timeout_seconds=_ANSWER_SECONDS)
            except ApiError as error:
                if error.code in _ABOUT_THE_READER:
                    raise
                self.history.miss()
                self.problem = str(error)
            else:
                self.sample = self.history.see(self.status, self._clock())
                self.samples += 1
                self.problem = ""
                self.denied -= {"status"}
            await asyncio.sleep(max(0.1, STATUS_SECONDS - (loop.time() - began)))

    async def _follow_leader(self) -> None:
        async with self._client.watch_leader() as leaders:
            async for leader in leaders:
                self.denied -= {"leader"}
                self.timeline.see(leader.holder, leader.epoch, leader.acquired_at_ms / 1000, self._clock())

    async def _follow_events(self) -> None:
        listing = await self._client.list_all(kinds.EVENT)
        self.denied -= {"events"}
        for item in sorted((item for item in listing.objects if isinstance(item, Event)), key=event_time):
            self.events.see(item)
        async with self._client.watch(kinds.EVENT, start_revision=listing.revision + 1) as events:
            async for event in events:
                if isinstance(event.object, Event) and event.type is not EventType.DELETED:
                    self.events.see(event.object)
