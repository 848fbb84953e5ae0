"""A watch service over a cluster that a test tells of: a real feed and hub, which nothing feeds but the test."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
import grpc.aio

from rayched.api.kinds import POD, wrap
from rayched.server.services.watch_service import WatchLimits, WatchService, WatchSource
from rayched.server.watching.changes import EventEncoder
from rayched.server.watching.history import History
from rayched.server.watching.watch_feed import WatchFeed
from rayched.server.watching.watch_hub import WatchHub
from rayched.store.codec import encode
from rayched.store.entries import Entry
from rayched.store.keys import Keys
from tests.server.objects import a_pod

KEYS = Keys()


def fat(number: int, revision: int, size: int = 240 << 10) -> Entry:
    pod = a_pod(f"pod-{number}", namespace="default")
    pod.metadata.annotations["a"] = f"{number % 10}" * size
    return Entry(KEYS.object_key(POD, "default", f"pod-{number}"), encode(wrap(pod)), revision, revision)


@dataclass
class Followed:
    """A cluster that a test tells of, with a feed that nothing feeds but the test."""

    limits: WatchLimits

    def __call__(self) -> WatchService:
        # Nobody listens there, and nothing connects before the feed is started.
        self.feed = WatchFeed(grpc.insecure_channel("127.0.0.1:1"), KEYS.cluster_prefix, WatchHub(KEYS.parse, EventEncoder()))
        self.feed.hub.listed([fat(number, 5) for number in range(8)], 5)
        self.feed.synced.set()
        history = History(grpc.aio.insecure_channel("127.0.0.1:1"), KEYS, KEYS.cluster_prefix)
        self.source = WatchSource(self.feed, history)
        return WatchService(self, EventEncoder(), self.limits)

    def cluster(self) -> WatchSource:
        return self.source

    def events(self) -> WatchSource:
        return self.source

    async def revision(self) -> int:
        return self.feed.hub.revision
