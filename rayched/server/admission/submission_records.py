"""The record of a submission: it is written beside a new object, and has the answer for the same uid submitted again.

A uid is one object's in the whole cluster: scheduler, agents and streams know pods by it. Whoever sends a uid first has its
record, and the object has the uid. Where another namespace had it before, the object gets one of its own, and what came of the
uid that was sent lies in a record of this namespace. So a uid takes nothing from other namespaces, and its answer is one's own.
Records of both kinds have one form, and end in the same way.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from rayched.api.wire import length_delimited, varint
from rayched.server.admission.submissions import Created, Creation, Submission
from rayched.server.errors import ApiFailure, Code, exists
from rayched.store.entries import Entry
from rayched.store.keys import Keys, KeyTextError, ObjectKey
from rayched.store.removals import RECORD_KEPT_MS
from rayched.v1 import services_pb2
from rayched.v1.storage_pb2 import SubmissionRecord

_RECORD_KEY, _DIGEST, _UID = (
    length_delimited(SubmissionRecord.DESCRIPTOR.fields_by_name[name].number) for name in ("key", "digest", "uid")
)
_DIGEST_HEAD: Final = _DIGEST + varint(hashlib.sha256().digest_size)
_KEY_NAME: Final = length_delimited(services_pb2.ObjectKey.DESCRIPTOR.fields_by_name["name"].number)


class WrittenRecords(NamedTuple):
    """Of a creation: `conditions` are keys with the revisions that they have to be at, the one with its own answer first."""

    conditions: tuple[tuple[bytes, int], ...]
    puts: tuple[tuple[bytes, bytes], ...]


def record_of(submission: Submission, name: str) -> bytes:
    """The SubmissionRecord, serialised."""
    name_bytes, uid = name.encode(), submission.object_uid.encode()
    place, name_size = _place(submission.kind.name, submission.namespace), varint(len(name_bytes))
    key_size = varint(len(place) + 1 + len(name_bytes) + len(name_size))
    uid_size, digest = varint(len(uid)), submission.digest
    parts = (_RECORD_KEY, key_size, place, _KEY_NAME, name_size, name_bytes, _DIGEST_HEAD, digest, _UID, uid_size, uid)
    record = b"".join(parts)
    if submission.warnings:
        record += SubmissionRecord(warnings=submission.warnings).SerializeToString()
    return record


@lru_cache(maxsize=1024)
def _place(kind: str, namespace: str) -> bytes:
    """The key's fields but for the name."""
    return services_pb2.ObjectKey(kind=kind, namespace=namespace).SerializeToString()


def records_of(submission: Submission, keys: Keys, name: str, now: Timestamp) -> WrittenRecords:
    """What is written beside the object with this name, and what that relies on."""
    first_key, record = keys.submission(submission.uid), record_of(submission, name)
    if not submission.drawn_uid:
        return WrittenRecords(((first_key, 0),), ((first_key, record),))
    own_key, drawn_key = keys.submission_in(submission.namespace, submission.uid), keys.submission(submission.drawn_uid)
    others = submission.others_record
    # Where the other one has been collected by now, the uid that was sent means this object.
    first = record if others is None else _kept_for_an_hour(others, now.ToMilliseconds())
    puts = [(own_key, record), (drawn_key, record)]
    if first:
        puts.append((first_key, first))
    first_revision = 0 if others is None else others.mod_revision
    return WrittenRecords(((own_key, 0), (first_key, first_revision), (drawn_key, 0)), tuple(puts))


def _kept_for_an_hour(others: Entry, now_ms: int) -> bytes:
    """The other namespace's record, for as long as somebody may ask again for this object: else the uid would seem to be new.

    Empty where it stays as it is.
    """
    found = SubmissionRecord.FromString(others.value)
    if not found.expires_at_ms or found.expires_at_ms >= now_ms + RECORD_KEPT_MS:
        return b""
    found.expires_at_ms = now_ms + RECORD_KEPT_MS
    return found.SerializeToString()


def is_of_its_namespace(submission: Submission, record: Entry) -> bool:
    """Whether the record tells of an object where this one is to be."""
    return bool(SubmissionRecord.FromString(record.value).key.namespace == submission.namespace)


def record_keys(submission: Submission, keys: Keys) -> tuple[bytes, bytes] | None:
    """Where the answer to an earlier submission may lie; None: no text that can be stored was submitted."""
    try:
        return keys.submission_in(submission.namespace, submission.uid), keys.submission(submission.uid)
    except KeyTextError:
        return None


def answer_again(submission: Submission, record: Entry) -> Creation:
    """The answer of the first submission of this uid in its namespace, from its record."""
    found = SubmissionRecord.FromString(record.value)
    if found.digest != submission.digest:
        place = f"{found.key.namespace}/{found.key.name}" if found.key.namespace else found.key.name
        gone = ", which was deleted" if found.expires_at_ms else ""
        text = f"uid {submission.uid} belongs to {found.key.kind} {place}{gone}, submitted with other content"
        return exists(f"{submission.subject}: {text}; leave metadata.uid out or choose another")
    key = ObjectKey(found.key.kind, found.key.namespace, found.key.name)
    return Created(found.uid, record.create_revision, tuple(found.warnings), key, None)


def may_have_been_accepted(submission: Submission) -> bool:
    """Not one that etcd left open: there is nobody to ask, and the caller will. Who may not create it is told of no other."""
    failure = submission.result
    if not submission.by_client or not isinstance(failure, ApiFailure):
        return False
    return failure.code not in (Code.UNAVAILABLE, Code.PERMISSION_DENIED)
