"""Keeps a server's tables of who may what as etcd has them: role bindings, tokens, who is refused. Open streams are judged
after what may end them, JUDGE_SECONDS later at the latest: many changes are one to them. A token that is made ends none, and one
that goes those of tokens alone, so whoever makes and ends tokens all the time holds up nobody.

A watch of its own follows `<root>/access/`, at every replica, whoever leads. While etcd is away the last state counts, but a
token that is not in it may be a new one. A feed that fails by a bug would go on with rights that were taken away long ago: so
`failed` tells, and the server ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

import grpc

from rayched.access.binding_table import BindingTable
from rayched.access.revocations import RevocationTable
from rayched.access.tokens import TokenTable
from rayched.server.call_guard import CallGuard
from rayched.store.entries import Change, Entry
from rayched.store.io.watcher import Watcher
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Broken, Changed, Delivery, ListedAll, Resumed

JUDGE_SECONDS: Final = 0.1

_log: Final = logging.getLogger(__name__)


class AccessFeed:
    """From `start` to `stop`; both are called on the event loop."""

    def __init__(self, channel: grpc.Channel, keys: Keys, guard: CallGuard, failed: asyncio.Event) -> None:
        """`failed` is set by a bug, after which the server must not go on."""
        self._guard = guard
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._told: list[str] = []
        self._judging: asyncio.TimerHandle | None = None
        self._judges_all = False
        """Not those of tokens alone."""
        self._tables: dict[bytes, BindingTable | TokenTable | RevocationTable] = {
            keys.bindings_prefix: guard.authorizer.table,
            keys.tokens_prefix: guard.tokens,
            keys.revoked_prefix: guard.revoked,
        }
        self._watcher = Watcher(channel, keys.access_prefix, self._deliver, on_failure=self._on_failure)

    def start(self) -> None:
        self._watcher.start()

    async def stop(self) -> None:
        await asyncio.to_thread(self._watcher.stop)
        if self._judging is not None:
            self._judging.cancel()

    def deliver(self, delivery: Delivery) -> None:
        """On the loop."""
        match delivery:
            case ListedAll(entries):
                for prefix, table in self._tables.items():
                    table.listed({entry.key: entry.value for entry in entries if entry.key.startswith(prefix)})
                self._judge_soon(everybody=True)
            case Changed(changes):
                for prefix, table in self._tables.items():
                    mine = [change for change in changes if change.key.startswith(prefix)]
                    if not mine:
                        continue
                    table.changed(_values(mine))
                    if table is not self._guard.tokens:
                        self._judge_soon(everybody=True)
                    elif not all(map(_is_new, mine)):
                        self._judge_soon(everybody=False)
                self._guard.tokens.is_current = True
            case Broken():
                self._guard.tokens.is_current = False
                _log.warning("the watch of who may what broke (%s): %s", delivery.reason.value, delivery.message)
                return
            case Resumed():
                self._guard.tokens.is_current = True
                return
        self._tell([problem for table in self._tables.values() for problem in table.problems])

    def _judge_soon(self, *, everybody: bool) -> None:
        self._judges_all = self._judges_all or everybody
        if self._judging is None:
            self._judging = self._loop.call_later(JUDGE_SECONDS, self._judge)

    def _judge(self) -> None:
        everybody, self._judges_all, self._judging = self._judges_all, False, None
        try:
            self._guard.judge_open_streams(of_tokens_alone=not everybody)
        except Exception:
            _log.critical("open streams could not be judged anew", exc_info=True)
            self._failed.set()

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
            _log.critical("the tables of who may what failed at a delivery; they are over", exc_info=True)
            self._failed.set()

    def _on_failure(self, _: BaseException) -> None:
        """On the watcher's thread, which has logged the error."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._failed.set)


def _is_new(change: Change) -> bool:
    return isinstance(change, Entry) and change.create_revision == change.mod_revision


def _values(changes: Iterable[Change]) -> list[tuple[bytes, bytes | None]]:
    return [(change.key, change.value if isinstance(change, Entry) else None) for change in changes]
