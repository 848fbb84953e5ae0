"""Creating objects, one or a hundred: admission, one guarded transaction, and the same answer to the same uid.

The transaction that creates an object also writes the record of its submission. It is conditional on neither being there and on
the namespace being as it was seen. So

* two submissions with one uid in one namespace create one object, in whatever order and at whichever replicas they arrive;
* the second gets what the first got, from the record, also after the object was deleted or its class, its namespace went away;
* one that differs in content is ALREADY_EXISTS and names the object;
* one whose uid another namespace had before is created, with a uid of its own (submission_records.py);
* nothing is created in a namespace that is being deleted.

Failures are values here: every entry of a batch has its own. An entry whose transaction has no answer is UNAVAILABLE, and may be
submitted again with the same uid.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from rayched.api.admission import check_default_class
from rayched.api.errors import FieldError
from rayched.api.kinds import NAMESPACE
from rayched.server.admission.admission import Admission
from rayched.server.admission.deletion import SYSTEM_NAMESPACES
from rayched.server.admission.known_submissions import AlikeSubmission
from rayched.server.admission.object_judge import ObjectJudge
from rayched.server.admission.submission_records import (
    answer_again,
    is_of_its_namespace,
    may_have_been_accepted,
    record_keys,
    records_of,
)
from rayched.server.admission.submissions import (
    Arrival,
    Created,
    Creation,
    Submission,
    are_in_one_namespace,
    draw_name,
    draw_uid,
    waves,
)
from rayched.server.admission.turns import Turns
from rayched.server.errors import ApiFailure, Code, conflict, exists, failure_of, invalid_fields, no_room, unavailable
from rayched.server.objects import Objects, lost_write, read_entry, timestamp_now
from rayched.store.codec import encode
from rayched.store.entries import Entry
from rayched.store.errors import Compacted
from rayched.store.keys import KeyTextError, ObjectKey
from rayched.store.transactions import Committed, Conflict, Fenced, Guard, GuardedPut, Outcome, OutcomeUnknown
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Object, PriorityClass

_ROUNDS_MAX: Final = 4
"""How often a creation is tried again because its namespace changed or its generated name was taken."""
_NOT_NEW: Final = FieldError("metadata.resourceVersion", "must be empty: the object is new. To change one that exists, apply it")
"""What a new object must not carry, beside the rules for all objects."""

RULE_ACCESS_ALIKE_PODS: bool = True
RULE_THE_COMMIT_COMES_BEFORE_THE_ANSWER: bool = True
"""Broken by tests alone."""


class Creator:
    """Creates objects; shared by the services that do."""

    def __init__(self, objects: Objects, admission: Admission, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` measures turns of the event loop."""
        self._clock = clock
        self._objects = objects
        self._admission = admission
        self.counts: Counter[str] = Counter()
        """Submissions by what became of them; dry runs do not count."""

    async def create(self, items: Sequence[Object], dry_run: bool = False, judge: ObjectJudge | None = None) -> list[Creation]:
        """One result each, in order. The items are used up: they are what is stored. The server's own need no judge."""
        arrival = Arrival()
        for item in items:
            arrival.add_item(item, item.SerializeToString(deterministic=True))
        return await self._create(arrival, dry_run, judge)

    async def create_many(self, contents: Sequence[bytes], judge: ObjectJudge | None = None) -> list[Creation]:
        """As `create`, of Objects as they were sent; the results need not have them. Raises DecodeError before any is created."""
        # Knows by now whether what is remembered still holds.
        await self._admission.classes_for(())
        created_at = timestamp_now().SerializeToString()
        arrival, turns = Arrival(), Turns(self._clock)
        # What pods alike have in common was judged for somebody else.
        is_judged = judge is not None and not judge.lets_all and RULE_ACCESS_ALIKE_PODS
        find = _nothing_alike if is_judged else self._admission.alike.find
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
        return await self._create(arrival, dry_run=False, judge=judge)

    async def _create(self, arrival: Arrival, dry_run: bool, judge: ObjectJudge | None) -> list[Creation]:
        for wave in waves(arrival.submissions):
            await self._create_wave(wave, dry_run, judge)
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

    async def _create_wave(self, wave: list[Submission], dry_run: bool, judge: ObjectJudge | None) -> None:
        if judge is not None:
            await _judge(wave, judge, dry_run)
        refusal = None if dry_run else self._objects.gate.refusal()
        if refusal is not None:
            for submission in wave:
                submission.result = submission.result or no_room(submission.subject, refusal)
        new = [submission for submission in wave if submission.alike is None and submission.result is None]
        if new:
            await self._admit(new)
        for number in range(_ROUNDS_MAX):
            await self._draw_uids(wave, judge)
            pending = [submission for submission in wave if submission.result is None]
            if not pending:
                break
            # Whatever the hub showed was refused: asking it again would only wait for it.
            await self._round(pending, dry_run, from_store=number > 0)
        for submission in wave:
            if submission.result is None:
                submission.result = conflict(f"{submission.subject}: its namespace keeps changing; try again")
        await self._repeat_answers(wave)

    async def _draw_uids(self, wave: list[Submission], judge: ObjectJudge | None) -> None:
        """For those whose uid another namespace had before."""
        anew = [one for one in wave if one.result is None and one.others_record is not None and not one.drawn_uid]
        if not anew:
            return
        for submission in anew:
            draw_uid(submission)
        if judge is not None:
            # What they are to store was counted before.
            await _judge(anew, judge, dry_run=True)
        await self._admit([submission for submission in anew if submission.result is None])

    async def _admit(self, wave: list[Submission]) -> None:
        classes = await self._admission.classes_for_all([submission.message for submission in wave])
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

    async def _round(self, pending: list[Submission], dry_run: bool, *, from_store: bool) -> None:
        names = {one.namespace for one in pending if one.namespace}
        revisions = await self._admission.namespace_revisions(names, from_store=from_store)
        keys, now = self._objects.keys, timestamp_now()
        namespaces = {name: (keys.object_key(NAMESPACE, "", name), revision) for name, revision in revisions.items()}
        # A namespace that all of them are in is compared once, for the whole transaction.
        guard = Guard(*next(iter(namespaces.values()))) if are_in_one_namespace(pending) and namespaces else None
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
        self, submission: Submission, namespaces: Mapping[str, tuple[bytes, int]], guard: Guard | None, now: Timestamp
    ) -> GuardedPut:
        """`namespaces` has the key and the revision of those that exist; with a `guard` the write need not compare its own."""
        keys, metadata, alike = self._objects.keys, submission.message.metadata, submission.alike
        namespace, name = submission.namespace, metadata.name if alike is None else alike.name
        records = records_of(submission, keys, name, now)
        also = [*records.conditions]
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
        return GuardedPut(key, 0, value, tuple(also), records.puts, mark=mark)

    def _settle(self, submission: Submission, outcome: Outcome) -> None:
        match outcome:
            case Committed(revision):
                assert submission.key is not None
                warnings = tuple(submission.warnings)
                item = submission.item if submission.alike is None else None
                if item is not None:
                    submission.message.metadata.resource_version = str(revision)
                submission.result = Created(submission.object_uid, revision, warnings, submission.key, item)
                self._learn(submission)
            case Conflict(current, (record, *others)):
                if submission.drawn_uid:
                    submission.others_record = others[0]
                self._settle_conflict(submission, current, record)
            case Fenced():
                # The namespace that they share has changed, and nothing was written: another round, as for a conflict.
                pass
            case OutcomeUnknown() if not RULE_THE_COMMIT_COMES_BEFORE_THE_ANSWER:
                self._settle(submission, Committed(0))
            case _:
                submission.result = failure_of(lost_write(outcome, submission.subject), "Submission")

    def _learn(self, submission: Submission) -> None:
        """From a pod that is in the store."""
        write = submission.write
        if write is None or write.mark or submission.drawn_uid:
            # One that names its node is written in another way.
            return
        if submission.is_known and submission.by_client and not submission.generate_name:
            value, warnings = write.value, tuple(submission.warnings)
            self._admission.alike.learn(submission.content, value, submission.namespace, warnings)

    def _settle_conflict(self, submission: Submission, current: Entry | None, record: Entry | None) -> None:
        """Leaves the result open where the namespace changed, a generated name was taken, or the uid is another namespace's."""
        if record is not None and is_of_its_namespace(submission, record):
            submission.result = answer_again(submission, record)
        elif record is not None:
            submission.others_record = record
        elif current is None:
            return
        elif submission.generate_name:
            draw_name(submission)
        else:
            submission.result = exists(f"{submission.subject} already exists")

    async def _try(self, ready: list[Submission]) -> None:
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

    async def _repeat_answers(self, wave: list[Submission]) -> None:
        """A submission that was refused may have been accepted before: what it refers to was deleted, or its rules changed."""
        doubtful = [
            (submission, keys)
            for submission in wave
            if may_have_been_accepted(submission) and (keys := record_keys(submission, self._objects.keys)) is not None
        ]
        if not doubtful:
            return
        reading = await self._objects.store.get_many([key for _, keys in doubtful for key in keys])
        records = iter(reading.entries)
        for (submission, _), own, first in zip(doubtful, records, records, strict=True):
            record = own or first
            if record is not None and is_of_its_namespace(submission, record):
                submission.result = answer_again(submission, record)


async def _judge(wave: list[Submission], judge: ObjectJudge, dry_run: bool) -> None:
    """Before anything is looked up for them. Pods alike have been judged by whoever lets them be alike."""
    new = [submission for submission in wave if submission.alike is None]
    refusals = await judge.refusals([one.subject for one in new], [one.message for one in new])
    for submission, refusal in zip(new, refusals, strict=True):
        submission.result = refusal
    for submission in wave if not dry_run else ():
        if submission.result is None:
            submission.result = judge.refusal_to_store(submission.namespace, len(submission.content))


def _nothing_alike(_content: bytes, _created_at: bytes) -> AlikeSubmission | None:
    return None
