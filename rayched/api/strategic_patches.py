"""Kubernetes' strategic merge patch, by the types of what it merges. Pure; the document is left as it is.

    strategic_patch(document, {"spec": {"containers": [{"name": "main", "image": "b"}]}}, "Pod")

It merges some lists by a key of their items (merge_keys.py), which depends on whose list it is: ports of a container are known by
another field than those of a service, and taints are replaced as a whole. Its directives are `$patch` (delete, replace, merge),
`$setElementOrder/FIELD`, `$deleteFromPrimitiveList/FIELD`, `$retainKeys`.

Source: strategicpatch of apimachinery, Kubernetes 1.34.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from rayched.api.merge_keys import LISTS, REPLACED, SET, MergedList, field_type
from rayched.api.patches import PatchFault

Document = dict[str, Any]

_PATCH: Final = "$patch"
_RETAIN_KEYS: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder/"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_DEPTH_MAX: Final = 60


def strategic_patch(target: Document, patch: Any, kind: str) -> Document:
    """Raises PatchFault."""
    if not isinstance(patch, dict):
        raise PatchFault("a strategic merge patch must be an object")
    found = _merged_object(copy.deepcopy(target), copy.deepcopy(patch), kind, "", _DEPTH_MAX)
    return {} if found is None else found


def _merged_object(target: Document, patch: Document, type_name: str, path: str, depth: int) -> Document | None:
    """Changes the target. None: the patch deletes it."""
    if not depth:
        raise PatchFault(f"{path}: lies too deep")
    directive = patch.pop(_PATCH, "merge")
    if directive == "replace":
        return patch
    if directive == "delete":
        return None
    if directive != "merge":
        raise PatchFault(f"{path or 'patch'}.{_PATCH}: found {directive!r}, want merge, replace or delete")
    retained = patch.pop(_RETAIN_KEYS, None)
    if retained is not None:
        kept = _list(retained, f"{path}.{_RETAIN_KEYS}")
        for key in [one for one in target if one not in kept]:
            del target[key]
    orders = {key.removeprefix(_ORDER): patch.pop(key) for key in [one for one in patch if one.startswith(_ORDER)]}
    for key in [one for one in patch if one.startswith(_DELETE_FROM)]:
        field = key.removeprefix(_DELETE_FROM)
        gone = _list(patch.pop(key), f"{path}.{key}")
        if isinstance(target.get(field), list):
            target[field] = [one for one in target[field] if one not in gone]
    for key, value in patch.items():
        _merge_field(target, key, value, type_name, f"{path}.{key}" if path else key, depth)
    for field, order in orders.items():
        rule = LISTS.get(type_name, {}).get(field)
        if rule is not None and isinstance(target.get(field), list):
            target[field] = _in_order(target[field], _list(order, f"{path}.{_ORDER}{field}"), rule)
    return target


def _merge_field(target: Document, key: str, value: Any, type_name: str, path: str, depth: int) -> None:
    if value is None:
        target.pop(key, None)
        return
    rule = LISTS.get(type_name, {}).get(key)
    if rule is not None:
        before = target.get(key)
        target[key] = _merged_list(before if isinstance(before, list) else [], _list(value, path), rule, path, depth)
    elif isinstance(value, dict) and key not in REPLACED.get(type_name, ()):
        before = target.get(key)
        merged = _merged_object(before if isinstance(before, dict) else {}, value, field_type(type_name, key), path, depth - 1)
        if merged is None:
            target.pop(key, None)
        else:
            target[key] = merged
    else:
        target[key] = value


def _merged_list(target: list[Any], patch: list[Any], rule: MergedList, path: str, depth: int) -> list[Any]:
    if rule.key == SET:
        known = {one for one in target if _is_plain(one)}
        return target + [one for one in patch if one not in (known if _is_plain(one) else target)]
    if any(isinstance(one, dict) and one.get(_PATCH) == "replace" and rule.key not in one for one in patch):
        return [one for one in patch if not (isinstance(one, dict) and _PATCH in one)]
    # By key, as a patch may bring many items.
    found: list[Any] = list(target)
    places: dict[Any, int] = {}
    for at, one in enumerate(found):
        if isinstance(one, dict) and _is_plain(one.get(rule.key)):
            places.setdefault(one.get(rule.key), at)
    for item in patch:
        if not isinstance(item, dict) or rule.key not in item:
            raise PatchFault(f"{path}: each item needs its {rule.key}")
        key = item[rule.key]
        if not _is_plain(key):
            raise PatchFault(f"{path}: the {rule.key} of an item is neither an object nor a list")
        place = places.get(key)
        before = {} if place is None else found[place]
        merged = _merged_object(before, item, rule.item, f"{path}[{rule.key}={key}]", depth - 1)
        if place is None and merged is not None:
            places[key] = len(found)
            found.append(merged)
        elif place is not None:
            found[place] = merged
            if merged is None:
                del places[key]
    return [one for one in found if one is not None]


def _in_order(items: list[Any], order: list[Any], rule: MergedList) -> list[Any]:
    """Items that the order names as it says; the others, which the patch's author did not know, where they were before."""

    def key_of(item: Any) -> Any:
        return item.get(rule.key) if rule.key != SET and isinstance(item, dict) else item

    named: dict[Any, int] = {}
    for number, key in enumerate(map(key_of, order)):
        if _is_plain(key):
            named.setdefault(key, number)

    def place_of(item: Any) -> int | None:
        key = key_of(item)
        return named.get(key) if _is_plain(key) else None

    places = [place_of(item) for item in items]
    known = iter(sorted((place, at) for at, place in enumerate(places) if place is not None))
    return [item if place is None else items[next(known)[1]] for item, place in zip(items, places, strict=True)]


def _is_plain(value: Any) -> bool:
    """Whether it is one value, that can be a key."""
    return not isinstance(value, dict | list)


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise PatchFault(f"{path}: must be a list")
    return value
