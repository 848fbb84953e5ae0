"""Schemas of the kinds for OpenAPI v3, made from the messages: names and types of fields, as `kubectl explain` shows them. Pure.

They say what a field is, not what is allowed in it: that is judged by the replica, which names object and field.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from rayched.gateway.served import ServedResource

Document = dict[str, Any]

_PLAIN: Final[dict[int, Document]] = {
    FieldDescriptor.CPPTYPE_STRING: {"type": "string"},
    FieldDescriptor.CPPTYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.CPPTYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.CPPTYPE_INT64: {"type": "integer", "format": "int64"},
}
_SPECIAL: Final[dict[str, Document]] = {
    "rayched.v1.Quantity": {"type": "string", "format": "quantity"},
    "rayched.v1.IntOrString": {"type": "string", "format": "int-or-string"},
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
}
"""Messages that are one JSON value."""


def schemas(resources: tuple[ServedResource, ...]) -> Document:
    """By name: the kinds, and all messages that they are made of."""
    found: Document = {}
    for one in resources:
        kind = one.kind
        message: Any = kind.message.DESCRIPTOR
        _add(message, found)
        names = {"group": kind.group, "version": one.version, "kind": kind.name}
        found[message.full_name]["x-kubernetes-group-version-kind"] = [names]
    return found


def _add(message: Descriptor, found: Document) -> None:
    if message.full_name in found:
        return
    schema: Document = {"type": "object", "description": f"{message.name} of Kubernetes, as far as rayched uses it."}
    found[message.full_name] = schema
    schema["properties"] = {field.json_name: _field(field, found) for field in message.fields}


def _field(field: FieldDescriptor, found: Document) -> Document:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": _value(message.fields_by_name["value"], found)}
    value = _value(field, found)
    return {"type": "array", "items": value} if field.is_repeated else value


def _value(field: FieldDescriptor, found: Document) -> Document:
    message = field.message_type
    if message is None:
        return _PLAIN[field.cpp_type]
    if message.full_name in _SPECIAL:
        return _SPECIAL[message.full_name]
    _add(message, found)
    return {"$ref": f"#/components/schemas/{message.full_name}"}
