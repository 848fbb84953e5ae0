"""Messages from and to plain data, by tables compiled from their descriptors.

One table for each message type: JSON name -> how its value is read and written. A message's JSON object is Kubernetes': enums
are strings, int64 is a number, a map is an object, null is absence. Three messages stand for JSON values of their own:

    Quantity     a string or a number, kept as written
    IntOrString  a number or a string
    Timestamp    RFC 3339, kept to the nanosecond

Reading never stops: what is wrong goes to `ReadFindings` with its path, the rest is read. Writing and reading again gives an
equal message. Objects are written with their keys in alphabetical order, as kubectl does.

Cost: tables are compiled at first use of a message type; then one dictionary look-up and one call for each value.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Protocol

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from rayched.api import quantity
from rayched.api.errors import FieldError, did_you_mean, join, key_of, quoted
from rayched.api.unused_fields import UNUSED_FIELDS
from rayched.api.zero_values import ALWAYS_WRITTEN

MAX_FINDINGS: Final = 500
"""Errors beyond this number are counted, not kept: a text may hold millions."""

_INT32: Final = (-(2**31), 2**31 - 1)
_INT64: Final = (-(2**63), 2**63 - 1)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SECONDS_MIN, _SECONDS_MAX = -62_135_596_800, 253_402_300_799
"""Since then, of the years 1 to 9999."""
_RFC3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII)
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{,62}", re.ASCII)


@dataclass(slots=True)
class ReadFindings:
    """What came up while reading: errors, and warnings about fields that are left out."""

    errors: list[FieldError] = field(default_factory=list)
    warnings: list[FieldError] = field(default_factory=list)

    def error(self, path: str, message: str, *, unknown: bool = False) -> None:
        if len(self.errors) < MAX_FINDINGS:
            self.errors.append(FieldError(path, message, unknown=unknown))

    def warning(self, path: str, message: str) -> None:
        if len(self.warnings) < MAX_FINDINGS:
            self.warnings.append(FieldError(path, message))


class ScalarCodec(Protocol):
    """A JSON value that is no object of its own; `read` gives None after a finding."""

    def read(self, value: Any, path: str, findings: ReadFindings) -> Any: ...

    def write(self, value: Any) -> Any: ...


class MessageCodec(Protocol):
    """A JSON value that fills a message."""

    def fill(self, target: Any, value: Any, path: str, findings: ReadFindings) -> None: ...

    def write(self, message: Any) -> Any: ...


# -------------------------------------------------------------------------------------------------------------- scalars


class TextCodec:
    def read(self, value: Any, path: str, findings: ReadFindings) -> Any:
        if not isinstance(value, str):
            hint = "; put it in quotes" if isinstance(value, bool | int | float) else ""
            findings.error(path, f"must be a string, not {shown(value)}{hint}")
            return None
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            findings.error(path, f"{quoted(value)} is not valid Unicode")
            return None
        return value

    def write(self, value: Any) -> Any:
        return value


class FlagCodec:
    def read(self, value: Any, path: str, findings: ReadFindings) -> Any:
        if not isinstance(value, bool):
            findings.error(path, f"must be true or false, not {shown(value)}")
            return None
        return value

    def write(self, value: Any) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class IntegerCodec:
    low: int
    high: int

    def read(self, value: Any, path: str, findings: ReadFindings) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            findings.error(path, f"must be an integer, not {shown(value)}")
            return None
        if not self.low <= value <= self.high:
            findings.error(path, f"{value if abs(value) < 10**30 else 'the number'} must lie between {self.low} and {self.high}")
            return None
        return value

    def write(self, value: Any) -> Any:
        return int(value)


# ------------------------------------------------------------------------------------- messages that are one JSON value


class QuantityCodec:
    def fill(self, target: Any, value: Any, path: str, findings: ReadFindings) -> None:
        text = _number_text(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
        if not isinstance(text, str):
            findings.error(path, f"must be a quantity, not {shown(value)}")
            return
        # Kubernetes ignores space around a quantity; so the text that is kept has none.
        text = text.strip()
        # How large it may be is decided where the object is defaulted.
        fault = quantity.text_fault(text)
        if fault is not None:
            findings.error(path, fault)
            return
        target.string = text

    def write(self, message: Any) -> Any:
        return message.string


class IntOrStringCodec:
    def fill(self, target: Any, value: Any, path: str, findings: ReadFindings) -> None:
        if isinstance(value, str):
            text = _TEXT.read(value, path, findings)
            if text is not None:
                target.string_value = text
        elif isinstance(value, int) and not isinstance(value, bool):
            number = _SMALL.read(value, path, findings)
            if number is not None:
                target.int_value = number
        else:
            findings.error(path, f"must be an integer or a string, not {shown(value)}")

    def write(self, message: Any) -> Any:
        return message.string_value if message.WhichOneof("value") == "string_value" else message.int_value


class TimestampCodec:
    def fill(self, target: Any, value: Any, path: str, findings: ReadFindings) -> None:
        found = _RFC3339.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            findings.error(path, f'must be a time such as "2025-01-31T12:00:00Z", not {shown(value)}')
            return
        year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
        offset = 60 * int(found[9] or 0) + int(found[10] or 0)
        try:
            moment = datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
            moment -= datetime.timedelta(minutes=-offset if found[8] == "-" else offset)
        except (ValueError, OverflowError):
            findings.error(path, f"{quoted(value)} is no moment in time")
            return
        since = moment - _EPOCH
        target.seconds = since.days * 86_400 + since.seconds
        target.nanos = int((found[7] or "0").ljust(9, "0"))

    def write(self, message: Any) -> Any:
        # What an agent reports, for example, is not held to the years that a text can say.
        moment = _EPOCH + datetime.timedelta(seconds=min(max(message.seconds, _SECONDS_MIN), _SECONDS_MAX))
        fraction = f".{message.nanos:09d}".rstrip("0") if 0 < message.nanos < 1_000_000_000 else ""
        return f"{moment.strftime('%Y').zfill(4)}{moment.strftime('-%m-%dT%H:%M:%S')}{fraction}Z"


# --------------------------------------------------------------------------------------------------------------- tables


@dataclass(frozen=True, slots=True)
class FieldTable:
    """One field of a message: how a JSON value gets in and whether and how it comes out."""

    json_name: str
    name: str
    read: Callable[[Any, Any, str, ReadFindings], None]
    write: Callable[[Any], Any]
    is_set: Callable[[Any], bool]


class MessageTable:
    """A message type that is a JSON object."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.name: Final = descriptor.name
        always = ALWAYS_WRITTEN.get(self.name, frozenset())
        fields = [_field_table(one, always=one.json_name in always) for one in descriptor.fields]
        self.fields: Final[Mapping[str, FieldTable]] = {one.json_name: one for one in fields}
        self.in_order: Final = sorted(fields, key=lambda one: one.json_name)
        self.unused: Final = UNUSED_FIELDS.get(self.name, frozenset())

    def fill(self, target: Any, value: Any, path: str, findings: ReadFindings) -> None:
        if not isinstance(value, dict):
            findings.error(path, f"must be an object, not {shown(value)}")
            return
        fields = self.fields
        for key, item in value.items():
            found = fields.get(key)
            if found is None:
                self._unknown(key, path, findings)
            elif item is not None:
                found.read(target, item, join(path, key), findings)

    def write(self, message: Any) -> dict[str, Any]:
        return {one.json_name: one.write(message) for one in self.in_order if one.is_set(message)}

    def _unknown(self, key: Any, path: str, findings: ReadFindings) -> None:
        key = str(key)
        where = join(path, key) if _PLAIN_KEY.fullmatch(key) else key_of(path, key)
        if key in self.unused:
            findings.warning(where, "is not used by rayched and is left out")
            return
        if len(findings.errors) >= MAX_FINDINGS:
            # It would not be kept, and looking for a field that is like it takes its time.
            return
        hint = did_you_mean(key, [*self.fields, *self.unused])
        findings.error(where, f"{self.name} has no such field{hint}", unknown=True)


