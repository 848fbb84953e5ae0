"""SPDY/3.1 as far as `kubectl port-forward` speaks it: bytes to frames, and frames to bytes. Pure.

    data      0 | stream (31)                | flags (8) | length (24) | bytes
    control   1 | version 3 (15) | type (16) | flags (8) | length (24) | what the type says

The headers of all streams of one direction are one stream of zlib, with a dictionary that both sides know. A stream ends in one
direction with a frame that says that it is the last, and in both with a reset.

Settings and windows of flow control are read over: neither side of Kubernetes' clients keeps to them.

Source: draft-mbelshe-httpbis-spdy-00, and spdystream as client-go of Kubernetes 1.34 uses it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

_VERSION: Final = 3
_LAST: Final = 0x01
_ID_BITS: Final = 0x7FFF_FFFF
_CONTROL_BYTES_MAX: Final = 16 << 10
_HEADER_BYTES_MAX: Final = 16 << 10
"""Of one stream, unpacked."""
_HEAD: Final = struct.Struct(">II")
_NUMBER: Final = struct.Struct(">I")
_TWO_NUMBERS: Final = struct.Struct(">II")
_OPENING: Final = struct.Struct(">IIBB")
_PREFIXED_WORDS: Final = """options head post put delete trace accept accept-charset accept-encoding accept-language
    accept-ranges age allow authorization cache-control connection content-base content-encoding content-language content-length
    content-location content-md5 content-range content-type date etag expect expires from host if-match if-modified-since
    if-none-match if-range if-unmodified-since last-modified location max-forwards pragma proxy-authenticate proxy-authorization
    range referer retry-after server te trailer transfer-encoding upgrade user-agent vary via warning www-authenticate method get
    status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin"""
_PLAIN_TEXT: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _prefixed(word: bytes) -> bytes:
    return _NUMBER.pack(len(word)) + word


HEADER_DICTIONARY: Final = (
    b"".join(_prefixed(word.replace("_", " ").encode()) for word in _PREFIXED_WORDS.split()) + _PLAIN_TEXT.encode()
)


class _Type(IntEnum):
    OPEN = 1
    REPLY = 2
    RESET = 3
    PING = 6
    GO_AWAY = 7
    HEADERS = 8


class ResetReason(IntEnum):
    """Why a stream is reset."""

    PROTOCOL_ERROR = 1
    REFUSED = 3


class SpdyFault(Exception):
    """What was sent is no SPDY/3.1, or more of it than is taken. The message is one line."""


@dataclass(frozen=True, slots=True)
class SpdyOpening:
    """The other side opens a stream."""

    stream: int
    headers: Mapping[str, str]
    is_last: bool


@dataclass(frozen=True, slots=True)
class SpdyData:
    """Of a stream: a frame, or a part of one."""

    stream: int
    data: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class SpdyReset:
    """A stream is over in both directions."""

    stream: int


@dataclass(frozen=True, slots=True)
class SpdyPing:
    """Wants to be sent back."""

    number: int


@dataclass(frozen=True, slots=True)
class SpdyGoAway:
    """The other side opens no more streams."""


SpdyFrame = SpdyOpening | SpdyData | SpdyReset | SpdyPing | SpdyGoAway


class SpdyReader:
    """Takes bytes as they come. It keeps 16 KiB at most that are no whole frame yet."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._headers = zlib.decompressobj(zdict=HEADER_DICTIONARY)
        self._stream, self._left, self._is_last = 0, 0, False
        """Of the frame of data that has begun: bytes that are still to come."""

    def take(self, data: bytes) -> list[SpdyFrame]:
        """The frames that are whole now, and the parts of data that have come. Raises SpdyFault."""
        self._kept += data
        found: list[SpdyFrame] = []
        while (one := self._next()) is not None:
            found.append(one)
        return found

    def _next(self) -> SpdyFrame | None:
        """None: more has to come first."""
        if self._left:
            return self._data()
        while len(self._kept) >= _HEAD.size:
            first, rest = _HEAD.unpack_from(self._kept)
            flags, length = rest >> 24, rest & 0xFF_FFFF
            if not first >> 31:
                del self._kept[: _HEAD.size]
                self._stream, self._left, self._is_last = first, length, bool(flags & _LAST)
                return self._data()
            if first >> 16 != 0x8000 | _VERSION:
                raise SpdyFault(f"found a frame of version {first >> 16 & 0x7FFF}, want {_VERSION}")
            if length > _CONTROL_BYTES_MAX:
                raise SpdyFault(f"a control frame has {length} bytes, at most {_CONTROL_BYTES_MAX} are taken")
            end = _HEAD.size + length
            if len(self._kept) < end:
                return None
            content = bytes(self._kept[_HEAD.size : end])
            del self._kept[:end]
            found = self._control(first & 0xFFFF, flags, content)
            if found is not None:
                return found
        return None

    def _data(self) -> SpdyData | None:
        part = bytes(self._kept[: self._left])
        if self._left and not part:
            return None
        del self._kept[: len(part)]
        self._left -= len(part)
        return SpdyData(self._stream, part, self._is_last and not self._left)

    def _control(self, number: int, flags: int, content: bytes) -> SpdyFrame | None:
        """None: it is read over."""
        try:
            match number:
                case _Type.OPEN:
                    stream, *_ = _OPENING.unpack_from(content)
                    headers = _pairs(self._unpacked(content[_OPENING.size :]))
                    return SpdyOpening(stream & _ID_BITS, headers, bool(flags & _LAST))
                case _Type.REPLY | _Type.HEADERS:
                    # Read, as what comes after it is unpacked with what it has said.
                    self._unpacked(content[_NUMBER.size :])
                case _Type.RESET:
                    return SpdyReset(_TWO_NUMBERS.unpack_from(content)[0] & _ID_BITS)
                case _Type.PING:
                    return SpdyPing(_NUMBER.unpack_from(content)[0])
                case _Type.GO_AWAY:
                    return SpdyGoAway()
        except struct.error:
            raise SpdyFault(f"a control frame of type {number} is too short: {len(content)} bytes") from None
        return None

    def _unpacked(self, content: bytes) -> bytes:
        try:
            found = self._headers.decompress(content, _HEADER_BYTES_MAX)
        except zlib.error as error:
            raise SpdyFault(f"headers cannot be unpacked: {error}") from None
        if self._headers.unconsumed_tail:
            raise SpdyFault(f"headers have more than {_HEADER_BYTES_MAX} bytes")
        return found


