"""Single objects of the store: found, read, and rewritten under the guard of their revision.

A rewrite reads the object, lets the caller change it, and puts it back if nobody else did meanwhile; else it starts again from
what is there. The last write of a leader stays with the object. An edit that changes nothing writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from rayched.api import kinds
from rayched.api.defaulting import DEFAULT_NAMESPACE
from rayched.api.errors import FieldError
from rayched.api.kinds import AnyObject, Kind
from rayched.api.validation.limits import OBJECT_BYTES, POD_BYTES
from rayched.server.errors import conflict, invalid, invalid_fields, no_room, not_found, over_limit, superseded, unavailable
from rayched.store.codec import decode_stored, encode
from rayched.store.entries import Entry
from rayched.store.io.async_client import AsyncStoreClient
from rayched.store.keys import Keys, ObjectKey
from rayched.store.space import SpaceGate
from rayched.store.transactions import Committed, Conflict, Fenced, GuardedPut, Outcome, OutcomeUnknown, TransactionRefused, Write
from rayched.v1 import services_pb2
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import LeaderWrite, Stored

ATTEMPTS_MAX: Final = 8
"""Others change one object a few times in a row at most; more would be a loop against somebody else's loop."""


@dataclass(frozen=True, slots=True)
class CallTarget:
    """One object that a call is about."""

    kind: Kind
    key: ObjectKey
    store_key: bytes

    def __str__(self) -> str:
        return str(self.key)


@dataclass(frozen=True, slots=True)
class Read:
    """An object as it lies in the store."""

    entry: Entry
    stored: Stored

    @property
    def message(self) -> AnyObject:
        return kinds.unwrap(self.stored.object)

    @property
    def leader_write(self) -> LeaderWrite | None:
        return self.stored.leader_write if self.stored.HasField("leader_write") else None


@dataclass(frozen=True, slots=True)
class EditedObject:
    """The object after an edit, and whether the edit changed it."""

    message: AnyObject
    revision: int
    changed: bool


Edit = Callable[[AnyObject], Sequence[FieldError] | None]
"""Changes an object in place; gives what is wrong with the result, or raises ApiFailure."""


class Objects:
    """Access to objects; shared by the services."""

    def __init__(self, store: AsyncStoreClient, keys: Keys, gate: SpaceGate | None = None) -> None:
        self.store = store
        self.keys = keys
        self.gate = gate or SpaceGate()

    def target(self, key: services_pb2.ObjectKey | ObjectKey) -> CallTarget:
        """What a request's key names; without a namespace it is in the default one."""
        return self.target_of(kinds.by_name(key.kind), key.namespace, key.name)

    def target_of(self, kind: Kind, namespace: str, name: str) -> CallTarget:
        if not name:
            raise invalid(f"name: is required to name a {kind.name}")
        if kind.namespaced:
            namespace = namespace or DEFAULT_NAMESPACE
        return CallTarget(kind, ObjectKey(kind.name, namespace, name), self.keys.object_key(kind, namespace, name))

    async def get(self, target: CallTarget) -> Read:
        """Linearizable; raises NOT_FOUND."""
        entry = await self.store.get(target.store_key)
        if entry is None:
            raise not_found(str(target))
        return read_entry(entry)

    async def rewrite(
        self,
        target: CallTarget,
        edit: Edit,
        resource_version: str = "",
        dry_run: bool = False,
        *,
        goes_on: bool = False,
        only_while: Sequence[tuple[bytes, int]] = (),
    ) -> EditedObject:
        """Read, edit, write. With a resource version the object must have it, and a conflict is the caller's.

        What `goes_on` is written as long as etcd takes it; other edits are refused before its space is used up. `only_while`:
        further keys and their revisions; where one has another the edit is refused, and not tried again.
        """
        entry = await self.store.get(target.store_key)
        for _ in range(ATTEMPTS_MAX):
            if entry is None:
                raise not_found(str(target))
            if resource_version and resource_version != str(entry.mod_revision):
                found = resource_version[:20]
                raise conflict(f"{target}: resource_version {found} is not the present {entry.mod_revision}; read again")
            read = read_entry(entry)
            before = read.message.SerializeToString(deterministic=True)
            errors = edit(read.message)
            if errors:
                raise invalid_fields(str(target), errors)
            if read.message.SerializeToString(deterministic=True) == before:
                return EditedObject(read.message, entry.mod_revision, False)
            if dry_run:
                return EditedObject(read.message, entry.mod_revision, True)
            value = encode(read.stored.object, read.leader_write)
            write = GuardedPut(target.store_key, entry.mod_revision, value, also=tuple(only_while))
            if not goes_on:
                self.refuse_what_is_new(target, len(write.value))
            outcome = await self.send(write, target)
            match outcome:
                case Committed(revision):
                    read.message.metadata.resource_version = str(revision)
                    return EditedObject(read.message, revision, True)
                case Conflict(current=current):
                    if outcome.is_against(only_while):
                        raise superseded(str(target), only_while[-1][1])
                    entry = current
        raise conflict(f"{target}: others keep changing it; try again")

    async def send(self, write: Write, subject: object) -> Committed | Conflict:
        """What became of one write, about whose outcome something is known; raises otherwise."""
        outcome = (await self.store.send(None, [write]))[0]
        if isinstance(outcome, Committed | Conflict):
            return outcome
        raise lost_write(outcome, str(subject))

    def refuse_what_is_new(self, subject: object, size: int) -> None:
        """Raises where etcd's space is kept for what has to go on; counts the write otherwise."""
        refusal = self.gate.refusal()
        if refusal is not None:
            raise no_room(subject, refusal)
        self.gate.wrote(size)


def read_entry(entry: Entry) -> Read:
    return Read(entry, decode_stored(entry.value, entry.mod_revision, entry.key))


def refuse_oversize(subject: object, message: AnyObject) -> None:
    """Raises for an object too large to look at, before any time is spent on it."""
    size, most = message.ByteSize(), POD_BYTES if isinstance(message, Pod) else OBJECT_BYTES
    if size > most:
        raise over_limit(f"{subject}: {size} bytes; at most {most} ({most >> 10} KiB) are allowed")


def lost_write(outcome: Outcome, subject: str) -> Exception:
    """The failure for a write that did not commit and met no conflict either."""
    match outcome:
        case TransactionRefused(error):
            return error
        case OutcomeUnknown(message):
            return unavailable(f"{subject}: not known whether it was written, etcd did not answer; try again ({message})")
        case Committed() | Conflict() | Fenced():
            raise AssertionError(f"{outcome} is an answer")


def timestamp_now() -> Timestamp:
    """Whole seconds, as in Kubernetes' objects."""
    return Timestamp(seconds=int(time.time()))


def milliseconds_now() -> int:
    return int(time.time() * 1000)
