"""Messages out of the recorded cases' manifests, read without the product's own reader."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format

from rayched.v1.core_pb2 import Node, Pod

_QUANTITY_MAPS = ("requests", "limits", "allocatable", "capacity", "overhead")


def pod_of(manifest: dict[str, Any]) -> Pod:
    return json_format.ParseDict(_quantities_wrapped(manifest), Pod(), ignore_unknown_fields=True)


def node_of(manifest: dict[str, Any]) -> Node:
    return json_format.ParseDict(_quantities_wrapped(manifest), Node(), ignore_unknown_fields=True)


def _quantities_wrapped(value: Any) -> Any:
    """A quantity is a message here and a bare text in a manifest."""
    if isinstance(value, list):
        return [_quantities_wrapped(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: {resource: {"string": str(amount)} for resource, amount in found.items()}
        if name in _QUANTITY_MAPS
        else _quantities_wrapped(found)
        for name, found in value.items()
    }
