"""Protobuf's binary form, where bytes are put together without messages: that takes less time, and copies less. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Any


def framed(number: int, content: bytes) -> bytes:
    """A field of protobuf's binary form that holds a message: its number, up to 15, its length and its bytes."""
    return b"".join((length_delimited(number), varint(len(content)), content))


def length_delimited(number: int) -> bytes:
    """What stands before the length of a field that holds a message, text or bytes; for numbers up to 15."""
    return bytes((number << 3 | 2,))


def field_tag(message: Any, field: str) -> bytes:
    """What stands before a field of a message's class, which has a number up to 15 and is no list of numbers."""
    found = message.DESCRIPTOR.fields_by_name[field]
    if found.type in (found.TYPE_STRING, found.TYPE_BYTES, found.TYPE_MESSAGE):
        return length_delimited(found.number)
    return bytes((found.number << 3,))


@lru_cache(maxsize=4096)
def varint(number: int) -> bytes:
    """Protobuf's form of a number that is not negative: seven bits a byte, the lowest first."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def read_varint(value: bytes, at: int) -> tuple[int, int]:
    """A number in protobuf's form, and where it ends. Raises IndexError where it does not end."""
    number = shift = 0
    while True:
        byte = value[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7


def message_fields(message: bytes, number: int) -> list[bytes] | None:
    """The contents of all fields of a message that has none but messages of this number. None: it has others, or is cut off."""
    tag, end = number << 3 | 2, len(message)
    found: list[bytes] = []
    at = 0
    try:
        while at < end:
            if message[at] != tag:
                return None
            length, start = read_varint(message, at + 1)
            at = start + length
            found.append(message[start:at])
    except IndexError:
        return None
    return found if at == end else None
