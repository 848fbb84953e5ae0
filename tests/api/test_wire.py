"""Protobuf's binary form, by hand, against protobuf."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.api.wire import framed, message_fields, read_varint, varint
from rayched.v1.services_pb2 import SubmitManyRequest
from rayched.v1.workloads_pb2 import Object

OBJECTS = SubmitManyRequest.DESCRIPTOR.fields_by_name["objects"].number


@given(st.integers(0, 1 << 64), st.binary(max_size=5))
def test_a_number_is_read_as_it_was_written(number: int, behind: bytes) -> None:
    written = varint(number)
    assert read_varint(b"x" + written + behind, 1) == (number, 1 + len(written))


@given(st.lists(st.text(max_size=300)))
def test_the_contents_of_a_request_are_those_of_its_objects(names: list[str]) -> None:
    request = SubmitManyRequest()
    for name in names:
        request.objects.add().pod.metadata.name = name
    data = request.SerializeToString()
    contents = message_fields(data, OBJECTS)
    assert contents is not None
    assert [Object.FromString(content) for content in contents] == list(request.objects)
    assert b"".join(framed(OBJECTS, content) for content in contents) == data


@pytest.mark.parametrize("tail", [b"\x10\x01", b"\x0a", b"\x0a\x05abc", b"\x0a\xff", b"\x12\x00"])
def test_what_has_other_fields_or_ends_too_soon_is_left_to_protobuf(tail: bytes) -> None:
    data = framed(OBJECTS, b"")
    assert message_fields(data, OBJECTS) == [b""]
    assert message_fields(data + tail, OBJECTS) is None