@cache
def table_of(descriptor: Descriptor) -> MessageCodec:
    """The codec of a message type."""
    special = _SPECIAL.get(descriptor.full_name)
    return special if special is not None else MessageTable(descriptor)


def shown(value: Any) -> str:
    """A JSON value for a message: its type and, where it is short, itself."""
    match value:
        case None:
            return "null"
        case bool():
            return f"the boolean {'true' if value else 'false'}"
        case int() | float():
            return f"the number {value}" if not isinstance(value, int) or abs(value) < 10**30 else "a number"
        case str():
            return f"the string {quoted(value)}"
        case list():
            return "a list"
    return "an object"


def _field_table(descriptor: FieldDescriptor, *, always: bool = False) -> FieldTable:
    """`always`: a plain value that is written also where it is zero or empty."""
    name, json_name = descriptor.name, descriptor.json_name
    entry = descriptor.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return FieldTable(json_name, name, *_map_codec(name, entry.fields_by_name["value"]), lambda one: bool(getattr(one, name)))
    if descriptor.is_repeated:
        return FieldTable(json_name, name, *_list_codec(name, descriptor), lambda one: bool(getattr(one, name)))
    if entry is not None:
        inner = table_of(entry)

        def read(target: Any, value: Any, path: str, findings: ReadFindings) -> None:
            message = getattr(target, name)
            message.SetInParent()
            inner.fill(message, value, path, findings)

        return FieldTable(
            json_name, name, read, lambda one: inner.write(getattr(one, name)), lambda one: bool(one.HasField(name))
        )
    scalar = _scalar_codec(descriptor)

    def read_scalar(target: Any, value: Any, path: str, findings: ReadFindings) -> None:
        found = scalar.read(value, path, findings)
        if found is not None:
            setattr(target, name, found)

    def write_scalar(one: Any) -> Any:
        return scalar.write(getattr(one, name))

    if always:
        return FieldTable(json_name, name, read_scalar, write_scalar, lambda _: True)
    if descriptor.has_presence:
        return FieldTable(json_name, name, read_scalar, write_scalar, lambda one: bool(one.HasField(name)))
    return FieldTable(json_name, name, read_scalar, write_scalar, lambda one: bool(getattr(one, name)))


