"""Labels and annotations have several authors: a manifest that is applied takes back only what it set itself.

An object that was applied carries a note, an annotation with the keys that its manifest had. At the next apply

* what the manifest has is set;
* what the manifest before it had and this one has not any more goes;
* what others set, by `label` for example, stays.

An object without a note was made otherwise, and loses nothing at its first apply. A manifest as `get` gives it, known by its uid,
is no new statement about who owns what: where nothing else differs it leaves the note as it is.

Pure. Source: the three-way merge of kubectl apply 1.34, whose note is the whole manifest. Of the other fields only the manifest
is the author.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Final

from rayched.api.names import LAST_APPLIED as NOTE
from rayched.v1.meta_pb2 import ObjectMeta

_FIELDS: Final = ("labels", "annotations")


def add_note(manifest: ObjectMeta) -> None:
    """Notes in the metadata of a manifest what it has."""
    manifest.annotations[NOTE] = _note(manifest)


def merge(stored: ObjectMeta, manifest: ObjectMeta, result: ObjectMeta) -> None:
    """Completes `result`, which has what the manifest has and perhaps more, by what others own; all else goes."""
    before = _noted(stored)
    for name in _FIELDS:
        theirs: MutableMapping[str, str] = getattr(stored, name)
        mine: MutableMapping[str, str] = getattr(result, name)
        said: MutableMapping[str, str] = getattr(manifest, name)
        for key, text in theirs.items():
            if key not in said and key not in before[name]:
                mine[key] = text
        for key in before[name]:
            if key not in said:
                mine.pop(key, None)
    if NOTE in stored.annotations:
        result.annotations[NOTE] = stored.annotations[NOTE]
    else:
        result.annotations.pop(NOTE, None)


def renew_note(manifest: ObjectMeta, result: ObjectMeta, otherwise_equal: bool) -> None:
    """The note of what `merge` completed; `otherwise_equal`: nothing but the note would change."""
    if not (otherwise_equal and manifest.uid):
        result.annotations[NOTE] = _note(manifest)


def _note(manifest: ObjectMeta) -> str:
    keys = {name: sorted(key for key in getattr(manifest, name) if key != NOTE) for name in _FIELDS}
    return json.dumps({name: found for name, found in keys.items() if found}, separators=(",", ":"))


def _noted(stored: ObjectMeta) -> dict[str, list[str]]:
    """The keys that the last manifest had; none where there is no note, or one that somebody else wrote."""
    empty: dict[str, list[str]] = {name: [] for name in _FIELDS}
    try:
        found = json.loads(stored.annotations.get(NOTE, "{}"))
    except ValueError:
        return empty
    if not isinstance(found, dict):
        return empty
    lists = {name: found.get(name) for name in _FIELDS}
    return {name: [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else [] for name, keys in lists.items()}
