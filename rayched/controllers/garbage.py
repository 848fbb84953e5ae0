"""Collection of records of submissions whose object has been gone for an hour: the uid may then be used anew.

Each removal is guarded by the epoch and by the record's own revision, like every write of a leader: a record that was renewed
meanwhile stays.
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
        expired = [entry for entry in store.list_all(self._keys.submissions_prefix).entries if _is_expired(entry, now_ms)]
        outcomes = store.commit(Guard(self._keys.epoch, epoch), [GuardedDelete(e.key, e.mod_revision) for e in expired])
        count_fenced_among("garbage", outcomes)
        if removed := sum(isinstance(outcome, Committed) for outcome in outcomes):
            log.info("%d records of submissions removed", removed)


def _is_expired(entry: Entry, now_ms: int) -> bool:
    try:
        record = SubmissionRecord.FromString(entry.value)
    except DecodeError:
        # Whatever lies there was not written by us, and is not ours to remove.
        return False
    return 0 < record.expires_at_ms <= now_ms
