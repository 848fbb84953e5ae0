"""The record of a submission: it is written beside a new object, and has the answer for the same uid submitted again."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final

from rayched.api.wire import length_delimited, varint
from rayched.server.admission.submissions import Created, Creation, Submission
from rayched.server.errors import ApiFailure, Code, exists
from rayched.store.entries import Entry
from rayched.store.keys import ObjectKey
from rayched.v1 import services_pb2
from rayched.v1.storage_pb2 import SubmissionRecord

_RECORD_KEY, _DIGEST, _UID = (
    length_delimited(SubmissionRecord.DESCRIPTOR.fields_by_name[name].number) for name in ("key", "digest", "uid")
)
_DIGEST_HEAD: Final = _DIGEST + varint(hashlib.sha256().digest_size)
_KEY_NAME: Final = length_delimited(services_pb2.ObjectKey.DESCRIPTOR.fields_by_name["name"].number)


def record_of(submission: Submission, name: str) -> bytes:
    """The SubmissionRecord, serialised."""
    name_bytes, uid = name.encode(), submission.uid.encode()
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


def answer_again(submission: Submission, record: Entry) -> Creation:
    """The answer of the first submission of this uid, from its record."""
    found = SubmissionRecord.FromString(record.value)
    if found.digest != submission.digest:
        if found.key.namespace != submission.namespace:
            # Not which one: it is none of the caller's business what there is in another namespace.
            text = f"uid {submission.uid} belongs to another object"
            return exists(f"{submission.subject}: {text}; leave metadata.uid out or choose another")
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
    if failure.code in (Code.UNAVAILABLE, Code.PERMISSION_DENIED):
        return False
    return "/" not in submission.uid and "\0" not in submission.uid
