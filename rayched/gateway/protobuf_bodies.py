"""Bodies of requests in Kubernetes' protobuf, as documents. Pure.

    "k8s\\0" + runtime.Unknown {1: TypeMeta {1: apiVersion, 2: kind}, 2: the object}

kubectl sends some of its requests so since 1.32: options of a deletion, what `kubectl create KIND` makes of its flags, and what
`kubectl auth` asks. Messages are read by the tables below, which have Kubernetes' own field numbers; rayched's are others. What
is in no table is refused by its number, never left out in silence.

Source: generated.proto of k8s.io/api and k8s.io/apimachinery 1.34; the wire format of protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from rayched.api.errors import quoted

PREFIX: Final = b"k8s\0"
CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX: Final = 10
_DEPTH_MAX: Final = 12
_ADVICE: Final = "send JSON, as `kubectl apply -f` does"

Document = dict[str, Any]


class UnreadableBody(ValueError):
    """The bytes are no object that is read here; the message says why."""


_TEXT, _NUMBER, _FLAG, _TEXTS, _MAP, _INT_OR_STRING, _SKIPPED = (
    "text",
    "number",
    "flag",
    "texts",
    "map",
    "int or string",
    "skipped",
)
_QUANTITIES: Final = "quantities"

# By message: number -> (JSON name, what it is). A list of messages is [NAME], one message is NAME.
_TABLES: Final[Mapping[str, Mapping[int, tuple[str, Any]]]] = {
    "DeleteOptions": {
        1: ("gracePeriodSeconds", _NUMBER),
        2: ("preconditions", "Preconditions"),
        3: ("orphanDependents", _FLAG),
        4: ("propagationPolicy", _TEXT),
        5: ("dryRun", _TEXTS),
    },
    "Binding": {1: ("metadata", "ObjectMeta"), 2: ("target", "ObjectReference")},
    "ObjectReference": {
        1: ("kind", _TEXT),
        2: ("namespace", _TEXT),
        3: ("name", _TEXT),
        4: ("uid", _TEXT),
        5: ("apiVersion", _TEXT),
        6: ("resourceVersion", _TEXT),
        7: ("fieldPath", _TEXT),
    },
    "SelfSubjectReview": {1: ("metadata", "ObjectMeta"), 2: ("status", _SKIPPED)},
    "SelfSubjectAccessReview": {
        1: ("metadata", "ObjectMeta"),
        2: ("spec", "SelfSubjectAccessReviewSpec"),
        3: ("status", _SKIPPED),
    },
    "SelfSubjectAccessReviewSpec": {
        1: ("resourceAttributes", "ResourceAttributes"),
        2: ("nonResourceAttributes", "NonResourceAttributes"),
    },
    "ResourceAttributes": {
        1: ("namespace", _TEXT),
        2: ("verb", _TEXT),
        3: ("group", _TEXT),
        4: ("version", _TEXT),
        5: ("resource", _TEXT),
        6: ("subresource", _TEXT),
        7: ("name", _TEXT),
    },
    "NonResourceAttributes": {1: ("path", _TEXT), 2: ("verb", _TEXT)},
    "Preconditions": {1: ("uid", _TEXT), 2: ("resourceVersion", _TEXT)},
    "ObjectMeta": {
        1: ("name", _TEXT),
        2: ("generateName", _TEXT),
        3: ("namespace", _TEXT),
        4: ("selfLink", _SKIPPED),
        5: ("uid", _TEXT),
        6: ("resourceVersion", _TEXT),
        7: ("generation", _NUMBER),
        8: ("creationTimestamp", _SKIPPED),
        11: ("labels", _MAP),
        12: ("annotations", _MAP),
        14: ("finalizers", _TEXTS),
        17: ("managedFields", _SKIPPED),
    },
    "Namespace": {1: ("metadata", "ObjectMeta"), 2: ("spec", "NamespaceSpec"), 3: ("status", _SKIPPED)},
    "NamespaceSpec": {1: ("finalizers", _TEXTS)},
    "PriorityClass": {
        1: ("metadata", "ObjectMeta"),
        2: ("value", _NUMBER),
        3: ("globalDefault", _FLAG),
        4: ("description", _TEXT),
        5: ("preemptionPolicy", _TEXT),
    },
    "PodDisruptionBudget": {
        1: ("metadata", "ObjectMeta"),
        2: ("spec", "PodDisruptionBudgetSpec"),
        3: ("status", _SKIPPED),
    },
    "PodDisruptionBudgetSpec": {
        1: ("minAvailable", _INT_OR_STRING),
        2: ("selector", "LabelSelector"),
        3: ("maxUnavailable", _INT_OR_STRING),
        4: ("unhealthyPodEvictionPolicy", _TEXT),
    },
    "LabelSelector": {1: ("matchLabels", _MAP), 2: ("matchExpressions", ["LabelSelectorRequirement"])},
    "LabelSelectorRequirement": {1: ("key", _TEXT), 2: ("operator", _TEXT), 3: ("values", _TEXTS)},
    "Service": {1: ("metadata", "ObjectMeta"), 2: ("spec", "ServiceSpec"), 3: ("status", _SKIPPED)},
    "ServiceSpec": {
        1: ("ports", ["ServicePort"]),
        2: ("selector", _MAP),
        3: ("clusterIP", _TEXT),
        4: ("type", _TEXT),
        7: ("sessionAffinity", _TEXT),
        8: ("loadBalancerIP", _TEXT),
        10: ("externalName", _TEXT),
        11: ("externalTrafficPolicy", _TEXT),
        12: ("healthCheckNodePort", _SKIPPED),
        13: ("publishNotReadyAddresses", _FLAG),
    },
    "ServicePort": {
        1: ("name", _TEXT),
        2: ("protocol", _TEXT),
        3: ("port", _NUMBER),
        4: ("targetPort", _INT_OR_STRING),
        5: ("nodePort", _SKIPPED),
    },
    "Job": {1: ("metadata", "ObjectMeta"), 2: ("spec", "JobSpec"), 3: ("status", _SKIPPED)},
    "JobSpec": {
        1: ("parallelism", _NUMBER),
        2: ("completions", _NUMBER),
        3: ("activeDeadlineSeconds", _NUMBER),
        6: ("template", "PodTemplateSpec"),
        7: ("backoffLimit", _NUMBER),
        8: ("ttlSecondsAfterFinished", _NUMBER),
        9: ("completionMode", _TEXT),
        10: ("suspend", _FLAG),
    },
    "PodTemplateSpec": {1: ("metadata", "ObjectMeta"), 2: ("spec", "PodSpec")},
    "PodSpec": {
        2: ("containers", ["Container"]),
        3: ("restartPolicy", _TEXT),
        4: ("terminationGracePeriodSeconds", _NUMBER),
        5: ("activeDeadlineSeconds", _NUMBER),
        6: ("dnsPolicy", _TEXT),
        7: ("nodeSelector", _MAP),
        8: ("serviceAccountName", _TEXT),
        9: ("serviceAccount", _SKIPPED),
        10: ("nodeName", _TEXT),
        11: ("hostNetwork", _FLAG),
        12: ("hostPID", _FLAG),
        13: ("hostIPC", _FLAG),
        16: ("hostname", _TEXT),
        17: ("subdomain", _TEXT),
        19: ("schedulerName", _TEXT),
        24: ("priorityClassName", _TEXT),
    },
    "Container": {
        1: ("name", _TEXT),
        2: ("image", _TEXT),
        3: ("command", _TEXTS),
        4: ("args", _TEXTS),
        5: ("workingDir", _TEXT),
        7: ("env", ["EnvVar"]),
        8: ("resources", "ResourceRequirements"),
        13: ("terminationMessagePath", _TEXT),
        14: ("imagePullPolicy", _TEXT),
        16: ("stdin", _FLAG),
        17: ("stdinOnce", _FLAG),
        18: ("tty", _FLAG),
        20: ("terminationMessagePolicy", _TEXT),
    },
    "EnvVar": {1: ("name", _TEXT), 2: ("value", _TEXT)},
    "ResourceRequirements": {1: ("limits", _QUANTITIES), 2: ("requests", _QUANTITIES)},
}
READ: Final = (
    "Binding",
    "DeleteOptions",
    "Namespace",
    "PriorityClass",
    "PodDisruptionBudget",
    "Service",
    "Job",
    "SelfSubjectAccessReview",
    "SelfSubjectReview",
)
"""Kinds that a body may have."""


def read(body: bytes) -> Document:
    """The document in a body. Raises UnreadableBody."""
    if not body.startswith(PREFIX):
        raise UnreadableBody("the body does not begin as Kubernetes' protobuf does")
    api_version = kind = ""
    raw = b""
    for number, value in _fields(body[len(PREFIX) :]):
        if number == 1:
            for inner, text in _fields(_bytes(value)):
                if inner == 1:
                    api_version = _text(text)
                elif inner == 2:
                    kind = _text(text)
        elif number == 2:
            raw = _bytes(value)
    if kind not in READ:
        what = f"kind {quoted(kind)}" if kind else "a body without a kind"
        raise UnreadableBody(f"{what} is not read as protobuf, only {', '.join(READ)}; {_ADVICE}")
    return {"apiVersion": api_version, "kind": kind, **_message(kind, raw, _DEPTH_MAX)}


def _message(name: str, raw: bytes, depth: int) -> Document:
    if not depth:
        raise UnreadableBody("messages lie too deep in each other")
    table = _TABLES[name]
    found: Document = {}
    for number, value in _fields(raw):
        if number not in table:
            raise UnreadableBody(f"field {number} of {name} is not read as protobuf; {_ADVICE}")
        json_name, what = table[number]
        if what == _SKIPPED:
            continue
        if isinstance(what, list):
            found.setdefault(json_name, []).append(_message(what[0], _bytes(value), depth - 1))
        elif what == _TEXTS:
            found.setdefault(json_name, []).append(_text(value))
        elif what in (_MAP, _QUANTITIES):
            key, text = _entry(_bytes(value), quantity=what == _QUANTITIES)
            found.setdefault(json_name, {})[key] = text
        elif what in _SCALARS:
            plain = _SCALARS[what](value)
            # Go writes texts and flags that are not set as well.
            if plain != "" and plain is not False:
                found[json_name] = plain
        else:
            inner = _message(what, _bytes(value), depth - 1)
            if inner:
                found[json_name] = inner
    return found


def _entry(raw: bytes, *, quantity: bool) -> tuple[str, str]:
    key = text = ""
    for number, value in _fields(raw):
        if number == 1:
            key = _text(value)
        elif number == 2:
            text = next((_text(inner) for one, inner in _fields(_bytes(value)) if one == 1), "") if quantity else _text(value)
    return key, text


def _int_or_string(value: int | bytes) -> int | str:
    found = dict(_fields(_bytes(value)))
    return _text(found.get(3, b"")) if found.get(1, 0) == 1 else _number(found.get(2, 0))


def _text(value: int | bytes) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise UnreadableBody("a text is not UTF-8") from None


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise UnreadableBody("a number stands where a message or a text belongs")
    return value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise UnreadableBody("bytes stand where a number belongs")
    return value - (1 << 64) if value >= 1 << 63 else value


_SCALARS: Final[Mapping[str, Callable[[int | bytes], Any]]] = {
    _TEXT: _text,
    _NUMBER: _number,
    _FLAG: lambda value: bool(_number(value)),
    _INT_OR_STRING: _int_or_string,
}


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(raw, at)
            yield number, value
            continue
        if wire == _BYTES:
            length, at = _varint(raw, at)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise UnreadableBody(f"wire type {wire} is not known")
        if at + length > len(raw):
            raise UnreadableBody("the body ends in the middle of a field")
        yield number, raw[at : at + length]
        at += length


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """A number and where the next one begins."""
    value = 0
    for position in range(_VARINT_BYTES_MAX):
        if at + position >= len(raw):
            raise UnreadableBody("the body ends in the middle of a number")
        byte = raw[at + position]
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value & ((1 << 64) - 1), at + position + 1
    raise UnreadableBody("a number is too long")
