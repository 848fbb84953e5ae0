"""Bodies of requests: JSON, YAML, and Kubernetes' protobuf as kubectl 1.32 sends it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.gateway import bodies, protobuf_bodies
from rayched.gateway.statuses import StatusFailure


def number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value & ((1 << 64) - 1))


def data(field: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(raw)) + raw


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def unknown(api_version: str, kind: str, raw: bytes) -> bytes:
    """runtime.Unknown, as Kubernetes frames an object; empty encodings at its end, as Go writes them."""
    type_meta = data(1, api_version) + data(2, kind)
    return protobuf_bodies.PREFIX + data(1, type_meta) + data(2, raw) + data(3, "") + data(4, "")


@pytest.mark.row("KC17")
def test_options_of_a_deletion_are_read() -> None:
    raw = number(1, 0) + data(2, data(1, "u-1") + data(2, "77")) + data(4, "Background") + data(5, "All")
    assert protobuf_bodies.read(unknown("v1", "DeleteOptions", raw)) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u-1", "resourceVersion": "77"},
        "propagationPolicy": "Background",
        "dryRun": ["All"],
    }


def test_a_binding_of_a_scheduler_in_go_is_read() -> None:
    raw = data(1, data(1, "web") + data(3, "team") + data(5, "u-1")) + data(2, data(1, "Node") + data(2, "") + data(3, "node-1"))
    assert protobuf_bodies.read(unknown("v1", "Binding", raw)) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "web", "namespace": "team", "uid": "u-1"},
        "target": {"kind": "Node", "name": "node-1"},
    }


@pytest.mark.row("KC17")
def test_what_kubectl_makes_of_its_flags_is_read() -> None:
    label = data(11, data(1, "team") + data(2, "a"))
    metadata = data(1, "web") + data(2, "") + data(8, b"") + label
    spec = data(1, number(1, 1) + number(2, 0) + data(3, "50%")) + data(2, data(1, data(1, "app") + data(2, "web")))
    found = protobuf_bodies.read(
        unknown("policy/v1", "PodDisruptionBudget", data(1, metadata) + data(2, spec) + data(3, b"\x08\x00"))
    )
    assert found["metadata"] == {"name": "web", "labels": {"team": "a"}}
    assert found["spec"] == {"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}}
    priority = data(1, data(1, "low")) + number(2, -5) + number(3, 0) + data(5, "Never")
    assert protobuf_bodies.read(unknown("scheduling.k8s.io/v1", "PriorityClass", priority)) == {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "low"},
        "value": -5,
        "preemptionPolicy": "Never",
    }


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (unknown("v1", "Secret", b""), 'kind "Secret" is not read as protobuf'),
        (unknown("v1", "Namespace", data(9, "x")), "field 9 of Namespace is not read as protobuf"),
        (unknown("v1", "Namespace", data(1, data(1, b"\xff"))), "a text is not UTF-8"),
        (unknown("v1", "Namespace", b"\x0a\x7f"), "ends in the middle of a field"),
        (unknown("v1", "Namespace", number(1, 1)), "a number stands where a message or a text belongs"),
        (protobuf_bodies.PREFIX + b"\xff" * 11, "a number is too long"),
        (protobuf_bodies.PREFIX + b"\x0b", "wire type 3 is not known"),
    ],
)
def test_a_body_that_is_not_read_is_refused_in_words(body: bytes, words: str) -> None:
    with pytest.raises(StatusFailure, match=words) as failure:
        bodies.read_document(body, protobuf_bodies.CONTENT_TYPE)
    assert failure.value.code == 415


@given(st.binary(max_size=80))
def test_no_bytes_do_more_than_be_refused(raw: bytes) -> None:
    try:
        found = bodies.read_document(protobuf_bodies.PREFIX + raw, protobuf_bodies.CONTENT_TYPE)
    except StatusFailure as failure:
        assert failure.code == 415
    else:
        assert found["kind"] in protobuf_bodies.READ


def test_json_is_read_without_a_content_type_and_yaml_with_its_own() -> None:
    assert bodies.read_document(b'{"a": 1}', "") == {"a": 1}
    assert bodies.read_document(b"a: 1", "application/yaml") == {"a": 1}
    assert bodies.read_document(b"", "application/json") == {}


@pytest.mark.parametrize(
    ("body", "content_type", "code", "words"),
    [
        (b'{"a": 1, "a": 2}', "application/json", 400, 'duplicate field "a"'),
        (b"{", "application/json", 400, "is no JSON"),
        (b"[]", "application/json", 400, "must be an object"),
        (b"[" * 100_000, "application/json", 400, "is no JSON"),
        (b"a: 1", "text/plain", 415, "accepted media types include"),
        (b"a: 1\n---\nb: 2", "application/yaml", 400, "has 2 documents"),
    ],
)
def test_a_body_that_is_no_object_is_refused(body: bytes, content_type: str, code: int, words: str) -> None:
    with pytest.raises(StatusFailure, match=words) as failure:
        bodies.read_document(body, content_type)
    assert failure.value.code == code
