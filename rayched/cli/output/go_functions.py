"""Functions that Go templates call, and how values are printed there. Pure; see go_templates.py.

Source: text/template and fmt of Go 1.24; `exists` and `base64decode` are kubectl's.
"""

from __future__ import annotations

import base64
import binascii
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

_VERB: Final = re.compile(r"%([-+0 ]*)(\d{1,3})?(?:\.(\d{1,2}))?([a-zA-Z%])")
_GO_TYPES: Final = {bool: "bool", int: "int", float: "float64", str: "string", dict: "map", list: "slice"}
_TEXT_MAX: Final = 1 << 20
"""Characters that one value may be printed in by printf."""


class GoFault(ValueError):
    """A template asks for what cannot be; one line."""


class _Missing:
    """What a field leads to that is not there."""


MISSING: Final = _Missing()


def is_true(value: Any) -> bool:
    """Zero, what is empty, and what is not there are not."""
    return value is not MISSING and bool(value)


def printed(value: Any) -> str:
    """As {{VALUE}} prints it."""
    return "<no value>" if value is MISSING or value is None else _nested(value)


def _nested(value: Any) -> str:
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case dict():
            return f"map[{' '.join(f'{key}:{_nested(value[key])}' for key in sorted(value))}]"
        case list():
            return f"[{' '.join(map(_nested, value))}]"
    return "<no value>" if value is MISSING else str(value)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal(first: Any, *others: Any) -> bool:
    if not others:
        raise GoFault("eq: want two values at least")
    return any(_same(first, other) for other in others)


def _same(first: Any, other: Any) -> bool:
    if first in (None, MISSING) or other in (None, MISSING):
        return first in (None, MISSING) and other in (None, MISSING)
    if isinstance(first, dict | list) or isinstance(other, dict | list):
        raise GoFault("eq: maps and lists cannot be compared")
    if type(first) is not type(other) and not (_number(first) and _number(other)):
        raise GoFault(f"eq: {printed(first)} and {printed(other)} are of different types")
    return bool(first == other)


def _ordered(name: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def function(first: Any, second: Any) -> bool:
        if (_number(first) and _number(second)) or (isinstance(first, str) and isinstance(second, str)):
            return compare(first, second)
        raise GoFault(f"{name}: {printed(first)} and {printed(second)} have no order")

    return function


def _index(item: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(item, dict) and isinstance(key, str):
            item = item.get(key, MISSING)
        elif isinstance(item, list | str) and isinstance(key, int) and not isinstance(key, bool):
            if not 0 <= key < len(item):
                raise GoFault(f"index: {key} is out of range, there are {len(item)}")
            item = item[key] if isinstance(item, list) else ord(item[key])
        else:
            raise GoFault(f"index: {printed(item)} has no place {printed(key)}")
    return item


def _exists(item: Any, *keys: Any) -> bool:
    try:
        return _index(item, *keys) is not MISSING
    except GoFault:
        return False


def _length(item: Any) -> int:
    if not isinstance(item, dict | list | str):
        raise GoFault(f"len: {printed(item)} has no length")
    return len(item.encode()) if isinstance(item, str) else len(item)


def _slice(item: Any, begin: int = 0, end: int | None = None) -> Any:
    if not isinstance(item, list | str) or not 0 <= begin <= (end := len(item) if end is None else end) <= len(item):
        raise GoFault(f"slice: {printed(item)} has no such part")
    return item[begin:end]


def _print(*values: Any) -> str:
    """With a blank between two of which neither is a text."""
    found = ""
    for place, value in enumerate(values):
        gap = place and not isinstance(value, str) and not isinstance(values[place - 1], str)
        found += (" " if gap else "") + _nested(value)
    return found


def _format(form: Any, *values: Any) -> str:
    if not isinstance(form, str):
        raise GoFault("printf: want a format first")
    left = list(values)

    def put(found: re.Match[str]) -> str:
        flags, width, digits, verb = found.groups()
        if verb == "%":
            return "%"
        if not left:
            return f"%!{verb}(MISSING)"
        text = _verb(left.pop(0), verb, flags, digits)
        filled = text.ljust if "-" in flags else text.zfill if "0" in flags and verb in "dfx" else text.rjust
        return filled(int(width or 0))

    text = _VERB.sub(put, form)
    if len(text) > _TEXT_MAX:
        raise GoFault(f"printf: makes more than {_TEXT_MAX} characters")
    return text + (f"%!(EXTRA {', '.join(map(_nested, left))})" if left else "")


def _verb(value: Any, verb: str, flags: str, digits: str | None) -> str:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if verb == "v" or (verb == "s" and not whole) or (verb == "t" and isinstance(value, bool)):
        text = _nested(value)
        return text if digits is None or verb != "s" else text[: int(digits)]
    if verb in "dx" and whole:
        return format(value, ("+" if "+" in flags else "") + verb)
    if verb in "feg" and _number(value):
        return format(float(value), f".{6 if digits is None else digits}{verb}")
    if verb == "q" and isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        return f'"{escaped}"'
    kind = _GO_TYPES.get(type(value), "interface")
    return f"%!{verb}({kind}={_nested(value)})"


def _decoded(text: Any) -> str:
    try:
        return base64.b64decode(text, validate=True).decode(errors="replace")
    except (binascii.Error, ValueError, TypeError):
        raise GoFault(f"base64decode: {printed(text)} is no base64") from None


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "and": is_true,
    "or": is_true,
    "not": lambda value: not is_true(value),
    "eq": _equal,
    "ne": lambda first, second: not _same(first, second),
    "lt": _ordered("lt", operator.lt),
    "le": _ordered("le", operator.le),
    "gt": _ordered("gt", operator.gt),
    "ge": _ordered("ge", operator.ge),
    "index": _index,
    "slice": _slice,
    "len": _length,
    "print": _print,
    "println": lambda *values: " ".join(map(_nested, values)) + "\n",
    "printf": _format,
    "exists": _exists,
    "base64decode": _decoded,
}
"""By name. `and` and `or` stop where it is decided, so go_expressions.py evaluates them itself."""
