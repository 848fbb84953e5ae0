"""Removals: whose record gets an expiry, and whose does not."""

from __future__ import annotations

from rayched.store.entries import Entry
from rayched.store.removals import RECORD_KEPT_MS, removal
from rayched.store.transactions import GuardedDelete
from rayched.v1.storage_pb2 import SubmissionRecord

NOW_MS = 1_000_000


def record(uid: str, expires_at_ms: int = 0) -> Entry:
    return Entry(b"record", SubmissionRecord(uid=uid, expires_at_ms=expires_at_ms).SerializeToString(), 3, 4)


def test_the_record_of_what_is_removed_expires_an_hour_later() -> None:
    write = removal(b"pod", 7, "its-uid", record("its-uid"), NOW_MS, ((b"node", 2),))
    assert write.also == ((b"record", 4), (b"node", 2))
    ((key, value),) = write.with_puts
    assert (key, SubmissionRecord.FromString(value).expires_at_ms) == (b"record", NOW_MS + RECORD_KEPT_MS)


def test_a_record_that_expires_already_keeps_its_time() -> None:
    found = record("its-uid", NOW_MS + 5)
    assert removal(b"pod", 7, "its-uid", found, NOW_MS, ((b"node", 2),)) == GuardedDelete(b"pod", 7, ((b"node", 2),))


def test_the_record_of_another_uid_is_left_alone() -> None:
    assert removal(b"pod", 7, "its-uid", record("another"), NOW_MS) == GuardedDelete(b"pod", 7)


def test_without_a_record_the_object_alone_goes() -> None:
    assert removal(b"pod", 7, "its-uid", None, NOW_MS) == GuardedDelete(b"pod", 7)