Codec = tuple[Callable[[Any, Any, str, ReadFindings], None], Callable[[Any], Any]]
"""The reader and the writer of a field."""


def _list_codec(name: str, descriptor: FieldDescriptor) -> Codec:
    if descriptor.message_type is not None:
        inner = table_of(descriptor.message_type)

        def read_messages(target: Any, value: Any, path: str, findings: ReadFindings) -> None:
            if not isinstance(value, list):
                findings.error(path, f"must be a list, not {shown(value)}")
                return
            items = getattr(target, name)
            for position, item in enumerate(value):
                # A faulty item keeps its place, so that the paths of later findings stay right.
                inner.fill(items.add(), item, f"{path}[{position}]", findings)

        return read_messages, lambda one: [inner.write(item) for item in getattr(one, name)]
    scalar = _scalar_codec(descriptor)

    def read_scalars(target: Any, value: Any, path: str, findings: ReadFindings) -> None:
        if not isinstance(value, list):
            findings.error(path, f"must be a list, not {shown(value)}")
            return
        items = getattr(target, name)
        for position, item in enumerate(value):
            found = scalar.read(item, f"{path}[{position}]", findings)
            if found is not None:
                items.append(found)

    return read_scalars, lambda one: [scalar.write(item) for item in getattr(one, name)]


def _map_codec(name: str, descriptor: FieldDescriptor) -> Codec:
    inner = table_of(descriptor.message_type) if descriptor.message_type is not None else None
    scalar = _scalar_codec(descriptor) if inner is None else None

    def read(target: Any, value: Any, path: str, findings: ReadFindings) -> None:
        if not isinstance(value, dict):
            findings.error(path, f"must be an object, not {shown(value)}")
            return
        entries = getattr(target, name)
        for key, item in value.items():
            where = key_of(path, str(key))
            if _TEXT.read(key, where, findings) is None:
                continue
            if inner is not None:
                inner.fill(entries[key], item, where, findings)
            elif scalar is not None:
                # As in Kubernetes, null in a map of strings is the empty string.
                found = "" if item is None else scalar.read(item, where, findings)
                if found is not None:
                    entries[key] = found

    def write(one: Any) -> dict[str, Any]:
        codec = inner or scalar
        return {key: codec.write(item) for key, item in sorted(getattr(one, name).items())} if codec is not None else {}

    return read, write


def _scalar_codec(descriptor: FieldDescriptor) -> ScalarCodec:
    return _SCALARS[descriptor.cpp_type]


def _number_text(number: float) -> str:
    """The number as a quantity would be written: without a needless fraction."""
    text = repr(number)
    return text.removesuffix(".0")


_TEXT: Final = TextCodec()
_SMALL: Final = IntegerCodec(*_INT32)
_SCALARS: Final[Mapping[int, ScalarCodec]] = {
    FieldDescriptor.CPPTYPE_STRING: _TEXT,
    FieldDescriptor.CPPTYPE_BOOL: FlagCodec(),
    FieldDescriptor.CPPTYPE_INT32: _SMALL,
    FieldDescriptor.CPPTYPE_INT64: IntegerCodec(*_INT64),
}
_SPECIAL: Final[Mapping[str, MessageCodec]] = {
    "rayched.v1.Quantity": QuantityCodec(),
    "rayched.v1.IntOrString": IntOrStringCodec(),
    "google.protobuf.Timestamp": TimestampCodec(),
}


def fill(message: Message, value: Any, findings: ReadFindings) -> None:
    """Read a JSON object into a message."""
    table_of(message.DESCRIPTOR).fill(message, value, "", findings)


def plain(message: Message) -> Any:
    """The JSON value of a message."""
    return table_of(message.DESCRIPTOR).write(message)
