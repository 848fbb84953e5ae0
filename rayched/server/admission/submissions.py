"""Objects on their way into the store: what arrived in one call, and in which order it is created.

What a client may not set is cleared here, and a generated name is drawn.

Source of the rules for generated names: Kubernetes 1.34.
"""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rayched.api import kinds
from rayched.api.defaulting import DEFAULT_NAMESPACE
from rayched.api.kinds import NAMESPACE, POD, PRIORITY_CLASS, RUNTIME_CLASS, AnyObject, Kind
from rayched.api.names import SUFFIX_ALPHABET, SUFFIX_CHARACTERS
from rayched.server.admission.known_submissions import AlikeSubmission
from rayched.server.errors import ApiFailure, failure_of
from rayched.server.objects import refuse_oversize
from rayched.store.entries import Entry
from rayched.store.keys import ObjectKey
from rayched.store.transactions import GuardedPut
from rayched.v1.core_pb2 import Node
from rayched.v1.workloads_pb2 import Object

_FIRST: Final = frozenset(kind.name for kind in (NAMESPACE, PRIORITY_CLASS, RUNTIME_CLASS))
"""Kinds that other objects of the same batch may refer to."""
_GENERATE_NAME_CHARACTERS_MAX: Final = 58
_SUBJECT_CHARACTERS_MAX: Final = 320
_WITH_STATUS: Final = frozenset(kind.name for kind in kinds.KINDS if "status" in kind.message.DESCRIPTOR.fields_by_name)
_NOT_READ: Final = Object()
"""Stands for an object whose bytes are known."""


class Created(NamedTuple):
    """An object that is in the store. `item` is None where the answer was repeated from the record, or nobody wanted it."""

    uid: str
    revision: int
    warnings: tuple[str, ...]
    key: ObjectKey
    item: Object | None


Creation = Created | ApiFailure


@dataclass(slots=True, eq=False)
class Submission:
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
    others_record: Entry | None = None
    """Of the submission of another namespace that had the uid before, as it was last seen."""
    drawn_uid: str = ""
    """The object's, where another namespace had the uid that was sent."""

    @property
    def object_uid(self) -> str:
        return self.drawn_uid or self.uid


class Arrival:
    """What has arrived in one call: submissions, and results where one of them is known at once."""

    def __init__(self) -> None:
        self.submissions: list[Submission] = []
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
            Submission(
                index, _NOT_READ, POD, _NOT_READ.pod, subject, alike.uid, digest, True, warnings, namespace, content, alike
            )
        )
        self.results.append(None)


def _received(index: int, item: Object, content: bytes) -> Submission:
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
    submission = Submission(index, item, kind, message, subject, metadata.uid, digest, by_client, [], namespace, content)
    _clear_what_is_not_the_clients(submission)
    if metadata.generate_name and not metadata.name:
        submission.generate_name = metadata.generate_name[:_GENERATE_NAME_CHARACTERS_MAX]
        draw_name(submission)
    return submission


def _clear_what_is_not_the_clients(submission: Submission) -> None:
    message, metadata = submission.message, submission.message.metadata
    if submission.kind.name in _WITH_STATUS and not isinstance(message, Node) and message.HasField("status"):
        message.ClearField("status")
        submission.warnings.append("status: left out, it is not set by whoever creates the object")
    for name in ("deletion_timestamp", "deletion_grace_period_seconds"):
        metadata.ClearField(name)
    metadata.ClearField("creation_timestamp")
    metadata.generation = 1


def draw_name(submission: Submission) -> None:
    suffix = "".join(secrets.choice(SUFFIX_ALPHABET) for _ in range(SUFFIX_CHARACTERS))
    submission.message.metadata.name = submission.generate_name + suffix


def draw_uid(submission: Submission) -> None:
    """Another namespace had the uid before: the object gets one of its own, is read anew, and has to be admitted anew.

    What admission made of it may hold the uid, as the labels of a job's template do.
    """
    name = submission.message.metadata.name if submission.alike is None else submission.alike.name
    submission.drawn_uid = str(uuid.uuid4())
    submission.item = Object.FromString(submission.content)
    submission.message = kinds.unwrap(submission.item)
    submission.message.metadata.uid, submission.message.metadata.name = submission.drawn_uid, name
    submission.alike, submission.write, submission.warnings = None, None, []
    _clear_what_is_not_the_clients(submission)
    submission.warnings.append(f"metadata.uid: is {submission.drawn_uid}, as the one that was sent was taken")


def waves(submissions: Iterable[Submission]) -> list[list[Submission]]:
    """What others may refer to, then the others."""
    submissions = list(submissions)
    first = [submission for submission in submissions if submission.kind.name in _FIRST]
    rest = [submission for submission in submissions if submission.kind.name not in _FIRST]
    return [wave for wave in (first, rest) if wave]


def are_in_one_namespace(submissions: Sequence[Submission]) -> bool:
    """False for what is in none."""
    namespace = submissions[0].namespace
    return bool(namespace) and all(submission.namespace == namespace for submission in submissions)
