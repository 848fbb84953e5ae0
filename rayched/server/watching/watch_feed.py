"""Carries the deliveries of the store's watcher from its thread into a hub on the event loop.

At most `_DELIVERIES_MAX` deliveries wait for the loop; then the watcher's thread waits, and flow control holds the rest back in
etcd. The loop's thread is the only one that touches the hub. What the hub has taken goes on to those who follow beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

import grpc

from rayched.server.watching.followers import WatchSubscriber
from rayched.server.watching.subscriptions import Loss
from rayched.server.watching.watch_hub import WatchHub
from rayched.store.entries import Change, Entry
from rayched.store.following import Following
from rayched.store.io.watcher import Handler, Watcher
from rayched.store.list_watch_effects import Broken, Changed, Delivery, ListedAll, Resumed
from rayched.v1.workloads_pb2 import Object

_log = logging.getLogger(__name__)

_DELIVERIES_MAX: Final = 64
_LOOK_SECONDS: Final = 0.5


class WatchFeed:
    """Keeps one hub fed from `start` to `stop`; both are called on the event loop."""

    def __init__(
        self, channel: grpc.Channel, prefix: bytes, hub: WatchHub, changed: Callable[[Sequence[Change]], None] | None = None
    ) -> None:
        """`changed` is told of each delivery of changes, on the loop, before the hub is."""
        self.hub = hub
        self._changed = changed
        self.synced = asyncio.Event()
        """Set once the first list has arrived."""
        self.listed = asyncio.Event()
        """Set at each list; whoever looks after what it brought clears it."""
        self.failed = asyncio.Event()
        """Set when the watcher or the hub failed by a bug: the hub is no longer fed, and its subscriptions are over."""
        self._loop = asyncio.get_running_loop()
        self._free = threading.BoundedSemaphore(_DELIVERIES_MAX)
        self._stopping = False
        self._prefix = prefix
        self._followers: set[WatchSubscriber] = set()
        self._watcher = Watcher(channel, prefix, self._deliver, on_failure=self._on_failure)

    def start(self) -> None:
        self._watcher.start()

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.to_thread(self._watcher.stop)
        self._end_followers()

    def follow(self, prefix: bytes, handler: Handler) -> Following:
        """As ClusterChanges; from any thread. Once the feed has ended, nobody who follows it is alive."""
        return WatchSubscriber(None if prefix == self._prefix else prefix, handler, self._ask, self._leave)

    def decode(self, entry: Entry) -> Object:
        """As ClusterChanges; from any thread."""
        return self.hub.encoder.decode(entry)

    def _deliver(self, delivery: Delivery) -> None:
        """On the watcher's thread."""
        while not self._free.acquire(timeout=_LOOK_SECONDS):
            if self._stopping:
                return
        self._on_loop(delivery)

    def _on_loop(self, delivery: Delivery) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, delivery)

    def _take(self, delivery: Delivery) -> None:
        """On the loop."""
        try:
            if not self.failed.is_set():
                self.deliver(delivery)
        except Exception:
            # A hub that missed a delivery must not go on: what it holds is not the cluster's state any more.
            _log.critical("the hub failed at a delivery; the watch is over", exc_info=True)
            self._fail()
        finally:
            self._free.release()

    def deliver(self, delivery: Delivery) -> None:
        """To the hub and to those who follow; on the loop."""
        match delivery:
            case Changed():
                if self._changed is not None:
                    self._changed(delivery.changes)
                self.hub.changed(delivery.changes, delivery.revision)
            case ListedAll():
                self.hub.listed(delivery.entries, delivery.revision)
                self.synced.set()
                self.listed.set()
            case Broken():
                _log.warning("the watch of etcd broke (%s): %s", delivery.reason.value, delivery.message)
            case Resumed():
                pass
        for follower in tuple(self._followers):
            follower.offer(delivery)

    def _on_failure(self, _: BaseException) -> None:
        """On the watcher's thread, which has logged the error."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._fail)

    def _fail(self) -> None:
        self.failed.set()
        self.hub.lose_all(Loss.FAILED)
        self._end_followers()

    # ---- followers

    def _ask(self, follower: WatchSubscriber) -> None:
        """On the follower's thread."""
        try:
            self._loop.call_soon_threadsafe(self._list_to, follower)
        except RuntimeError:
            # The loop is closed.
            follower.end()

    def _leave(self, follower: WatchSubscriber) -> None:
        """On the follower's thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._followers.discard, follower)

    def _list_to(self, follower: WatchSubscriber) -> None:
        """On the loop. Before the first list has arrived it is that which the follower gets."""
        if self._stopping or self.failed.is_set():
            follower.end()
            return
        self._followers.add(follower)
        if self.synced.is_set():
            follower.offer(ListedAll(tuple(self.hub.everything()), self.hub.revision))

    def _end_followers(self) -> None:
        for follower in self._followers:
            follower.end()
