"""Creating objects, one or a hundred: admission, one guarded transaction, and the same answer to the same uid.

The transaction that creates an object also writes the record of its submission. It is conditional on neither being there and on
the namespace being as it was seen. So

* two submissions with one uid create one object, in whatever order and at whichever replicas they arrive;
* the second gets what the first got, from the record, also after the object was deleted or its class, its namespace went away;
* one that differs in content is ALREADY_EXISTS and names the object;
* nothing is created in a namespace that is being deleted.

Failures are values here: every entry of a batch has its own. An entry whose transaction has no answer is UNAVAILABLE, and may be
submitted again with the same uid.

Source of the rules for generated names: Kubernetes 1.34.
"""

from __future__ import annotations

import hashlib
import secrets
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from rayched.api import kinds
from rayched.api.admission import check_default_class
from rayched.api.defaulting import DEFAULT_NAMESPACE
from rayched.api.errors import FieldError
from rayched.api.kinds import NAMESPACE, POD, PRIORITY_CLASS, RUNTIME_CLASS, AnyObject, Kind
from rayched.api.wire import length_delimited, varint
from rayched.server.admission.admission import Admission
from rayched.server.admission.deletion import SYSTEM_NAMESPACES
from rayched.server.admission.known_submissions import AlikeSubmission
from rayched.server.admission.turns import Turns
from rayched.server.errors import ApiFailure, Code, conflict, exists, failure_of, invalid_fields, no_room, unavailable
from rayched.server.objects import Objects, lost_write, read_entry, refuse_oversize, timestamp_now
from rayched.store.codec import encode
from rayched.store.entries import Entry
from rayched.store.errors import Compacted
from rayched.store.keys import KeyTextError, ObjectKey
from rayched.store.transactions import Committed, Conflict, Fenced, Guard, GuardedPut, Outcome, OutcomeUnknown
from rayched.v1 import services_pb2
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.storage_pb2 import SubmissionRecord
from rayched.v1.workloads_pb2 import Object, PriorityClass

_FIRST: Final = frozenset(kind.name for kind in (NAMESPACE, PRIORITY_CLASS, RUNTIME_CLASS))
"""Kinds that other objects of the same batch may refer to."""
_ROUNDS_MAX: Final = 4
"""How often a creation is tried again because its namespace changed or its generated name was taken."""
_SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_CHARACTERS: Final = 5
_GENERATE_NAME_CHARACTERS_MAX: Final = 58
_SUBJECT_CHARACTERS_MAX: Final = 320
_WITH_STATUS: Final = frozenset(kind.name for kind in kinds.KINDS if "status" in kind.message.DESCRIPTOR.fields_by_name)
_NOT_NEW: Final = FieldError("metadata.resourceVersion", "must be empty: the object is new. To change one that exists, apply it")
"""What a new object must not carry, beside the rules for all objects."""

_RECORD_KEY, _DIGEST, _UID = (
    length_delimited(SubmissionRecord.DESCRIPTOR.fields_by_name[name].number) for name in ("key", "digest", "uid")
)
_DIGEST_HEAD: Final = _DIGEST + varint(hashlib.sha256().digest_size)
_KEY_NAME: Final = length_delimited(services_pb2.ObjectKey.DESCRIPTOR.fields_by_name["name"].number)
_NOT_READ: Final = Object()
"""Stands for an object whose bytes are known."""

RULE_THE_COMMIT_COMES_BEFORE_THE_ANSWER: bool = True
"""Broken by tests alone."""


class Created(NamedTuple):
    """An object that is in the store. `item` is None where the answer was repeated from the record, or nobody wanted it."""

    uid: str
    revision: int
    warnings: tuple[str, ...]
    key: ObjectKey
    item: Object | None


Creation = Created | ApiFailure


@dataclass(slots=True, eq=False)
class _Submission:
    """One object on its way into the store."""

    index: int
    item: Object
    kind: Kind
    message: AnyObject
    subject: str
    uid: str
    digest: bytes
    by_client: bool
    """The uid came with the object, so there may be a record of it."""
    warnings: list[str]
    namespace: str
    content: bytes
    """The object as it was sent, serialised."""
    alike: AlikeSubmission | None = None
    """It needs no admission: `item` and `message` are empty, and what is stored is here."""
    generate_name: str = ""
    key: ObjectKey | None = None
    """Of the write."""
    is_known: bool = False
    """Admission has seen a pod like it before."""
    result: Creation | None = None
    write: GuardedPut | None = None


