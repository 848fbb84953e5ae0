"""Collection of records of submissions whose object has been gone for an hour: the uid may then be used anew.

Each removal is guarded by the epoch and by the record's own revision, like every write of a leader: a record that was renewed
meanwhile stays.

A turn goes page by page and keeps one page at a time: an hour of submissions may be millions of records. It reads each page at no
common revision, so a compaction between two pages ends no turn.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from rayched.store.client import StoreClient
from rayched.store.entries import Entry
from rayched.store.keys import Keys
from rayched.store.refusals import count_fenced_among
from rayched.store.transactions import Committed, Guard, GuardedDelete
from rayched.v1.storage_pb2 import SubmissionRecord

_PAGE_LIMIT: Final = 500
"""A record takes some 350 bytes and 8 µs of the interpreter: a page some 175 KiB and 4 ms."""

log = logging.getLogger(__name__)


class SubmissionGarbage:
    """A duty of the leader."""

    name: Final = "submission garbage"
    period_seconds: Final = 300.0

    def __init__(self, keys: Keys, wall_clock: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._wall_clock = wall_clock

    def turn(self, store: StoreClient, epoch: int | None) -> None:
        if epoch is None:
            return
        now_ms = int(self._wall_clock() * 1000)
        prefix, start_key, removed = self._keys.submissions_prefix, b"", 0
        while True:
            page = store.list_page(prefix, limit=_PAGE_LIMIT, start_key=start_key)
            expired = [GuardedDelete(entry.key, entry.mod_revision) for entry in page.entries if _is_expired(entry, now_ms)]
            outcomes = store.commit(Guard(self._keys.epoch, epoch), expired)
            count_fenced_among("garbage", outcomes)
            removed += sum(isinstance(outcome, Committed) for outcome in outcomes)
            if page.next_key is None:
                break
            start_key = page.next_key
        if removed:
            log.info("%d records of submissions removed", removed)


def _is_expired(entry: Entry, now_ms: int) -> bool:
    try:
        record = SubmissionRecord.FromString(entry.value)
    except DecodeError:
        # Whatever lies there was not written by us, and is not ours to remove.
        return False
    return 0 < record.expires_at_ms <= now_ms
