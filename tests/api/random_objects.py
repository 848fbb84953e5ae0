"""Random objects, built from the descriptors of the messages: whatever a manifest could hold, sensible or not.

A seed gives an object; hypothesis chooses seeds and prints the one that fails.
"""

from __future__ import annotations

import random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import strategies as st

from rayched.api.kinds import KINDS
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Object

SHARE_SET = 0.45
"""Of a message's fields, so many are set."""
SHARE_SET_INSIDE = 0.8
"""The same for fields that hold messages, so that deep ones are reached."""
LONGEST_LIST = 2
TEXTS = ("", "a", "Always", "web", "1", "true", "1e3", "~", "2024-01-01", "a: b", "é\n", " x ", "In", "x/y", "%", "- a", "\u2028")
QUANTITIES = ("0", "1", "100m", "1.5Gi", "1e3", "-1", "0.10", "1n", "9223372036854775807")
SECONDS = (-62_135_596_800, 253_402_300_799)
NANOS = (0, 1, 500_000_000, 999_999_999, 120)

SEEDS = st.integers(0, 2**32 - 1)


def random_object(seed: int) -> Object:
    """An object of any kind with the API version and the kind that belong to it."""
    source = random.Random(seed)
    kind = source.choice(KINDS)
    item = Object()
    message = getattr(item, kind.field)
    message.SetInParent()
    _fill(source, message)
    message.api_version, message.kind = kind.api_version, kind.name
    return item


def random_pod(source: random.Random) -> Pod:
    """Whatever a pod may say."""
    pod = Pod()
    _fill(source, pod)
    return pod


def _fill(source: random.Random, message: Any) -> None:
    descriptor: Descriptor = message.DESCRIPTOR
    match descriptor.full_name:
        case "rayched.v1.Quantity":
            message.string = source.choice(QUANTITIES)
        case "rayched.v1.IntOrString":
            if source.random() < 0.5:
                message.int_value = source.choice((0, 5, -(2**31), 2**31 - 1))
            else:
                message.string_value = source.choice(TEXTS)
        case "google.protobuf.Timestamp":
            message.seconds, message.nanos = source.randint(*SECONDS), source.choice(NANOS)
        case _:
            for field in descriptor.fields:
                if source.random() < (SHARE_SET if field.message_type is None else SHARE_SET_INSIDE):
                    _set(source, message, field)


def _set(source: random.Random, message: Any, field: FieldDescriptor) -> None:
    target = getattr(message, field.name)
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        for key in source.sample(TEXTS, source.randint(0, LONGEST_LIST)):
            value = inner.fields_by_name["value"]
            if value.message_type is not None:
                _fill(source, target[key])
            else:
                target[key] = _scalar(source, value)
    elif field.is_repeated:
        for _ in range(source.randint(0, LONGEST_LIST)):
            if inner is not None:
                _fill(source, target.add())
            else:
                target.append(_scalar(source, field))
    elif inner is not None:
        target.SetInParent()
        _fill(source, target)
    else:
        setattr(message, field.name, _scalar(source, field))


def _scalar(source: random.Random, field: FieldDescriptor) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            return source.choice(TEXTS)
        case FieldDescriptor.CPPTYPE_BOOL:
            return source.random() < 0.5
        case FieldDescriptor.CPPTYPE_INT32:
            return source.choice((0, 1, -1, 2**31 - 1, -(2**31)))
    return source.choice((0, 1, -1, 2**63 - 1, -(2**63)))