class Creator:
    """Creates objects; shared by the services that do."""

    def __init__(self, objects: Objects, admission: Admission, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` measures turns of the event loop."""
        self._clock = clock
        self._objects = objects
        self._admission = admission
        self.counts: Counter[str] = Counter()
        """Submissions by what became of them; dry runs do not count."""

    async def create(self, items: Sequence[Object], dry_run: bool = False) -> list[Creation]:
        """One result each, in order. The items are used up: they are what is stored."""
        arrival = _Arrival()
        for item in items:
            arrival.add_item(item, item.SerializeToString(deterministic=True))
        return await self._create(arrival, dry_run)

    async def create_many(self, contents: Sequence[bytes]) -> list[Creation]:
        """As `create`, of Objects as they were sent; the results need not have them. Raises DecodeError before any is created."""
        # Knows by now whether what is remembered still holds.
        await self._admission.classes_for(())
        created_at = timestamp_now().SerializeToString()
        arrival, find, turns = _Arrival(), self._admission.alike.find, Turns(self._clock)
        for content in contents:
            await turns.pause()
            alike = find(content, created_at)
            if alike is None:
                item = Object.FromString(content)
                # Equal objects may have been sent as bytes that differ.
                canonical = item.SerializeToString(deterministic=True)
                if canonical == content or (alike := find(canonical, created_at)) is None:
                    arrival.add_item(item, canonical)
                    continue
                content = canonical
            arrival.add_alike(content, alike)
        return await self._create(arrival, dry_run=False)

    async def _create(self, arrival: _Arrival, dry_run: bool) -> list[Creation]:
        for wave in _waves(arrival.submissions):
            await self._create_wave(wave, dry_run)
        for submission in arrival.submissions:
            arrival.results[submission.index] = submission.result
        found = [result for result in arrival.results if result is not None]
        if not dry_run:
            self.counts.update(result.code.name if isinstance(result, ApiFailure) else "OK" for result in found)
        return found

    async def as_created(self, created: Created) -> Object:
        """The object of an answer that is given again: as it was created, where etcd still knows."""
        if created.item is not None:
            return created.item
        target = self._objects.target(created.key)
        try:
            page = await self._objects.store.list_page(target.store_key, limit=1, revision=created.revision)
            entry = page.entries[0] if page.entries else None
        except Compacted:
            entry = await self._objects.store.get(target.store_key)
        if entry is not None and entry.key == target.store_key:
            read = read_entry(entry)
            if read.message.metadata.uid == created.uid:
                return read.stored.object
        bare = Object()
        metadata = getattr(bare, target.kind.field).metadata
        metadata.name, metadata.namespace, metadata.uid = target.key.name, target.key.namespace, created.uid
        return bare

    # ---- one wave: admission, then as many rounds as it takes

    async def _create_wave(self, wave: list[_Submission], dry_run: bool) -> None:
        refusal = None if dry_run else self._objects.gate.refusal()
        if refusal is not None:
            for submission in wave:
                submission.result = no_room(submission.subject, refusal)
        new = [submission for submission in wave if submission.alike is None and submission.result is None]
        if new:
            await self._admit(new)
        for number in range(_ROUNDS_MAX):
            pending = [submission for submission in wave if submission.result is None]
            if not pending:
                break
            # Whatever the hub showed was refused: asking it again would only wait for it.
            await self._round(pending, dry_run, from_store=number > 0)
        for submission in wave:
            if submission.result is None:
                submission.result = conflict(f"{submission.subject}: its namespace keeps changing; try again")
        await self._repeat_answers(wave)

    async def _admit(self, wave: list[_Submission]) -> None:
        pods = [submission.message for submission in wave if isinstance(submission.message, Pod)]
        classes = await self._admission.classes_for(pods)
        defaults = await self._admission.default_classes(submission.message for submission in wave)
        turns = Turns(self._clock)
        for submission in wave:
            await turns.pause()
            message = submission.message
            n_known = self._admission.n_known
            errors = self._admission.admit(message, classes)
            submission.is_known = self._admission.n_known > n_known
            if message.metadata.resource_version:
                errors = [_NOT_NEW, *errors]
            if isinstance(message, PriorityClass):
                errors += check_default_class(message, defaults)
                if message.global_default and not errors:
                    defaults[message.metadata.name] = message
            if errors:
                submission.result = invalid_fields(submission.subject, errors)

    async def _round(self, pending: list[_Submission], dry_run: bool, *, from_store: bool) -> None:
        names = {one.namespace for one in pending if one.namespace}
        revisions = await self._admission.namespace_revisions(names, from_store=from_store)
        keys, now = self._objects.keys, timestamp_now()
        namespaces = {name: (keys.object_key(NAMESPACE, "", name), revision) for name, revision in revisions.items()}
        # A namespace that all of them are in is compared once, for the whole transaction.
        guard = Guard(*next(iter(namespaces.values()))) if _are_in_one_namespace(pending) and namespaces else None
        for submission in pending:
            try:
                submission.write = self._write(submission, namespaces, guard, now)
            except (ApiFailure, KeyTextError) as error:
                submission.result = failure_of(error, "Submission")
        ready = [submission for submission in pending if submission.write is not None and submission.result is None]
        if dry_run:
            await self._try(ready)
            return
        writes = [submission.write for submission in ready if submission.write is not None]
        self._objects.gate.wrote(sum(len(write.value) for write in writes if isinstance(write, GuardedPut)))
        for submission, outcome in zip(ready, await self._objects.store.commit(guard, writes), strict=True):
            self._settle(submission, outcome)

    def _write(
        self, submission: _Submission, namespaces: Mapping[str, tuple[bytes, int]], guard: Guard | None, now: Timestamp
    ) -> GuardedPut:
        """`namespaces` has the key and the revision of those that exist; with a `guard` the write need not compare its own."""
        keys, metadata, alike = self._objects.keys, submission.message.metadata, submission.alike
        namespace, name = submission.namespace, metadata.name if alike is None else alike.name
        record_key = keys.submission(submission.uid)
        also = [(record_key, 0)]
        if namespace:
            found = namespaces.get(namespace)
            if found is None and namespace in SYSTEM_NAMESPACES:
                # Each replica makes these anew where etcd was wiped.
                raise unavailable(f"{submission.subject}: namespace {namespace} is not there yet; try again")
            if found is None:
                raise ApiFailure(Code.NOT_FOUND, f"{submission.subject}: namespace {namespace} does not exist")
            if guard is None:
                also.append(found)
        submission.key = ObjectKey(submission.kind.name, namespace, name)
        key = keys.object_key(submission.kind, namespace, name)
        if alike is not None:
            value = alike.value
        else:
            # Not before admission, which knows templates by all that is not the object's own.
            metadata.creation_timestamp.CopyFrom(now)
            value = encode(submission.item)
        # A pod that names its node takes room that nobody has given it: who gives room there has to look anew.
        node = submission.message.spec.node_name if isinstance(submission.message, Pod) else ""
        mark = keys.taken(node) if node else b""
        return GuardedPut(key, 0, value, tuple(also), ((record_key, _record_of(submission, name)),), mark=mark)

    def _settle(self, submission: _Submission, outcome: Outcome) -> None:
        match outcome:
            case Committed(revision):
                assert submission.key is not None
                warnings = tuple(submission.warnings)
                item = submission.item if submission.alike is None else None
                if item is not None:
                    submission.message.metadata.resource_version = str(revision)
                submission.result = Created(submission.uid, revision, warnings, submission.key, item)
                self._learn(submission)
            case Conflict(current, (record, *_)):
                self._settle_conflict(submission, current, record)
            case Fenced():
                # The namespace that they share has changed, and nothing was written: another round, as for a conflict.
                pass
            case OutcomeUnknown() if not RULE_THE_COMMIT_COMES_BEFORE_THE_ANSWER:
                self._settle(submission, Committed(0))
            case _:
                submission.result = failure_of(lost_write(outcome, submission.subject), "Submission")

    def _learn(self, submission: _Submission) -> None:
        """From a pod that is in the store."""
        write = submission.write
        # One that names its node is written in another way.
        if submission.is_known and submission.by_client and not submission.generate_name and write is not None and not write.mark:
            value, warnings = write.value, tuple(submission.warnings)
            self._admission.alike.learn(submission.content, value, submission.namespace, warnings)

    def _settle_conflict(self, submission: _Submission, current: Entry | None, record: Entry | None) -> None:
        """Leaves the result open where only the namespace changed or a generated name was taken."""
        if record is not None:
            submission.result = _answer_again(submission, record)
        elif current is None:
            return
        elif submission.generate_name:
            _generate_name(submission)
        else:
            submission.result = exists(f"{submission.subject} already exists")

    async def _try(self, ready: list[_Submission]) -> None:
        """What would become of writes that are not sent."""
        for submission in ready:
            write = submission.write
            if write is None:
                continue
            current, record = (await self._objects.store.get_many([write.key, write.also[0][0]])).entries
            if current is not None or record is not None:
                self._settle_conflict(submission, current, record)
            else:
                self._settle(submission, Committed(0))
                submission.message.metadata.resource_version = ""

    async def _repeat_answers(self, wave: list[_Submission]) -> None:
        """A submission that was refused may have been accepted before: what it refers to was deleted, or its rules changed."""
        doubtful = [submission for submission in wave if _may_have_been_accepted(submission)]
        if not doubtful:
            return
        reading = await self._objects.store.get_many([self._objects.keys.submission(one.uid) for one in doubtful])
        for submission, record in zip(doubtful, reading.entries, strict=True):
            if record is not None:
                submission.result = _answer_again(submission, record)


# ----------------------------------------------------------------------------------------------------- what has arrived


class _Arrival:
    """What has arrived in one call: submissions, and results where one of them is known at once."""

    def __init__(self) -> None:
        self.submissions: list[_Submission] = []
        self.results: list[Creation | None] = []

    def add_item(self, item: Object, content: bytes) -> None:
        """`content`: its bytes, equal for equal objects."""
        result = None
        try:
            self.submissions.append(_received(len(self.results), item, content))
        except Exception as error:
            # One bad object fails alone; what nobody expected is logged by failure_of.
            result = failure_of(error, "Submission")
        self.results.append(result)

    def add_alike(self, content: bytes, alike: AlikeSubmission) -> None:
        namespace, warnings = alike.pod.namespace, list(alike.pod.warnings)
        subject = f"{POD.name} {namespace}/{alike.name}"[:_SUBJECT_CHARACTERS_MAX]
        digest, index = hashlib.sha256(content).digest(), len(self.results)
        self.submissions.append(
            _Submission(
                index, _NOT_READ, POD, _NOT_READ.pod, subject, alike.uid, digest, True, warnings, namespace, content, alike
            )
        )
        self.results.append(None)


def _received(index: int, item: Object, content: bytes) -> _Submission:
    """Raises for what is no object, or too large to look at."""
    kind = kinds.of(item)
    message = kinds.unwrap(item)
    metadata = message.metadata
    namespace = (metadata.namespace or DEFAULT_NAMESPACE) if kind.namespaced else ""
    name = metadata.name or (f"{metadata.generate_name}?" if metadata.generate_name else "without a name")
    subject = (f"{kind.name} {namespace}/{name}" if namespace else f"{kind.name} {name}")[:_SUBJECT_CHARACTERS_MAX]
    refuse_oversize(subject, message)
    digest = hashlib.sha256(content).digest()
    by_client = bool(metadata.uid)
    metadata.uid = metadata.uid or str(uuid.uuid4())
    submission = _Submission(index, item, kind, message, subject, metadata.uid, digest, by_client, [], namespace, content)
    _clear_what_is_not_the_clients(submission)
    if metadata.generate_name and not metadata.name:
        submission.generate_name = metadata.generate_name[:_GENERATE_NAME_CHARACTERS_MAX]
        _generate_name(submission)
    return submission


def _clear_what_is_not_the_clients(submission: _Submission) -> None:
    message, metadata = submission.message, submission.message.metadata
    if submission.kind.name in _WITH_STATUS and not isinstance(message, Node) and message.HasField("status"):
        message.ClearField("status")
        submission.warnings.append("status: left out, it is not set by whoever creates the object")
    for name in ("deletion_timestamp", "deletion_grace_period_seconds"):
        metadata.ClearField(name)
    metadata.ClearField("creation_timestamp")
    metadata.generation = 1


def _generate_name(submission: _Submission) -> None:
    suffix = "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(_SUFFIX_CHARACTERS))
    submission.message.metadata.name = submission.generate_name + suffix


def _waves(submissions: Iterable[_Submission]) -> list[list[_Submission]]:
    """What others may refer to, then the others."""
    submissions = list(submissions)
    first = [submission for submission in submissions if submission.kind.name in _FIRST]
    rest = [submission for submission in submissions if submission.kind.name not in _FIRST]
    return [wave for wave in (first, rest) if wave]


def _are_in_one_namespace(submissions: Sequence[_Submission]) -> bool:
    """False for what is in none."""
    namespace = submissions[0].namespace
    return bool(namespace) and all(submission.namespace == namespace for submission in submissions)


def _record_of(submission: _Submission, name: str) -> bytes:
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


def _answer_again(submission: _Submission, record: Entry) -> Creation:
    """The answer of the first submission of this uid, from its record."""
    found = SubmissionRecord.FromString(record.value)
    if found.digest != submission.digest:
        place = f"{found.key.namespace}/{found.key.name}" if found.key.namespace else found.key.name
        gone = ", which was deleted" if found.expires_at_ms else ""
        text = f"uid {submission.uid} belongs to {found.key.kind} {place}{gone}, submitted with other content"
        return exists(f"{submission.subject}: {text}; leave metadata.uid out or choose another")
    key = ObjectKey(found.key.kind, found.key.namespace, found.key.name)
    return Created(found.uid, record.create_revision, tuple(found.warnings), key, None)


def _may_have_been_accepted(submission: _Submission) -> bool:
    """Not one that etcd left open: there is nobody to ask, and the caller will."""
    failure = submission.result
    if not submission.by_client or not isinstance(failure, ApiFailure) or failure.code is Code.UNAVAILABLE:
        return False
    return "/" not in submission.uid and "\0" not in submission.uid
