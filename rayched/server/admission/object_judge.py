"""What one caller may say in objects: the rules of access/object_rules.py, with what they look up, for the services that write.

Each object is judged as it was sent, before anything is filled in, and again in whatever an update makes of a stored one. Who is
an administrator is not judged. An object of a call on many is also judged by whose namespace it is in, for it has an outcome of
its own.

Owners are looked up in the store, in the object's own namespace alone, so nothing is learnt of others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rayched.access.authorizing import AccessAllowed
from rayched.access.object_rules import (
    ObjectWorld,
    OwnerKey,
    label_faults,
    name_reporter,
    object_faults,
    owners_of,
    pods_of,
)
from rayched.access.policy import AccessRole
from rayched.access.requests import facts_of_object
from rayched.api import kinds
from rayched.api.defaulting import DEFAULT_NAMESPACE
from rayched.api.kinds import AnyObject, UnknownKind
from rayched.server.admission.admission import Admission
from rayched.server.call_guard import CallGuard
from rayched.server.edge.caller import Caller
from rayched.server.errors import ApiFailure, denied_fields
from rayched.server.objects import Objects, read_entry
from rayched.store.codec import PoisonedObject
from rayched.store.keys import KeyTextError
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PodGroup

Stores = Callable[[str, int], None]
"""That so many bytes are to be written to a namespace. Raises ApiFailure."""
_NOTHING_KNOWN: Final = ObjectWorld({}, frozenset())


class ObjectJudge:
    """Of one call."""

    def __init__(
        self, guard: CallGuard, caller: Caller, call: str, objects: Objects, admission: Admission, stores: Stores
    ) -> None:
        self._guard = guard
        self._caller = caller
        self._call = call
        self._stores = stores
        self._objects = objects
        self._admission = admission

    def refusal_to_store(self, namespace: str, size: int) -> ApiFailure | None:
        """Why an object of so many bytes is not to be written now."""
        try:
            self._stores(namespace, size)
        except ApiFailure as failure:
            return failure
        return None

    @property
    def lets_all(self) -> bool:
        """Nothing has to be looked at."""
        return self._guard.is_admin(self._caller)

    async def refusals(self, subjects: Sequence[str], messages: Sequence[AnyObject]) -> list[ApiFailure | None]:
        """Of new objects, one each; those that may be created say by whom they are reported."""
        if self.lets_all:
            self._name_reporters(messages)
            return [None] * len(messages)
        allowed: list[AccessAllowed | ApiFailure] = [self._allowed(message) for message in messages]
        judged = [message for message, answer in zip(messages, allowed, strict=True) if isinstance(answer, AccessAllowed)]
        world = await self._world(judged)
        self._name_reporters(judged)
        return [
            answer if isinstance(answer, ApiFailure) else self._refusal(subject, None, message, answer, world)
            for subject, message, answer in zip(subjects, messages, allowed, strict=True)
        ]

    async def world_of(self, message: AnyObject) -> ObjectWorld:
        """What has to be known to judge an update to this, and `refuse_update` is given."""
        return _NOTHING_KNOWN if self.lets_all else await self._world([message])

    def refuse_update(self, subject: str, old: AnyObject, new: AnyObject, world: ObjectWorld) -> None:
        """Raises PERMISSION_DENIED."""
        self._name_reporters([new])
        if self.lets_all:
            return
        answer = self._allowed(new)
        refusal = answer if isinstance(answer, ApiFailure) else self._refusal(subject, old, new, answer, world)
        if refusal is not None:
            raise refusal

    def refuse_labels(self, subject: str, keys: Sequence[str]) -> None:
        """Of labels of a pod that is there. Raises PERMISSION_DENIED."""
        allowed = self._caller.allowed
        if self.lets_all or allowed is None or allowed.roles != {AccessRole.SUBMITTER}:
            return
        faults = label_faults(keys)
        if faults:
            raise denied_fields(subject, faults)

    def _name_reporters(self, messages: Sequence[AnyObject]) -> None:
        """Where somebody proves who they are."""
        if not self._caller.proves_nothing:
            for message in messages:
                name_reporter(message, self._caller.identity.uri)

    def _allowed(self, message: AnyObject) -> AccessAllowed | ApiFailure:
        try:
            return self._guard.judge_one(self._caller, self._call, facts_of_object(message))
        except ApiFailure as failure:
            return failure

    def _refusal(
        self, subject: str, old: AnyObject | None, new: AnyObject, allowed: AccessAllowed, world: ObjectWorld
    ) -> ApiFailure | None:
        namespace = new.metadata.namespace or DEFAULT_NAMESPACE
        faults = object_faults(old, new, namespace, allowed.bindings, world)
        return denied_fields(subject, faults) if faults else None

    async def _world(self, messages: Sequence[AnyObject]) -> ObjectWorld:
        pods = [Pod(spec=pod.spec) for pod in map(pods_of, messages) if pod is not None]
        groups = [message for message in messages if isinstance(message, PodGroup)]
        classes = await self._admission.classes_for_all([*pods, *groups])
        return ObjectWorld(classes.priority, await self._owners(messages))

    async def _owners(self, messages: Sequence[AnyObject]) -> frozenset[OwnerKey]:
        """Those of the owners that are there."""
        named = {owner for message in messages for owner in owners_of(message)}
        keys = {owner: key for owner in named if (key := self._key(owner)) is not None}
        if not keys:
            return frozenset()
        reading = await self._objects.store.get_many(list(keys.values()))
        found = set()
        for owner, entry in zip(keys, reading.entries, strict=True):
            try:
                if entry is not None and read_entry(entry).message.metadata.uid == owner.uid:
                    found.add(owner)
            except PoisonedObject:
                # What cannot be read owns nothing.
                continue
        return frozenset(found)

    def _key(self, owner: OwnerKey) -> bytes | None:
        """None: there can be no such object."""
        try:
            kind = kinds.by_name(owner.kind)
            return self._objects.keys.object_key(kind, owner.namespace, owner.name) if kind.namespaced else None
        except (UnknownKind, KeyTextError):
            return None
