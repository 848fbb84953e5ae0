"""Frames of SPDY: what is written is read, in whatever pieces it comes; what is none is refused."""

from __future__ import annotations

import itertools
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.gateway.spdy_frames import (
    HEADER_DICTIONARY,
    ResetReason,
    SpdyData,
    SpdyFault,
    SpdyGoAway,
    SpdyOpening,
    SpdyPing,
    SpdyReader,
    SpdyReset,
    SpdyWriter,
)


def test_the_dictionary_is_that_of_the_specification() -> None:
    # Each zlib stream of SPDY/3 begins with this number: the checksum of the dictionary that it was packed with.
    assert (len(HEADER_DICTIONARY), zlib.adler32(HEADER_DICTIONARY)) == (1423, 0xE3C6A7C2)


@given(cuts=st.sets(st.integers(1, 400)), headers=st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=4))
def test_frames_are_read_as_they_were_written_in_whatever_pieces_they_come(cuts: set[int], headers: dict[str, str]) -> None:
    writer = SpdyWriter()
    frames = [
        writer.opening(1, headers),
        writer.opening(3, {"port": "80", **headers}),
        writer.reply(3),
        writer.data(1, b"text"),
        writer.data(3, b"", is_last=True),
        writer.data(1, b"more", is_last=True),
        writer.pong(7),
        writer.reset(3, ResetReason.REFUSED),
        struct.pack(">HHIII", 0x8003, 7, 8, 3, 0),
        # Settings and a window are read over.
        struct.pack(">HHII", 0x8003, 4, 4, 0),
        struct.pack(">HHIII", 0x8003, 9, 8, 1, 1),
    ]
    whole, reader = b"".join(frames), SpdyReader()
    places = [0, *sorted(cut for cut in cuts if cut < len(whole)), len(whole)]
    found = [frame for start, end in itertools.pairwise(places) for frame in reader.take(whole[start:end])]
    texts: dict[int, bytes] = {}
    for one in found:
        if isinstance(one, SpdyData):
            texts[one.stream] = texts.get(one.stream, b"") + one.data
    assert texts == {1: b"textmore", 3: b""}
    assert [one.stream for one in found if isinstance(one, SpdyData) and one.is_last] == [3, 1]
    assert [one for one in found if not isinstance(one, SpdyData)] == [
        SpdyOpening(1, headers, False),
        SpdyOpening(3, {"port": "80", **headers}, False),
        SpdyPing(7),
        SpdyReset(3),
        SpdyGoAway(),
    ]


def an_opening(headers: bytes) -> bytes:
    content = struct.pack(">IIBB", 1, 0, 0, 0) + headers
    return struct.pack(">HHI", 0x8003, 1, len(content)) + content


def packed(text: bytes) -> bytes:
    packer = zlib.compressobj(zdict=HEADER_DICTIONARY)
    return packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (struct.pack(">HHI", 0x8002, 1, 10) + b"\0" * 10, "found a frame of version 2, want 3"),
        (struct.pack(">HHI", 0x8003, 1, 1 << 20), "a control frame has 1048576 bytes"),
        (struct.pack(">HHI", 0x8003, 1, 4) + b"\0" * 4, "a control frame of type 1 is too short: 4 bytes"),
        (struct.pack(">HHI", 0x8003, 6, 0), "a control frame of type 6 is too short"),
        (an_opening(b"none"), "headers cannot be unpacked"),
        (an_opening(packed(b"\0" * (1 << 20))), "headers have more than 16384 bytes"),
        (an_opening(packed(struct.pack(">I", 5))), "a control frame of type 1 is too short"),
        (an_opening(packed(struct.pack(">II", 2**31, 2**31))), "a control frame of type 1 is too short"),
        (b"GET / HTTP/1.1\r\n" + b"\xff" * 5_000_000, "found a frame of version 32767"),
    ],
)
def test_what_is_no_frame_is_refused(raw: bytes, said: str) -> None:
    with pytest.raises(SpdyFault, match=said):
        SpdyReader().take(raw)


@given(st.binary(max_size=300))
def test_whatever_comes_is_read_or_refused(raw: bytes) -> None:
    reader = SpdyReader()
    try:
        for frame in reader.take(b"\x80\x03\0\x01" + raw):
            assert frame is not None
    except SpdyFault as fault:
        assert "\n" not in str(fault)
