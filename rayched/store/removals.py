"""The removal of an object together with the last expiry of its submission's record.

Both are one write, so a uid is answered for an hour after its object: a submission that is repeated then gets its old answer, and
does not bring the object back. No I/O: the record is read by the caller, at `Keys.submission(uid)`.

An etcd that is full takes no puts, but a deletion is what helps it: the expiry is then spared, and the collection of records sets
it once it finds the object gone (controllers/garbage.py).
"""

from __future__ import annotations

from typing import Final

from rayched.store.entries import Entry
from rayched.store.transactions import GuardedDelete
from rayched.v1.storage_pb2 import SubmissionRecord

RECORD_KEPT_MS: Final = 3_600_000


def removal(
    key: bytes,
    mod_revision: int,
    uid: str,
    record: Entry | None,
    now_ms: int,
    also: tuple[tuple[bytes, int], ...] = (),
) -> GuardedDelete:
    """Removes the object with this uid if it is still at `mod_revision` and each key of `also` at its revision.

    The record's expiry is conditional on nobody else setting it.
    """
    if record is None:
        return GuardedDelete(key, mod_revision, also)
    found = SubmissionRecord.FromString(record.value)
    if found.uid != uid or found.expires_at_ms:
        return GuardedDelete(key, mod_revision, also)
    found.expires_at_ms = now_ms + RECORD_KEPT_MS
    return GuardedDelete(
        key,
        mod_revision,
        also=((record.key, record.mod_revision), *also),
        with_puts=((record.key, found.SerializeToString()),),
        spare=record.key,
    )
