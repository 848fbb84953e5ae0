"""Metadata have several authors: a manifest that is applied takes back only what it set itself.

An object that was applied carries a note, an annotation with what its manifest had: keys of labels and annotations, finalizers,
uids of owner references. At the next apply

* what the manifest has is set;
* what the manifest before it had and this one has not any more goes;
* what others set, by `label` for example, stays.

An object without a note was made otherwise, and loses nothing at its first apply. A manifest as `get` gives it, known by its uid,
is no new statement about who owns what: where nothing else differs it leaves the note as it is.

What controllers live by is nobody's to take back: the finalizer by which a job counts a pod, and the reference to the controller,
unless the manifest names another one.

Pure. Source: the three-way merge of kubectl apply 1.34, whose note is the whole manifest. Of the other fields only the manifest
is the author.
"""

from __future__ import annotations

import json
from collections.abc import Collection, MutableMapping
from typing import Final

from rayched.api.names import LAST_APPLIED as NOTE
from rayched.api.termination import JOB_TRACKING
from rayched.v1.meta_pb2 import ObjectMeta, OwnerReference

_MAPS: Final = ("labels", "annotations")
_FINALIZERS: Final = "finalizers"
_OWNERS: Final = "ownerReferences"
_FIELDS: Final = (*_MAPS, _FINALIZERS, _OWNERS)


def add_note(manifest: ObjectMeta) -> None:
    """Notes in the metadata of a manifest what it has."""
    manifest.annotations[NOTE] = _note(manifest)


def merge(stored: ObjectMeta, manifest: ObjectMeta, result: ObjectMeta) -> None:
    """Completes `result`, which has what the manifest has and perhaps more, by what others own; all else goes."""
    before = _noted(stored)
    for name in _MAPS:
        theirs: MutableMapping[str, str] = getattr(stored, name)
        mine: MutableMapping[str, str] = getattr(result, name)
        said: MutableMapping[str, str] = getattr(manifest, name)
        for key, text in theirs.items():
            if key not in said and key not in before[name]:
                mine[key] = text
        for key in before[name]:
            if key not in said:
                mine.pop(key, None)
    _merge_finalizers(stored, manifest, result, before[_FINALIZERS])
    _merge_owners(stored, manifest, result, before[_OWNERS])
    if NOTE in stored.annotations:
        result.annotations[NOTE] = stored.annotations[NOTE]
    else:
        result.annotations.pop(NOTE, None)


def _merge_finalizers(stored: ObjectMeta, manifest: ObjectMeta, result: ObjectMeta, before: Collection[str]) -> None:
    said = manifest.finalizers
    found = [one for one in result.finalizers if one in said or one not in before]
    found += [one for one in stored.finalizers if one not in found and one not in before]
    del result.finalizers[:]
    result.finalizers.extend(found)


def _merge_owners(stored: ObjectMeta, manifest: ObjectMeta, result: ObjectMeta, before: Collection[str]) -> None:
    said = {owner.uid for owner in manifest.owner_references}
    controlled = any(owner.controller for owner in manifest.owner_references)
    found = {owner.uid: owner for owner in result.owner_references if owner.uid in said or owner.uid not in before}
    for owner in stored.owner_references:
        if owner.uid not in found and owner.uid not in before and not (owner.controller and controlled):
            found[owner.uid] = owner
    copies = [OwnerReference.FromString(owner.SerializeToString()) for owner in found.values()]
    del result.owner_references[:]
    result.owner_references.extend(copies)


def renew_note(manifest: ObjectMeta, result: ObjectMeta, otherwise_equal: bool) -> None:
    """The note of what `merge` completed; `otherwise_equal`: nothing but the note would change."""
    if not (otherwise_equal and manifest.uid):
        result.annotations[NOTE] = _note(manifest)


def _note(manifest: ObjectMeta) -> str:
    keys = {name: sorted(key for key in getattr(manifest, name) if key != NOTE) for name in _MAPS}
    keys[_FINALIZERS] = sorted(finalizer for finalizer in manifest.finalizers if finalizer != JOB_TRACKING)
    keys[_OWNERS] = sorted(owner.uid for owner in manifest.owner_references if not owner.controller)
    return json.dumps({name: found for name, found in keys.items() if found}, separators=(",", ":"))


def _noted(stored: ObjectMeta) -> dict[str, list[str]]:
    """What the last manifest had; nothing where there is no note, or one that somebody else wrote."""
    empty: dict[str, list[str]] = {name: [] for name in _FIELDS}
    try:
        found = json.loads(stored.annotations.get(NOTE, "{}"))
    except ValueError:
        return empty
    if not isinstance(found, dict):
        return empty
    lists = {name: found.get(name) for name in _FIELDS}
    return {name: [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else [] for name, keys in lists.items()}
