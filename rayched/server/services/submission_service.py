"""The service rayched.v1.Submission: objects created, applied, read, listed and deleted.

Answers to writes are sent after the commit. Reads are linearizable: they see every write that was answered before they began,
at whichever replica.
"""

from __future__ import annotations

import asyncio
from typing import Final

from google.protobuf.message import DecodeError

from rayched.access.requests import THE_CLUSTER, RequestFacts, facts_of_object
from rayched.api import kinds
from rayched.api.admission import check_default_class
from rayched.api.errors import FieldError
from rayched.api.kinds import AnyObject, UnknownKind
from rayched.api.validation import validate
from rayched.api.wire import message_fields
from rayched.server.admission import last_applied
from rayched.server.admission.admission import Admission
from rayched.server.admission.applying import step
from rayched.server.admission.creation import Creator
from rayched.server.admission.deletion import Deleter
from rayched.server.admission.large_objects import OBJECTS_FIELD, REQUEST_BYTES_MAX
from rayched.server.admission.object_judge import ObjectJudge
from rayched.server.admission.replacing import replace
from rayched.server.admission.submissions import Created
from rayched.server.call_guard import CallGuard
from rayched.server.errors import ApiFailure, Code, conflict, invalid_fields, over_limit
from rayched.server.listing import PAGE_MAX, list_page
from rayched.server.objects import CallTarget, Objects, refuse_oversize, timestamp_now
from rayched.server.rpc import Call, malformed, takes_bytes
from rayched.store.keys import KeyTextError
from rayched.v1.core_pb2 import Pod
from rayched.v1.services_pb2 import (
    ApplyRequest,
    ApplyResponse,
    DeleteRequest,
    DeleteResponse,
    GetRequest,
    GetResponse,
    ListRequest,
    ListResponse,
    SubmitManyRequest,
    SubmitManyResponse,
    SubmitRequest,
    SubmitResponse,
)
from rayched.v1.workloads_pb2 import Object, PriorityClass

OBJECTS_A_BATCH: Final = 100
BYTES_A_BATCH: Final = REQUEST_BYTES_MAX
_CREATED_MEANWHILE_MAX: Final = 3
OLD_LISTS_MAX: Final = 2
"""Pages of an earlier revision that are read at a time: etcd keeps what they need away from its own work."""
_OLD_LIST_SECONDS_MAX: Final = 2.5
_OBJECTS_A_CALL: Final = 10
"""So many objects of a batch count as one call where rates are limited."""


