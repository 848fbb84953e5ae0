"""Deleting objects: at once where nothing runs, else by a deletion_timestamp that the node's agent follows.

| object | deleted |
|---|---|
| pod | as rayched/api/termination.py says: at once, or with a deletion_timestamp that its agent follows |
| pod group | with a deletion_timestamp; the leader removes it once its last member has ended or gone |
| namespace | at once when it is empty, else refused with what is in it; `default` and `kube-system` never |
| others | at once |

A removal and the last expiry of its submission's record are one transaction, so a uid is answered for an hour after the object.
A namespace goes only while no key of it exists, which etcd checks in that transaction; its events go with it.

Source: graceful deletion of pods in Kubernetes 1.34, whose namespaces delete what is in them; protection of PodGroups in 1.37.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Final

from leader.etcd_shim import rpc
from rayched.api.kinds import EVENT, KINDS, NAMESPACE, NODE, AnyObject
from rayched.api.termination import GRACE_SECONDS_MAX, Ending, ask_to_end
from rayched.server.errors import conflict, forbidden_by_state, invalid, not_found
from rayched.server.objects import ATTEMPTS_MAX, CallTarget, Objects, Read, milliseconds_now, read_entry, timestamp_now
from rayched.store import removals
from rayched.store.codec import encode
from rayched.store.entries import Entry, first_entry
from rayched.store.errors import StoreError, StoreFull
from rayched.store.keys import prefix_end
from rayched.store.transactions import Committed, Conflict, GuardedDelete, GuardedPut, Write
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PodGroup

SYSTEM_NAMESPACES: Final = ("default", "kube-system")
_NAMED_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class DeletionResult:
    """The object as it was last, or with its deletion_timestamp where it still has to stop."""

    read: Read
    revision: int


class Deleter:
    """Deletes objects; shared by the services that do."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def delete(self, target: CallTarget, uid: str, grace_seconds: int | None) -> DeletionResult:
        check_grace(grace_seconds)
        if target.kind is NAMESPACE:
            if target.key.name in SYSTEM_NAMESPACES:
                raise forbidden_by_state(f"{target}: cannot be deleted, it belongs to the system")
            return await self._delete_namespace(target, uid)
        entry = await self._objects.store.get(target.store_key)
        for _ in range(ATTEMPTS_MAX):
            read = expected(target, entry, uid)
            write = await self._write(target, read, grace_seconds)
            if write is None:
                return DeletionResult(read, read.entry.mod_revision)
            outcome = await self._objects.send(write, target)
            match outcome:
                case Committed(revision):
                    if isinstance(write, GuardedPut):
                        read.message.metadata.resource_version = str(revision)
                    if target.kind is NODE:
                        await self._forget_heartbeat(target)
                    return DeletionResult(read, revision)
                case Conflict(current=current):
                    entry = current
        raise conflict(f"{target}: others keep changing it; try again")

    async def _forget_heartbeat(self, target: CallTarget) -> None:
        """What would be left of the node. The deletion is committed, so a failure here is none of it."""
        with contextlib.suppress(StoreError):
            await self._objects.store.delete(self._objects.keys.heartbeat(target.key.name))

    async def removal(self, target: CallTarget, read: Read) -> GuardedDelete:
        """The write that removes an object, and lets the record of its submission expire."""
        record_key = self._record_key(read.message)
        record = await self._objects.store.get(record_key) if record_key else None
        return removal(target, read, record)

    def _record_key(self, message: AnyObject) -> bytes:
        uid = message.metadata.uid
        return self._objects.keys.submission(uid) if uid and "/" not in uid else b""

    async def _write(self, target: CallTarget, read: Read, grace_seconds: int | None) -> Write | None:
        """The write that deletes an object; a pod that has to stop is marked in place, as is a group. None: that is under way."""
        message = read.message
        if isinstance(message, PodGroup):
            ending = _ask_to_go(message, timestamp_now().seconds)
        else:
            ending = ask_to_end(message, grace_seconds, timestamp_now().seconds) if isinstance(message, Pod) else Ending.REMOVE
        if ending is Ending.REMOVE:
            return await self.removal(target, read)
        if ending is Ending.UNCHANGED:
            return None
        return GuardedPut(target.store_key, read.entry.mod_revision, encode(read.stored.object, read.leader_write))

    # ---- namespaces

    async def _delete_namespace(self, target: CallTarget, uid: str) -> DeletionResult:
        for _ in range(ATTEMPTS_MAX):
            read = expected(target, await self._objects.store.get(target.store_key), uid)
            removal = await self.removal(target, read)
            try:
                answer = await self._objects.store.txn(self._namespace_request(target.key.name, removal))
            except StoreFull:
                # A deletion without the record's expiry is taken all the same.
                bare = removal.bare()
                if bare is None:
                    raise
                answer = await self._objects.store.txn(self._namespace_request(target.key.name, bare))
            if answer.succeeded:
                return DeletionResult(read, answer.header.revision)
            current = first_entry(answer.responses[0].response_range)
            if current is not None and current.mod_revision == read.entry.mod_revision:
                content = await self._content(target.key.name)
                if content:
                    raise forbidden_by_state(f"{target}: is not empty, delete its {content} first")
        raise conflict(f"{target}: others keep changing it; try again")

    def _namespace_request(self, name: str, removal: GuardedDelete) -> Any:
        """Deletes the namespace and its events if it is as it was seen and no object is in it."""
        keys = self._objects.keys
        request = rpc.TxnRequest()
        for key, revision in ((removal.key, removal.mod_revision), *removal.also):
            request.compare.add(key=key, target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=revision)
        for kind in KINDS:
            if kind.namespaced and kind is not EVENT:
                prefix = keys.prefix(kind, name)
                request.compare.add(
                    key=prefix, range_end=prefix_end(prefix), target=rpc.Compare.VERSION, result=rpc.Compare.EQUAL, version=0
                )
        request.success.add().request_delete_range.key = removal.key
        events = keys.prefix(EVENT, name)
        request.success.add().request_delete_range.CopyFrom(rpc.DeleteRangeRequest(key=events, range_end=prefix_end(events)))
        for key, value in removal.with_puts:
            request.success.add().request_put.CopyFrom(rpc.PutRequest(key=key, value=value))
        request.failure.add().request_range.key = removal.key
        return request

    async def _content(self, namespace: str) -> str:
        """ "3 pods, 1 service"; at most 500 of a kind are counted."""
        found = []
        for kind in KINDS:
            if kind.namespaced and kind is not EVENT:
                prefix = self._objects.keys.prefix(kind, namespace)
                page = await self._objects.store.list_page(prefix, limit=_NAMED_MAX, keys_only=True)
                count = len(page.entries)
                if count:
                    found.append(f"{count}{'+' if count == _NAMED_MAX else ''} {kind.singular if count == 1 else kind.plural}")
        return ", ".join(found)


def _ask_to_go(group: PodGroup, now_seconds: int) -> Ending:
    if group.metadata.HasField("deletion_timestamp"):
        return Ending.UNCHANGED
    group.metadata.deletion_timestamp.seconds = now_seconds
    group.metadata.deletion_grace_period_seconds = 0
    return Ending.STOPPING


def check_grace(grace_seconds: int | None) -> None:
    if grace_seconds is not None and not 0 <= grace_seconds <= GRACE_SECONDS_MAX:
        raise invalid(f"grace_period_seconds: found {grace_seconds}, want 0 to {GRACE_SECONDS_MAX}")


def removal(target: CallTarget, read: Read, record: Entry | None) -> GuardedDelete:
    """As `Deleter.removal`, with the record read already."""
    return removals.removal(target.store_key, read.entry.mod_revision, read.message.metadata.uid, record, milliseconds_now())


def expected(target: CallTarget, entry: Entry | None, uid: str) -> Read:
    """The object that is to be deleted; raises ApiFailure where it is not there, or another."""
    if entry is None:
        raise not_found(str(target))
    read = read_entry(entry)
    found = read.message.metadata.uid
    if uid and uid != found:
        raise conflict(f"{target}: has uid {found}, not {uid[:80]}; it is another object")
    return read
