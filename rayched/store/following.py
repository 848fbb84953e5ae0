"""What a loop of the leader asks for: the cluster's changes from some moment on, and objects decoded once for all who look.

A replica follows the cluster in one watch and hands its deliveries on (server/watching/watch_feed.py): another watch would cost
etcd, the wire and this process the same again for each change. `OwnWatches` opens a watch for each who asks, where there is no
replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from leader.channel import kept, open_channel
from rayched.store.codec import decode_entry
from rayched.store.entries import Entry
from rayched.store.io.watcher import Handler, Watcher
from rayched.v1.workloads_pb2 import Object


class Following(Protocol):
    """One who follows. The handler gets `ListedAll` first and then every change, on a thread of its own."""

    @property
    def alive(self) -> bool:
        """Deliveries go on. Once False it stays so, and a consumer that wants more follows anew."""

    def stop(self) -> None:
        """No delivery begins after the return; from within the handler, after the one under way. Idempotent."""


class ClusterChanges(Protocol):
    """Where changes come from. From any thread."""

    def follow(self, prefix: bytes, handler: Handler) -> Following:
        """Everything under a prefix, which is the cluster's or within it."""

    def decode(self, entry: Entry) -> Object:
        """The object of an entry that was delivered: shared, not to be changed. Raises PoisonedObject."""


class OwnWatches:
    """A watch and a connection for each who follows."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._endpoints = kept(endpoints)

    def follow(self, prefix: bytes, handler: Handler) -> Following:
        return _OwnWatch(open_channel(self._endpoints), prefix, handler)

    def decode(self, entry: Entry) -> Object:
        return decode_entry(entry)


class _OwnWatch:
    def __init__(self, channel: Any, prefix: bytes, handler: Handler) -> None:
        self._channel = channel
        self._watcher = Watcher(channel, prefix, handler)
        self._watcher.start()

    @property
    def alive(self) -> bool:
        return self._watcher.alive

    def stop(self) -> None:
        self._watcher.stop()
        self._channel.close()
