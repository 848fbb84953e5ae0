"""Collection of records of submissions whose object has been gone for an hour: the uid may then be used anew.

Each write is guarded by the epoch and by the record's own revision, like every write of a leader: a record that was renewed
meanwhile stays. A record whose object went while etcd took no puts (store/removals.py) has no last hour yet: it begins when it is
found. An object is that of a record when both were created by one transaction, so at one revision.

A pass over all records takes 15 minutes, in as many turns as there are shares of their uids: a record is read some five times
between its object's end and its own, however many there are. A share is a range of its own, not a page of the whole: etcd walks
over all keys from a page's first to the last of its range. It is read at no common revision, so a compaction ends no turn.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from google.protobuf.message import DecodeError

from rayched.api.kinds import UnknownKind, by_name
from rayched.store.entries import Entry
from rayched.store.io.client import StoreClient
from rayched.store.keys import Keys, KeyTextError, ObjectKey, prefix_end
from rayched.store.refusals import count_fenced_among
from rayched.store.removals import RECORD_KEPT_MS
from rayched.store.transactions import Committed, Guard, GuardedDelete, GuardedPut, Write
from rayched.v1.storage_pb2 import SubmissionRecord

SHARES: Final = 256
"""By the first two digits of a uid. What begins otherwise is in the share before it."""
PASS_SECONDS: Final = 900.0
_PAGE_LIMIT: Final = 500
"""A record takes some 350 bytes and 8 µs of the interpreter: a page some 175 KiB and 4 ms."""

IsThere = Callable[[ObjectKey, int], bool]
"""Whether the object with this key, created at this revision, is known to be there. False also where nothing is known."""

log = logging.getLogger(__name__)


class SubmissionGarbage:
    """A duty of the leader."""

    name: Final = "submission garbage"
    period_seconds: Final = PASS_SECONDS / SHARES

    def __init__(self, keys: Keys, is_there: IsThere, wall_clock: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._is_there = is_there
        self._wall_clock = wall_clock
        prefix = keys.submissions_prefix
        self._bounds = [prefix, *(prefix + b"%02x" % first for first in range(1, SHARES)), prefix_end(prefix)]
        self._share = 0

    def turn(self, store: StoreClient, epoch: int | None) -> None:
        """The next share."""
        if epoch is None:
            return
        guard = Guard(self._keys.epoch, epoch)
        start_key: bytes | None = self._bounds[self._share]
        end_key = self._bounds[self._share + 1]
        # Whatever becomes of this one: a share that fails shall not hold up the others.
        self._share = (self._share + 1) % SHARES
        removed = begun = 0
        while start_key is not None:
            page = store.list_page(self._keys.submissions_prefix, limit=_PAGE_LIMIT, start_key=start_key, end_key=end_key)
            start_key = page.next_key
            now_ms = int(self._wall_clock() * 1000)
            records = [(entry, record) for entry in page.entries if (record := _record_in(entry)) is not None]
            expired = [entry for entry, record in records if 0 < record.expires_at_ms <= now_ms]
            # Apart from the others: an etcd that is full takes deletions alone.
            removed += _written(store, guard, [GuardedDelete(entry.key, entry.mod_revision) for entry in expired])
            begun += _written(store, guard, self._last_hours(store, records, now_ms + RECORD_KEPT_MS))
        if removed or begun:
            log.info("%d records of submissions removed, %d found whose object is gone", removed, begun)

    def _last_hours(
        self, store: StoreClient, records: Sequence[tuple[Entry, SubmissionRecord]], expires_at_ms: int
    ) -> list[GuardedPut]:
        """Of records that have none and whose object is gone, as the store itself says."""
        doubtful: list[tuple[bytes, Entry, SubmissionRecord]] = []
        for entry, record in records:
            key = ObjectKey(record.key.kind, record.key.namespace, record.key.name)
            if not record.expires_at_ms and not self._is_there(key, entry.create_revision):
                object_key = self._object_key(key)
                if object_key:
                    doubtful.append((object_key, entry, record))
        found = store.get_many([object_key for object_key, _, _ in doubtful]).entries if doubtful else ()
        writes = []
        for (_, entry, record), item in zip(doubtful, found, strict=True):
            # One that was created later is another submission's, or nobody's.
            if item is None or item.create_revision != entry.create_revision:
                record.expires_at_ms = expires_at_ms
                writes.append(GuardedPut(entry.key, entry.mod_revision, record.SerializeToString()))
        return writes

    def _object_key(self, key: ObjectKey) -> bytes:
        """Empty for what no object can be named."""
        try:
            return self._keys.object_key(by_name(key.kind), key.namespace, key.name)
        except (UnknownKind, KeyTextError):
            return b""


def _record_in(entry: Entry) -> SubmissionRecord | None:
    """None for what was not written by us, and is not ours to remove."""
    try:
        return SubmissionRecord.FromString(entry.value)
    except DecodeError:
        return None


def _written(store: StoreClient, guard: Guard, writes: Sequence[Write]) -> int:
    outcomes = store.commit(guard, writes)
    count_fenced_among("garbage", outcomes)
    return sum(isinstance(outcome, Committed) for outcome in outcomes)
