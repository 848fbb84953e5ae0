"""The page's stream: server-sent events, of which each reader is sent what is new since its last ones were taken.

    hello     once: the assets' version, the server's time, since when histories are kept, whether there is a problem
    status    once a second, and once zones are known: sample, who leads, figures of the scheduler, zones
    history   once: samples of the last hour
    leader    the terms, and the writes that were fenced, when they change
    usage     columns of all nodes, then rows that changed, at most four times a second
    events    Events, once each as they are now
    denied    topics that the reader may not see, when they change: what was shown of them is to be forgotten
    problem   no replica answers: what is shown is old; "" when it is over

Nothing is queued: what is new is put together after the socket took what was sent before, so that a slow reader costs one
message and gets fewer of them. Source: the format of server-sent events in the HTML standard.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from aiohttp import web

from rayched.page.cluster_feed import ClusterFeed
from rayched.page.guarding import HEADERS
from rayched.page.histories import QUEUES

TICK_SECONDS: Final = 0.25
ALL_COLUMNS_SECONDS: Final = 1.0
"""Between two times that a reader is sent all columns, while nodes come and go."""
_SILENCE_SECONDS: Final = 10.0
_COMMENT: Final = b": nothing new\n\n"
TOPICS: Final = ("usage", "status", "leader", "events")


class PageStream:
    """One reader: what it has been sent."""

    def __init__(self, feed: ClusterFeed, topics: frozenset[str], version: str, clock: Callable[[], float]) -> None:
        self._feed = feed
        self._topics = topics
        self._version = version
        self._clock = clock
        self._greeted = False
        self._problem = ""
        self._denied: frozenset[str] = frozenset()
        self._usage: Any = None
        """The columns that the sequence counts in: they begin anew where nobody looked for a while."""
        self._usage_at = 0
        self._all_columns_at = 0.0
        self._status_of = (-1, False)
        """How many samples there were, and whether zones were known."""
        self._terms = -1
        self._recent: Any = None
        """The Events that the sequence counts in."""
        self._events = 0

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Until the reader goes, or is nobody any more."""
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        while not self._feed.over:
            news = b"".join(self.news(loop.time()))
            if not news and loop.time() - sent_at >= _SILENCE_SECONDS:
                news = _COMMENT
            if news:
                # Waits while the socket has more than it takes.
                await response.write(news)
                sent_at = loop.time()
            await self._feed.pause(TICK_SECONDS)
        await response.write_eof()
        return response

    def news(self, now: float) -> Iterator[bytes]:
        """What has happened since it was asked last. `now`: seconds of any clock that only grows."""
        feed = self._feed
        if not self._greeted:
            self._greeted = True
            yield _frame("hello", {"version": self._version, "now": self._clock(), "since": feed.since})
            if "status" in self._topics:
                yield _frame("history", feed.history.plain())
        if self._problem != feed.problem:
            self._problem = feed.problem
            yield _frame("problem", {"text": feed.problem})
        if self._denied != feed.denied:
            self._denied = feed.denied
            yield _frame("denied", {"topics": sorted(feed.denied & self._topics)})
        if "leader" in self._topics and self._terms != feed.timeline.sequence:
            self._terms = feed.timeline.sequence
            yield _frame("leader", feed.timeline.plain())
        if "status" in self._topics and self._status_of != (feed.samples, feed.has_usage) and feed.status is not None:
            self._status_of = (feed.samples, feed.has_usage)
            yield _frame("status", self._status())
        if "usage" in self._topics and feed.has_usage:
            yield from self._usage_news(now)
        if "events" in self._topics - feed.denied:
            yield from self._events_news()

    def _events_news(self) -> Iterator[bytes]:
        recent = self._feed.events
        anew = self._recent is not None and self._recent is not recent
        if self._recent is not recent:
            self._recent, self._events = recent, 0
        news = recent.since(self._events)
        self._events = recent.sequence
        if anew:
            # Those that were sent before may be of namespaces that the reader may not see any more.
            yield _frame("events", {"events": news, "anew": True})
        elif news:
            yield _frame("events", {"events": news})

    def _usage_news(self, now: float) -> Iterator[bytes]:
        usage = self._feed.usage
        if self._usage is not usage:
            self._usage, self._usage_at = usage, 0
        news = usage.since(self._usage_at)
        if news is None:
            return
        if "full" in news:
            if self._all_columns_at and now - self._all_columns_at < ALL_COLUMNS_SECONDS:
                return
            self._all_columns_at = now
        self._usage_at = usage.sequence
        yield _frame("usage", news, usage.revision)

    def _status(self) -> dict[str, Any]:
        status, feed = self._feed.status, self._feed
        assert status is not None
        return {
            "now": self._clock(),
            "sample": feed.sample,
            "holder": status.holder,
            "epoch": status.epoch,
            "revision": status.revision,
            "nodes": status.nodes,
            "bound": status.bound_pods,
            "assumed": status.assumed_pods,
            "pending": {queue: int(status.pending_pods[queue]) for queue in QUEUES if queue in status.pending_pods},
            "zones": [zone.plain() for zone in feed.usage.zones()] if feed.has_usage else [],
        }


def _frame(name: str, content: dict[str, Any], revision: int = 0) -> bytes:
    data = json.dumps(content, separators=(",", ":"))
    identity = f"id: {revision}\n" if revision else ""
    return f"event: {name}\n{identity}data: {data}\n\n".encode()
