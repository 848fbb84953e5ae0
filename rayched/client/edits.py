"""Changes of stored objects: read, changed here, put back under the revision that was read. Pure; generators as in pinned.py.

Where somebody else has changed the object meanwhile, it is read and changed again. A change that must not be made twice is not,
where the attempt before may have made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Final

import grpc

from rayched.api import kinds
from rayched.api.errors import quoted
from rayched.api.kinds import AnyObject, Kind, unwrap, wrap
from rayched.api.manifest import read_object, write_object
from rayched.api.patches import json_patch, merge_patch
from rayched.api.strategic_patches import strategic_patch
from rayched.client import calls
from rayched.client.errors import ApiError
from rayched.client.pinned import Steps
from rayched.v1.services_pb2 import ApplyResponse

PATCHES: Final[Mapping[str, Callable[[Any, Any, str], Any]]] = {
    "strategic": strategic_patch,
    "merge": lambda document, patch, _: merge_patch(document, patch),
    "json": lambda document, patch, _: json_patch(document, patch),
}
"""By its type, what a patch makes of a document of a kind."""

Edit = Callable[[AnyObject], AnyObject]
"""A changed object, made of one that stays as it is."""


def edited(
    kind: str | Kind, name: str, namespace: str, edit: Edit, dry_run: bool, *, repeatable: bool = True
) -> Steps[ApplyResponse]:
    """Reads, edits and writes until nobody else comes between."""
    while True:
        found = yield calls.get(kind, name, namespace)
        item = edit(found)
        try:
            answer: ApplyResponse = yield calls.update(item, dry_run)
            return answer
        except ApiError as error:
            insists = item.metadata.resource_version != found.metadata.resource_version
            if error.code is not grpc.StatusCode.ABORTED or insists or (error.may_have_been_done and not repeatable):
                raise


def annotation_edit(add: Mapping[str, str] | None, remove: Iterable[str], overwrite: bool) -> Edit:
    """kubectl's rules. Raises ApiError (FAILED_PRECONDITION) for an annotation that has another value."""
    return _metadata_edit("annotation", dict(add or {}), tuple(remove), overwrite)


def label_edit(add: Mapping[str, str] | None, remove: Iterable[str], overwrite: bool) -> Edit:
    """The same of labels."""
    return _metadata_edit("label", dict(add or {}), tuple(remove), overwrite)


def _metadata_edit(what: str, added: Mapping[str, str], removed: Sequence[str], overwrite: bool) -> Edit:

    def edit(found: AnyObject) -> AnyObject:
        item = unwrap(wrap(found))
        texts: MutableMapping[str, str] = getattr(item.metadata, f"{what}s")
        for key, text in sorted(added.items()):
            if not overwrite and texts.get(key, text) != text:
                where = f"{found.metadata.namespace}/{found.metadata.name}".lstrip("/")
                raise ApiError(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f"{kinds.of_message(found).name} {where}: {what} {quoted(key)}: has value {quoted(texts[key])} already, "
                    "and overwrite is not set",
                )
        for key in removed:
            texts.pop(key, None)
        texts.update(added)
        return item

    return edit


def patch_edit(patch: Any, patch_type: str) -> Edit:
    """Raises ValueError: PatchFault, or ManifestErrors where what comes of it is no object."""
    change = PATCHES[patch_type]

    def edit(found: AnyObject) -> AnyObject:
        document = change(write_object(wrap(found)), patch, kinds.of_message(found).name)
        item = unwrap(read_object(document).object)
        # Whose it is and at what revision is not the patch's to say, but it may insist on a revision.
        item.metadata.name, item.metadata.namespace = found.metadata.name, found.metadata.namespace
        item.metadata.uid = found.metadata.uid
        item.metadata.resource_version = item.metadata.resource_version or found.metadata.resource_version
        return item

    return edit