class SubmissionService:
    """Any replica serves it."""

    def __init__(self, objects: Objects, admission: Admission, creator: Creator, deleter: Deleter, guard: CallGuard) -> None:
        self._objects = objects
        self._admission = admission
        self._creator = creator
        self._deleter = deleter
        self._old_lists = asyncio.Semaphore(OLD_LISTS_MAX)
        self._guard = guard

    async def submit(self, request: SubmitRequest, call: Call) -> SubmitResponse:
        (created,) = await self._creator.create([request.object], request.dry_run, self._judge(call))
        if isinstance(created, ApiFailure):
            raise created
        _tell_created(call, created)
        item = await self._creator.as_created(created)
        return SubmitResponse(uid=created.uid, revision=created.revision, object=item, warnings=created.warnings)

    @takes_bytes
    async def submit_many(self, request: bytes, call: Call) -> SubmitManyResponse:
        try:
            objects = message_fields(request, OBJECTS_FIELD)
            if objects is None:
                objects = [item.SerializeToString() for item in SubmitManyRequest.FromString(request).objects]
            count, size = len(objects), len(request)
            call.counted(calls=count / _OBJECTS_A_CALL)
            if count > OBJECTS_A_BATCH:
                raise over_limit(f"objects: {count} in one batch, at most {OBJECTS_A_BATCH} are allowed")
            # A single large object is refused as such, with its name.
            if size > BYTES_A_BATCH and count > 1:
                raise over_limit(f"objects: {size} bytes in one batch, at most {BYTES_A_BATCH} (1 MiB) are allowed")
            results = await self._creator.create_many(objects, self._judge(call))
        except DecodeError as error:
            raise malformed(SubmitManyRequest.DESCRIPTOR.name, error) from None
        response = SubmitManyResponse()
        for content, created in zip(objects, results, strict=True):
            if isinstance(created, ApiFailure):
                response.results.add(outcome=created.outcome())
                call.concerns(_facts_of(content), code=created.code.name)
            else:
                _tell_created(call, created)
                result = response.results.add(uid=created.uid, revision=created.revision, warnings=created.warnings)
                result.outcome.SetInParent()
        return response

    async def apply(self, request: ApplyRequest, call: Call) -> ApplyResponse:
        judge = self._judge(call)
        manifest = kinds.unwrap(request.object)
        metadata = manifest.metadata
        target = self._target_of(manifest)
        refuse_oversize(target, manifest)
        for _attempt in range(_CREATED_MEANWHILE_MAX):
            try:
                return await self._update(request, judge, call)
            except ApiFailure as failure:
                if failure.code is not Code.NOT_FOUND or metadata.resource_version or request.replace:
                    raise
            item = Object()
            item.CopyFrom(request.object)
            last_applied.add_note(kinds.unwrap(item).metadata)
            (created,) = await self._creator.create([item], request.dry_run, judge)
            if not isinstance(created, ApiFailure):
                _tell_created(call, created)
                whole = await self._creator.as_created(created)
                return ApplyResponse(
                    action=ApplyResponse.CREATED, revision=created.revision, object=whole, warnings=created.warnings
                )
            # Where somebody else has just created it, there is something to update.
            if created.code is not Code.ALREADY_EXISTS or metadata.uid:
                raise created
        raise conflict(f"{target}: others keep creating and deleting it; try again")

    async def get(self, request: GetRequest, _: Call) -> GetResponse:
        read = await self._objects.get(self._objects.target(request.key))
        return GetResponse(object=read.stored.object)

    async def list(self, request: ListRequest, call: Call) -> ListResponse:
        call.counted(objects=min(request.limit or PAGE_MAX, PAGE_MAX))
        if not (request.revision or getattr(request, "continue")):
            return await list_page(self._objects, request)
        try:
            async with asyncio.timeout(_OLD_LIST_SECONDS_MAX):
                await self._old_lists.acquire()
        except TimeoutError:
            raise call.refused("old-lists", f"{OLD_LISTS_MAX} lists of an earlier revision are under way") from None
        try:
            return await list_page(self._objects, request)
        finally:
            self._old_lists.release()

    async def delete(self, request: DeleteRequest, _: Call) -> DeleteResponse:
        grace = request.grace_period_seconds if request.HasField("grace_period_seconds") else None
        deleted = await self._deleter.delete(self._objects.target(request.key), request.uid, grace)
        return DeleteResponse(revision=deleted.revision, object=deleted.read.stored.object)

    def _target_of(self, manifest: AnyObject) -> CallTarget:
        """What the manifest names; raises with the path of what keeps it from naming anything."""
        kind, metadata = kinds.of_message(manifest), manifest.metadata
        try:
            return self._objects.target_of(kind, metadata.namespace, metadata.name)
        except (ApiFailure, KeyTextError):
            paths = ["metadata.name", *(["metadata.namespace"] if metadata.namespace else [])]
            errors = [error for error in validate(manifest) if error.path in paths]
            if not errors:
                raise
            raise invalid_fields(f"{kind.name} {metadata.name}".rstrip(), errors) from None

    def _judge(self, call: Call) -> ObjectJudge:
        return ObjectJudge(self._guard, call.caller, call.name, self._objects, self._admission, call.stores)

    async def _update(self, request: ApplyRequest, judge: ObjectJudge, call: Call) -> ApplyResponse:
        """Raises NOT_FOUND where there is nothing to update."""
        manifest = kinds.unwrap(request.object)
        metadata = manifest.metadata
        target = self._objects.target_of(kinds.of_message(manifest), metadata.namespace, metadata.name)
        classes = await self._admission.classes_for([manifest] if isinstance(manifest, Pod) else [])
        defaults = await self._admission.default_classes([manifest])
        world = await judge.world_of(manifest)

        def edit(stored: AnyObject) -> list[FieldError]:
            if metadata.uid and metadata.uid != stored.metadata.uid:
                raise conflict(f"{target}: has uid {stored.metadata.uid}, not {metadata.uid[:80]}; it is another object")
            old = type(stored).FromString(stored.SerializeToString())
            errors = replace(stored, manifest) if request.replace else step(stored, manifest, classes, timestamp_now())
            if not errors:
                judge.refuse_update(str(target), old, stored, world)
                if not request.dry_run and stored != old:
                    call.stores(stored.metadata.namespace, stored.ByteSize())
            return errors + check_default_class(manifest, defaults) if isinstance(manifest, PriorityClass) else errors

        rewritten = await self._objects.rewrite(target, edit, metadata.resource_version, dry_run=request.dry_run)
        action = ApplyResponse.CONFIGURED if rewritten.changed else ApplyResponse.UNCHANGED
        return ApplyResponse(action=action, revision=rewritten.revision, object=kinds.wrap(rewritten.message))


def _facts_of(content: bytes) -> RequestFacts:
    """Of an object that was not created, maybe as it is none."""
    try:
        return facts_of_object(kinds.unwrap(Object.FromString(content)))
    except UnknownKind:
        return THE_CLUSTER


def _tell_created(call: Call, created: Created) -> None:
    """Under the name that it got."""
    key = created.key
    call.concerns(RequestFacts(key.kind, key.namespace, key.name), revision=created.revision, uid=created.uid)
