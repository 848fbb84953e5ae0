"""What happened in etcd after a revision that the hub no longer remembers: a private watch that starts in the past.

Gives whole revisions in order, each change with the state before it (etcd looks that up in its history). It goes on with new
changes as they come, so its reader is free to leave for the hub at any revision that both have.

When part of the history was compacted, before or while reading, HistoryGone names the first revision from which a watch misses
nothing. That is the one after the compaction: of the compacted revision itself etcd keeps the values, but not the deletions.

Source: etcd API v3. Cost: a stream and a watch in etcd for each reader, and the decoding of all changes under the prefix.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import grpc

from leader.etcd_shim import kv, rpc
from rayched.server.watching.changes import ObjectChange
from rayched.store.entries import Entry, entry_of
from rayched.store.errors import Compacted, StoreUnavailable, store_error
from rayched.store.keys import Keys, ObjectKey, prefix_end
from rayched.store.list_watch_effects import STREAM_METADATA

_READ_SECONDS_MAX: Final = 2.5
_NO_OBJECT: Final = ObjectKey("", "", "")
"""Key of a change of something else, such as the epoch: its revision counts, no selection covers it."""


class HistoryGone(Exception):
    """Changes asked for were compacted; a watch can begin at `first_available`."""

    def __init__(self, first_available: int) -> None:
        super().__init__(f"the first revision available is {first_available}")
        self.first_available = first_available


class History:
    """Reads the past of one prefix."""

    def __init__(self, channel: Any, keys: Keys, prefix: bytes) -> None:
        self._kv, self._watch = rpc.KVStub(channel), rpc.WatchStub(channel)
        self._keys = keys
        self._prefix, self._range_end = prefix, prefix_end(prefix)

    async def after(self, revision: int) -> AsyncGenerator[list[ObjectChange], None]:
        """All changes after `revision`, whole revisions at a time, without end. Raises HistoryGone and StoreErrors."""
        # Nothing is ever written at revision 1, and 0 would ask etcd for the present.
        revision = max(revision, 1)
        try:
            await self._must_be_kept(revision)
            async for changes in self._follow(revision):
                yield changes
        except Compacted as error:
            raise HistoryGone(await self._first_available(error.compact_revision)) from None

    async def _must_be_kept(self, revision: int) -> None:
        """Raises Compacted when the state at `revision` is gone: then a deletion right after it may be gone as well."""
        # Any key will do, one that is never there too.
        request = rpc.RangeRequest(key=self._prefix, revision=revision, count_only=True)
        try:
            await self._kv.Range(request, timeout=_READ_SECONDS_MAX)
        except grpc.RpcError as error:
            raise store_error(error) from None

    async def _follow(self, revision: int) -> AsyncGenerator[list[ObjectChange], None]:
        held: list[ObjectChange] = []
        async for message in self._messages(revision + 1):
            # Before etcd 3.5.22 a watch could get events from before its start.
            held.extend(self._change_of(event) for event in message.events if event.kv.mod_revision > revision)
            if not held:
                continue
            newest = held[-1].revision
            complete = len(held)
            if message.fragment:
                complete = next(index for index, change in enumerate(held) if change.revision == newest)
            if complete:
                yield held[:complete]
                held = held[complete:]

    async def _messages(self, start_revision: int) -> AsyncGenerator[Any, None]:
        create = rpc.WatchCreateRequest(
            key=self._prefix, range_end=self._range_end, start_revision=start_revision, prev_kv=True, fragment=True
        )
        call = self._watch.Watch(metadata=STREAM_METADATA)
        try:
            await call.write(rpc.WatchRequest(create_request=create))
            async for message in call:
                if message.compact_revision:
                    raise Compacted("etcd: compacted", message.compact_revision)
                if message.canceled:
                    raise StoreUnavailable(f"etcd cancelled a watch: {message.cancel_reason}")
                yield message
            raise StoreUnavailable("etcd closed a watch")
        except grpc.RpcError as error:
            raise store_error(error) from None
        finally:
            call.cancel()

    async def _first_available(self, compact_revision: int) -> int:
        """The revision after the last compaction; asks etcd for it where it is not known."""
        if not compact_revision:
            try:
                async with asyncio.timeout(_READ_SECONDS_MAX):
                    async for message in self._messages(1):
                        if message.events:
                            break
            except Compacted as error:
                compact_revision = error.compact_revision
            except TimeoutError:
                raise StoreUnavailable("etcd: no answer about its last compaction") from None
        return compact_revision + 1

    def _change_of(self, event: Any) -> ObjectChange:
        """Raises Compacted when etcd no longer has the state before."""
        pair = event.kv
        key = self._keys.parse(pair.key)
        deleted = event.type == kv.Event.DELETE
        before = entry_of(event.prev_kv) if event.HasField("prev_kv") else None
        if before is None and (deleted or pair.create_revision != pair.mod_revision):
            raise Compacted("etcd: the state before a change was compacted")
        after: Entry | None = None if deleted else entry_of(pair)
        return ObjectChange(key or _NO_OBJECT, pair.mod_revision, before, after)
