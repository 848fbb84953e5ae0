"""What a SchedulerActor has of etcd: where its transactions go, and who tells it what happens."""

from __future__ import annotations

from typing import Any, Protocol

from leader.member_channel import MemberChannel
from rayched.store.io.watcher import Watcher


class Transactions(Protocol):
    """Takes transactions without waiting for them."""

    def txn_future(self, request: bytes) -> Any:
        """A future of the response to a TxnRequest that is serialised, or of gRPC's own errors."""

    def grant_lease_future(self, ttl_seconds: int) -> Any:
        """The same of the LeaseGrantResponse."""


class Watch(Protocol):
    """Delivers everything that happens, on a thread of its own."""

    def start(self) -> None: ...

    def hurry(self) -> None:
        """There is something to deliver for sure: whoever does not tell it soon is not waited for."""


class ClusterWatch:
    """The watch of a scheduler that writes to these members: where it is waited for, they are about to be written to."""

    def __init__(self, watcher: Watcher, members: MemberChannel) -> None:
        self._watcher, self._members = watcher, members

    def start(self) -> None:
        self._watcher.start()

    def hurry(self) -> None:
        self._members.look_around()
        self._watcher.hurry()
