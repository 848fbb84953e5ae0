"""Keeps a server's table of role bindings as etcd has it, and lets open streams be judged again after each change.

A watch of its own follows `<root>/access/bindings/`, at every replica, whoever leads. While etcd is away the last state counts.
A feed that fails by a bug would go on with rights that were taken away long ago: so `failed` tells, and the server ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

import grpc

from rayched.server.call_guard import CallGuard
from rayched.store.entries import Change, Entry
from rayched.store.io.watcher import Watcher
from rayched.store.list_watch_effects import Broken, Changed, Delivery, ListedAll, Resumed

_log: Final = logging.getLogger(__name__)


class BindingFeed:
    """From `start` to `stop`; both are called on the event loop."""

    def __init__(self, channel: grpc.Channel, prefix: bytes, guard: CallGuard, failed: asyncio.Event) -> None:
        """`failed` is set by a bug, after which the server must not go on."""
        self._guard = guard
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._told: list[str] = []
        self._watcher = Watcher(channel, prefix, self._deliver, on_failure=self._on_failure)

    def start(self) -> None:
        self._watcher.start()

    async def stop(self) -> None:
        await asyncio.to_thread(self._watcher.stop)

    def deliver(self, delivery: Delivery) -> None:
        """On the loop."""
        table = self._guard.authorizer.table
        match delivery:
            case ListedAll(entries):
                table.listed({entry.key: entry.value for entry in entries})
            case Changed(changes):
                table.changed(_values(changes))
            case Broken():
                _log.warning("the watch of the role bindings broke (%s): %s", delivery.reason.value, delivery.message)
                return
            case Resumed():
                return
        self._tell(table.problems)
        self._guard.judge_open_streams()

    def _tell(self, problems: list[str]) -> None:
        for problem in problems:
            if problem not in self._told:
                _log.error("%s", problem)
        self._told = problems

    def _deliver(self, delivery: Delivery) -> None:
        """On the watcher's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, delivery)

    def _take(self, delivery: Delivery) -> None:
        try:
            self.deliver(delivery)
        except Exception:
            _log.critical("the table of role bindings failed at a delivery; it is over", exc_info=True)
            self._failed.set()

    def _on_failure(self, _: BaseException) -> None:
        """On the watcher's thread, which has logged the error."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._failed.set)


def _values(changes: Iterable[Change]) -> Iterable[tuple[bytes, bytes | None]]:
    return ((change.key, change.value if isinstance(change, Entry) else None) for change in changes)
