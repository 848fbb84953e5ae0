"""Objects read and written for clients of Kubernetes: each verb is a call or a few on a replica.

A patch is made here, on the object as it is, and written under that object's resource version. When somebody else was faster it
is made again, unless it names a version itself. A dry run changes nothing: where the replica has none, as for deletions, the
object is only looked at.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

import grpc

from rayched.api.kinds import AnyObject, Kind, unwrap
from rayched.api.patches import PatchFault, json_patch, merge_patch
from rayched.api.strategic_patches import strategic_patch
from rayched.api.yaml_text import MAX_DEPTH, depth_exceeds
from rayched.client.errors import ApiError
from rayched.client.gateway_client import AsyncGatewayClient
from rayched.gateway import bodies, rendering
from rayched.gateway.calls import Document, GatewayAnswer, GatewayCall, read_manifest
from rayched.gateway.queries import NUMBER_MAX, ListQuery, dry_run, list_query, number, revision
from rayched.gateway.statuses import (
    StatusCause,
    StatusFailure,
    StatusSubject,
    bad_request,
    invalid,
    of_api_error,
    success,
    unsupported_type,
)

PAGE_MAX: Final = 500
_ATTEMPTS_MAX: Final = 5
_SERVER_SIDE_APPLY: Final = "application/apply-patch+yaml"
_BACKGROUND, _FOREGROUND, _ORPHAN = "Background", "Foreground", "Orphan"
_TOO_DEEP: Final = f"the patch leaves values that are nested more than {MAX_DEPTH} levels deep"


async def get(call: GatewayCall) -> GatewayAnswer:
    return _answer(call, 200, await stored(call))


async def list_objects(call: GatewayCall) -> GatewayAnswer:
    query = list_query(call.query)
    kind = call.path.resource.kind
    items, at, token = await _list(call, query)
    metadata = {"resourceVersion": str(at), **({"continue": token} if token else {})}
    return GatewayAnswer(200, rendering.many(kind, items, call.form, call.now, call.include, metadata))


async def create(call: GatewayCall) -> GatewayAnswer:
    document = bodies.read_document(call.body, call.content_type)
    item = read_manifest(call, document, creating=True)
    subject = StatusSubject(call.path.resource, item.metadata.name)
    try:
        created = await call.client.submit(item, dry_run=_dry_run(call))
    except ApiError as error:
        raise of_api_error(error, subject, creating=call.path.namespace or item.metadata.name) from None
    call.warnings.extend(created.warnings)
    return _answer(call, 201, unwrap(created.object))


async def update(call: GatewayCall) -> GatewayAnswer:
    item = read_manifest(call, bodies.read_document(call.body, call.content_type))
    return _answer(call, 200, await _replaced(call, item, _dry_run(call)))


async def patch(call: GatewayCall) -> GatewayAnswer:
    change = patcher(call)
    for attempt in range(_ATTEMPTS_MAX):
        found = await stored(call)
        before = rendering.stored_document(found)
        after = change(before)
        metadata = after.get("metadata")
        if not isinstance(metadata, dict):
            raise bad_request("the patch leaves no metadata")
        present = found.metadata.resource_version
        stated = metadata.setdefault("resourceVersion", present)
        item = read_manifest(call, after)
        try:
            replaced = await call.client.update(item, dry_run=_dry_run(call))
        except ApiError as error:
            if error.code is grpc.StatusCode.ABORTED and stated == present and attempt + 1 < _ATTEMPTS_MAX:
                continue
            raise of_api_error(error, call.subject) from None
        return _answer(call, 200, unwrap(replaced.object))
    raise AssertionError("the last attempt returns or raises")


def patcher(call: GatewayCall) -> Callable[[Document], Document]:
    """What the patch in a body makes of a document. Raises StatusFailure, as what it gives does."""
    if call.content_type == _SERVER_SIDE_APPLY or call.content_type not in bodies.PATCHES:
        # kubectl apply --server-side tells by this code that it is to be tried without.
        raise unsupported_type(call.content_type, bodies.PATCHES)
    body = bodies.read_json(call.body)
    kind = call.path.resource.kind.name

    def change(before: Document) -> Document:
        try:
            if call.content_type == bodies.JSON_PATCH:
                after = json_patch(before, body)
            elif call.content_type == bodies.STRATEGIC_PATCH:
                after = strategic_patch(before, body, kind)
            else:
                after = merge_patch(before, body)
        except PatchFault as error:
            raise invalid(call.subject, [StatusCause("patch", str(error))]) from None
        except RecursionError:
            raise bad_request(_TOO_DEEP) from None
        if not isinstance(after, dict):
            raise bad_request("the patch leaves no object")
        if depth_exceeds(after, MAX_DEPTH):
            raise bad_request(_TOO_DEEP)
        return after

    return change


async def delete(call: GatewayCall) -> GatewayAnswer:
    options = delete_options(call, bodies.read_document(call.body, call.content_type))
    _check_propagation(call, options)
    found = await stored(call)
    check_preconditions(call, options, found)
    if dry_run(options.get("dryRun")):
        return _answer(call, 200, found)
    uid = found.metadata.uid
    deleted = await _deleted(call.client, call.path.resource.kind, found, options.get("gracePeriodSeconds"), call.subject)
    if deleted is None:
        return GatewayAnswer(200, success(200, call.subject, uid))
    return _answer(call, 200, deleted)


async def delete_collection(call: GatewayCall) -> GatewayAnswer:
    """All objects of a list, one after the other; those that are gone by then are gone."""
    options = delete_options(call, bodies.read_document(call.body, call.content_type))
    _check_propagation(call, options)
    kind, only_look = call.path.resource.kind, dry_run(options.get("dryRun"))
    items, at, _ = await _list(call, list_query({name: text for name, text in call.query.items() if name != "limit"}))
    for item in () if only_look else items:
        subject = StatusSubject(call.path.resource, item.metadata.name)
        try:
            await _deleted(call.client, kind, item, options.get("gracePeriodSeconds"), subject)
        except StatusFailure as failure:
            if failure.reason not in ("NotFound", "Conflict"):
                raise
    return GatewayAnswer(200, rendering.many(kind, items, call.form, call.now, call.include, {"resourceVersion": str(at)}))


def delete_options(call: GatewayCall, document: Document) -> Document:
    """DeleteOptions of a body or, field by field, of the query. Raises StatusFailure."""
    options = dict(document)
    grace = options.get("gracePeriodSeconds", number(call.query, "gracePeriodSeconds"))
    if grace is not None and (isinstance(grace, bool) or not isinstance(grace, int) or not 0 <= grace <= NUMBER_MAX):
        raise bad_request(f"gracePeriodSeconds: found {str(grace)[:40]!r}, want a whole number from 0 on")
    options["gracePeriodSeconds"] = grace
    for name in ("propagationPolicy", "dryRun"):
        options[name] = options.get(name) or call.query.get(name, "")
    return options


def check_preconditions(call: GatewayCall, options: Document, item: AnyObject) -> None:
    """Raises StatusFailure where the object is not the one that is meant."""
    wanted = options.get("preconditions") or {}
    if not isinstance(wanted, dict):
        raise bad_request("preconditions: must be an object")
    for name, found in (("uid", item.metadata.uid), ("resourceVersion", item.metadata.resource_version)):
        if wanted.get(name) not in (None, "", found):
            word = "UID" if name == "uid" else "ResourceVersion"
            message = f"Precondition failed: {word} in precondition: {wanted[name]}, {word} in object meta: {found}"
            raise StatusFailure(409, "Conflict", message, subject=call.subject)


def _check_propagation(call: GatewayCall, options: Document) -> None:
    policy = options["propagationPolicy"]
    if policy == _ORPHAN or options.get("orphanDependents"):
        message = (
            "propagationPolicy: Orphan is not served: what an object owns goes with it; allowed are Background and Foreground"
        )
        raise bad_request(message)
    if policy == _FOREGROUND:
        call.warnings.append("propagationPolicy: Foreground is served as Background: what the object owns goes after it")
    elif policy not in ("", _BACKGROUND):
        raise bad_request(f"propagationPolicy: found {policy!r}, want {_BACKGROUND} or {_FOREGROUND}")


async def _deleted(
    client: AsyncGatewayClient, kind: Kind, item: AnyObject, grace_seconds: int | None, subject: StatusSubject
) -> AnyObject | None:
    """The object as it was last, where the replica knows."""
    metadata = item.metadata
    try:
        answer = await client.delete(
            kind, metadata.name, metadata.namespace, uid=metadata.uid, grace_period_seconds=grace_seconds
        )
    except ApiError as error:
        raise of_api_error(error, subject) from None
    return unwrap(answer.object) if answer.object.WhichOneof("kind") else None


async def stored(call: GatewayCall) -> AnyObject:
    """The object that the path names, as it is now. Raises StatusFailure."""
    try:
        return await call.client.get(call.path.resource.kind, call.path.name, call.path.namespace)
    except ApiError as error:
        raise of_api_error(error, call.subject) from None


async def _replaced(call: GatewayCall, item: AnyObject, only_try: bool) -> AnyObject:
    try:
        return unwrap((await call.client.update(item, dry_run=only_try)).object)
    except ApiError as error:
        raise of_api_error(error, call.subject) from None


async def listed(call: GatewayCall, kind: Kind, namespace: str, query: ListQuery) -> list[AnyObject]:
    """All objects of a kind that the query selects. Raises StatusFailure."""
    found, _, _ = await _pages(call, kind, namespace, dataclasses.replace(query, limit=0, token="", exact=False))
    return found


async def _list(call: GatewayCall, query: ListQuery) -> tuple[list[AnyObject], int, str]:
    return await _pages(call, call.path.resource.kind, call.path.namespace, query)


async def _pages(call: GatewayCall, kind: Kind, namespace: str, query: ListQuery) -> tuple[list[AnyObject], int, str]:
    """Objects, their revision, the token of the next page. The replica's pages are put together up to the limit."""
    found: list[AnyObject] = []
    token, at = query.token, 0
    while True:
        left = query.limit - len(found)
        try:
            page = await call.client.list_page(
                kind,
                namespace=namespace,
                label_selector=query.label_selector,
                field_selector=query.field_selector,
                limit=min(left, PAGE_MAX) if query.limit else 0,
                token=token,
                revision=revision(query.resource_version) if query.exact and not token else 0,
            )
        except ApiError as error:
            raise of_api_error(error, StatusSubject(call.path.resource)) from None
        found.extend(map(unwrap, page.objects))
        token, at = getattr(page, "continue"), page.revision
        if not token or (query.limit and len(found) >= query.limit):
            return found, at, token


def _dry_run(call: GatewayCall) -> bool:
    return dry_run(call.query.get("dryRun"))


def _answer(call: GatewayCall, code: int, item: AnyObject) -> GatewayAnswer:
    shown: Any = rendering.one(call.path.resource.kind, item, call.form, call.now, call.include)
    return GatewayAnswer(code, shown)
