"""Merge patches and JSON patches, on plain documents. Pure; documents that come in stay as they are.

Kubernetes' third patch, the strategic one, is in strategic_patches.py.

Source: RFC 7386 (merge), RFC 6902 (JSON).
"""

from __future__ import annotations

import copy
import json
from typing import Any, Final

from rayched.api.errors import bounded_line, quoted

Document = dict[str, Any]

_OPERATIONS: Final = ("add", "remove", "replace", "move", "copy", "test")
_OPERATIONS_MAX: Final = 10_000
_COPIED_CHARACTERS_MAX: Final = 1 << 18
"""As JSON, of all copies of one patch: copies of copies grow without end. Kubernetes' API server bounds both as well."""
_INDEX_DIGITS_MAX: Final = 9


class PatchFault(ValueError):
    """A patch that is none, or does not fit the document; one line, with keys and paths of the patch in it."""

    def __init__(self, text: str) -> None:
        super().__init__(bounded_line(text))


def merge_patch(document: Any, patch: Any) -> Any:
    """Maps are merged, null removes, all else replaces."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(document: Any, operations: Any) -> Any:
    """Each operation in turn, all or none. Raises PatchFault."""
    if not isinstance(operations, list):
        raise PatchFault('a JSON patch is a list of operations, as in [{"op": "replace", "path": "/spec/priority", "value": 5}]')
    if len(operations) > _OPERATIONS_MAX:
        raise PatchFault(f"a JSON patch has at most {_OPERATIONS_MAX} operations, found {len(operations)}")
    result = copy.deepcopy(document)
    copied = 0
    for number, operation in enumerate(operations):
        where = f"operation {number}"
        if not isinstance(operation, dict) or operation.get("op") not in _OPERATIONS:
            raise PatchFault(f"{where}: op: want one of {', '.join(_OPERATIONS)}")
        if operation["op"] == "copy":
            copied += len(json.dumps(_at(result, _pointer(operation, "from", where), where)))
            if copied > _COPIED_CHARACTERS_MAX:
                raise PatchFault(f"{where}: the copies of this patch come to more than {_COPIED_CHARACTERS_MAX} characters")
        result = _operated(result, operation, where)
    return result


def _operated(document: Any, operation: Document, where: str) -> Any:
    name, path = operation["op"], _pointer(operation, "path", where)
    if name in ("add", "replace", "test") and "value" not in operation:
        raise PatchFault(f"{where}: value: is required to {name}")
    if name == "test":
        if _at(document, path, where) != operation["value"]:
            raise PatchFault(f"{where}: the value at {operation['path']} is another one")
        return document
    if name in ("move", "copy"):
        source = _pointer(operation, "from", where)
        value = _at(document, source, where)
        if name == "move":
            return _added(_removed(document, source, where), path, value, where)
        return _added(document, path, copy.deepcopy(value), where)
    if name == "add":
        return _added(document, path, copy.deepcopy(operation["value"]), where)
    _at(document, path, where)
    if name == "remove":
        return _removed(document, path, where)
    if not path:
        return copy.deepcopy(operation["value"])
    parent = _at(document, path[:-1], where)
    parent[_index(parent, path[-1], where) if isinstance(parent, list) else path[-1]] = copy.deepcopy(operation["value"])
    return document


def _pointer(operation: Document, name: str, where: str) -> list[str]:
    text = operation.get(name)
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise PatchFault(f"{where}: {name}: want a path such as /metadata/labels/app")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _at(document: Any, path: list[str], where: str) -> Any:
    for part in path:
        if isinstance(document, list):
            document = document[_index(document, part, where)]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        else:
            raise PatchFault(f"{where}: there is no {quoted(part)} in /{'/'.join(path)}")
    return document


def _index(items: list[Any], part: str, where: str, end: int = 0) -> int:
    if not part.isdecimal() or len(part) > _INDEX_DIGITS_MAX or int(part) >= len(items) + end:
        raise PatchFault(f"{where}: {quoted(part)} is no place in a list of {len(items)}")
    return int(part)


def _added(document: Any, path: list[str], value: Any, where: str) -> Any:
    if not path:
        return value
    parent = _at(document, path[:-1], where)
    if isinstance(parent, list):
        parent.insert(len(parent) if path[-1] == "-" else _index(parent, path[-1], where, end=1), value)
    elif isinstance(parent, dict):
        parent[path[-1]] = value
    else:
        raise PatchFault(f"{where}: /{'/'.join(path[:-1])} is a plain value, and has nothing inside")
    return document


def _removed(document: Any, path: list[str], where: str) -> Any:
    if not path:
        return None
    parent = _at(document, path[:-1], where)
    del parent[_index(parent, path[-1], where) if isinstance(parent, list) else path[-1]]
    return document
