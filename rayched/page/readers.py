"""Who reads the page: each reader has a client that asks in their name, and a feed of their own.

What is followed is asked of replicas in the reader's name and shown to whoever shows the same credential, so no reader sees
through what is kept what the policy denies them. Feeds end half a minute after the last look, and there are at most FEEDS_MAX.

Where there are no certificates all readers are nobody in particular, and have one feed.

Owner: the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from rayched.client.async_client import AsyncClient
from rayched.page.cluster_feed import ClusterFeed

FEEDS_MAX: Final = 32
"""Each has the columns of all nodes, and what pods take up."""


class ReaderRefused(Exception):
    """A request is not answered. The message is for a person."""

    def __init__(self, code: int, message: str) -> None:
        """`code`: of HTTP."""
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class PageReader:
    """Of one request."""

    key: str
    """Differs for each credential; no secret is in it."""
    client: AsyncClient
    """Asks in the reader's name."""
    token: str = field(default="", repr=False)
    """That the reader has shown; empty: a certificate, or nothing."""


ReaderOf = Callable[[web.Request], Awaitable[PageReader]]
"""Raises ReaderRefused."""


class ReadersFeeds:
    """By reader."""

    def __init__(self, clock: Callable[[], float], replica_client: Callable[[str], AsyncClient]) -> None:
        """`clock` gives Unix seconds. `replica_client`: asks the replica at an address alone."""
        self._clock = clock
        self._replica_client = replica_client
        self._feeds: dict[str, ClusterFeed] = {}

    def of(self, reader: PageReader) -> ClusterFeed:
        """Raises ReaderRefused where there are too many."""
        found = self._feeds.get(reader.key)
        if found is not None and not found.over:
            return found
        self._feeds = {key: feed for key, feed in self._feeds.items() if feed.is_followed and not feed.over}
        if len(self._feeds) >= FEEDS_MAX:
            raise ReaderRefused(503, f"{FEEDS_MAX} readers look at the page, which is as many as may; try again later")

        def replicas() -> Iterable[AsyncClient]:
            return map(self._replica_client, reader.client.endpoints)

        made = self._feeds[reader.key] = ClusterFeed(reader.client, self._clock, replicas)
        return made

    async def close(self) -> None:
        for feed in self._feeds.values():
            await feed.close()