def _pairs(content: bytes) -> dict[str, str]:
    """Headers by name. Raises struct.error or SpdyFault where there are fewer than are told."""
    (count,) = _NUMBER.unpack_from(content)
    texts: list[str] = []
    at = _NUMBER.size
    for _ in range(2 * count):
        (length,) = _NUMBER.unpack_from(content, at)
        at += _NUMBER.size
        texts.append(content[at : at + length].decode("utf-8", "replace"))
        at += length
    if at > len(content):
        raise SpdyFault("headers end in the middle of one")
    return dict(zip(texts[::2], texts[1::2], strict=True))


class SpdyWriter:
    """Makes the bytes of frames, which are to be sent in the order in which they were made."""

    def __init__(self) -> None:
        self._headers = zlib.compressobj(zdict=HEADER_DICTIONARY)

    def opening(self, stream: int, headers: Mapping[str, str]) -> bytes:
        """Opens a stream, as clients do."""
        return _control_frame(_Type.OPEN, _OPENING.pack(stream, 0, 0, 0) + self._packed(headers))

    def reply(self, stream: int) -> bytes:
        """The stream that the other side has opened is taken."""
        return _control_frame(_Type.REPLY, _NUMBER.pack(stream) + self._packed({}))

    def data(self, stream: int, data: bytes, *, is_last: bool = False) -> bytes:
        """`data`: less than 16 MiB."""
        return _HEAD.pack(stream, (_LAST if is_last else 0) << 24 | len(data)) + data

    def reset(self, stream: int, reason: ResetReason) -> bytes:
        return _control_frame(_Type.RESET, _TWO_NUMBERS.pack(stream, reason))

    def pong(self, number: int) -> bytes:
        return _control_frame(_Type.PING, _NUMBER.pack(number))

    def _packed(self, headers: Mapping[str, str]) -> bytes:
        texts = [text.encode() for pair in headers.items() for text in pair]
        content = _NUMBER.pack(len(headers)) + b"".join(map(_prefixed, texts))
        return self._headers.compress(content) + self._headers.flush(zlib.Z_SYNC_FLUSH)


def _control_frame(kind: _Type, content: bytes) -> bytes:
    return _HEAD.pack((0x8000 | _VERSION) << 16 | kind, len(content)) + content
