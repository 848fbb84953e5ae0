"""What fields are filled with: values that mean something here, those at the edges of their types, and what breaks parsers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

NAMESPACES: Final = ("team-a", "team-b")
NODES: Final = tuple(f"node-{number:03}" for number in range(4))
PODS: Final = tuple(f"pod-{number}" for number in range(4))
KINDS: Final = ("Pod", "Node", "Event", "Namespace", "PriorityClass", "ReplicaSet", "Job", "Service", "PodGroup", "Secret")

_WORDS: Final = (
    *("", "a", "default", "kube-system", *NAMESPACES, *NODES, *PODS, *KINDS, "v1", "apps/v1", "batch/v1"),
    *("cpu", "memory", "1", "-1", "100m", "1e9", "1e99999", "9" * 40, "0.0000000001", "1Ei", "99999999999999999999Gi", "NaN"),
    *("a=b", "a in (b,c)", "a notin (", "!a", "a>5,b<3", "metadata.name=x", "spec.nodeName=node-000", "status.phase!=Running"),
    *("topology.kubernetes.io/zone", "kubernetes.io/hostname", "node-restriction.rayched.io/x", "example.com/" + "a" * 63),
    *("NoSchedule", "NoExecute", "Exists", "Equal", "In", "Gt", "DoNotSchedule", "ScheduleAnyway", "Always", "Never"),
    *("system-node-critical", "50%", "-5%", "999999999999999999999%", "TCP", "0.0.0.0", "::1", "256.1.1.1", "5m", "1h-"),
    *("viewer", "submitter", "operator", "admin", "node", "*", "node-{000..199}", "node-{9..1}", "nodes/hollow", "user/alice"),
    *("spiffe://a/user/b", "spiffe://", "2026-01-01T00:00:00Z", "Running", "Failed", "Ready", "True", "gap/gate"),
)
_HOSTILE: Final = (
    *("a/b", "/", "//", "..", "a\0b", "\0", "\n", " ", ".", "-", "_", "%s%n", "$(x)", "{{x}}", "é" * 200, "\u202e", "\U0001f600"),
    *("\x1b[2J", "x" * 300, "x" * 70_000, "(" * 1_000, "a," * 5_000, "a in (" + ",".join(map(str, range(3_000))) + ")"),
)
_HOSTILE_SHARE: Final = 0.15
_INTEGERS: Final = (0, 1, -1, 2, 3, 100, 1_000_000_000, 2**31 - 1, -(2**31), 2**31, 2**53, 2**63 - 1, -(2**63))
_UNSIGNED: Final = (0, 1, 2, 65_535, 65_536, 2**32 - 1, 2**64 - 1)
_REALS: Final = (0.0, 1.0, -1.0, 0.5, 1e300, math.nan, math.inf, -math.inf)
_BYTES: Final = (b"", b"\0", b"\xff" * 100, b"x" * 5_000)
_ENUMS: Final = (0, 1, 2, 3, 99, -1)
_SIGNED_BITS: Final = {
    FieldDescriptor.TYPE_INT32: 32,
    FieldDescriptor.TYPE_SINT32: 32,
    FieldDescriptor.TYPE_SFIXED32: 32,
    FieldDescriptor.TYPE_INT64: 64,
    FieldDescriptor.TYPE_SINT64: 64,
    FieldDescriptor.TYPE_SFIXED64: 64,
}
_UNSIGNED_BITS: Final = {
    FieldDescriptor.TYPE_UINT32: 32,
    FieldDescriptor.TYPE_FIXED32: 32,
    FieldDescriptor.TYPE_UINT64: 64,
    FieldDescriptor.TYPE_FIXED64: 64,
}
DEPTH_MAX: Final = 7


def text(random: Random) -> str:
    return random.choice(_HOSTILE if random.random() < _HOSTILE_SHARE else _WORDS)


def scalar(random: Random, field: Any) -> Any:
    """A value of a field's type, which is no message."""
    kind = field.type
    if kind in _SIGNED_BITS:
        bits = _SIGNED_BITS[kind]
        return random.choice([one for one in _INTEGERS if -(1 << bits - 1) <= one < 1 << bits - 1])
    if kind in _UNSIGNED_BITS:
        return random.choice([one for one in _UNSIGNED if one < 1 << _UNSIGNED_BITS[kind]])
    if kind in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return random.choice(_REALS)
    if kind == FieldDescriptor.TYPE_BOOL:
        return random.random() < 0.5
    if kind == FieldDescriptor.TYPE_ENUM:
        return random.choice(_ENUMS)
    return random.choice(_BYTES) if kind == FieldDescriptor.TYPE_BYTES else text(random)


def fill(random: Random, message: Any, share: float, depth: int = 0) -> None:
    """Gives fields of a message values: `share` of them, most of the outermost."""
    for field in message.DESCRIPTOR.fields:
        if random.random() < (share if depth else max(share, 0.7)):
            _fill_field(random, message, field, share, depth)


def _fill_field(random: Random, message: Any, field: Any, share: float, depth: int) -> None:
    inner = field.message_type
    if inner is not None and depth >= DEPTH_MAX:
        return
    if inner is not None and inner.GetOptions().map_entry:
        key, value = inner.fields_by_name["key"], inner.fields_by_name["value"]
        entries = getattr(message, field.name)
        for _ in range(_count(random)):
            if value.message_type is None:
                entries[scalar(random, key)] = scalar(random, value)
            else:
                fill(random, entries[scalar(random, key)], share, depth + 1)
    elif inner is not None and field.is_repeated:
        for _ in range(_count(random)):
            fill(random, getattr(message, field.name).add(), share, depth + 1)
    elif inner is not None:
        getattr(message, field.name).SetInParent()
        fill(random, getattr(message, field.name), share, depth + 1)
    elif field.is_repeated:
        getattr(message, field.name).extend(scalar(random, field) for _ in range(_count(random)))
    else:
        setattr(message, field.name, scalar(random, field))


def _count(random: Random) -> int:
    return random.choice((0, 1, 1, 2, 3))


def damaged(random: Random, data: bytes) -> bytes:
    """Bytes that are perhaps no message any more."""
    ways: Sequence[bytes] = (
        data[: len(data) // 2],
        data + b"\xff",
        data + b"\xfa\x7f\x03abc",
        b"\x0a" * 200,
        b"\x0a\xff\xff\xff\xff\x0f",
        random.randbytes(50),
    )
    if data and random.random() < 0.5:
        at = random.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
    return random.choice(ways)
