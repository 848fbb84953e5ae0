"""Histograms as a PNG, with nothing but zlib: one row of bars for each class, with its name, count and percentiles.

A PNG of eight-bit grey is a header, the rows each behind a filter byte, compressed, and an end; the letters are drawn from a font
of 3 by 5 points.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

_WIDTH: Final = 960
_ROW_HEIGHT: Final = 74
_LEFT: Final = 270
_BOTTOM: Final = 40
_BINS: Final = 120
_WHITE, _BLACK, _BAR, _LINE = 255, 0, 90, 215
_SCALE: Final = 2
_FONT: Final = (
    (
        "0 75557  1 26227  2 71747  3 71717  4 55711  5 74717  6 74757  7 71111  8 75757  9 75717  . 00002  - 00700  : 02020 "
        "/ 11244  % 51245  = 07070  ( 12221  ) 42224  , 00024  a 25755  b 65656  c 34443  d 65556  e 74647  f 74644  g 34553 "
        "h 55755  i 72227  j 11152  k 55655  l 44447  m 57755  n 65555  o 25552  p 65644  q 25563  r 65655  s 34216  t 72222 "
        "u 55557  v 55522  w 55775  x 55255  y 55222  z 71247"
    )
    .replace("  ", " ")
    .split(" ")
)
"""Each glyph and its five rows of three points, a digit a row."""
_GLYPHS: Final = dict(zip(_FONT[::2], _FONT[1::2], strict=True))
_BLANK: Final = "00000"


def histograms_png(classes: Mapping[str, Sequence[float]], title: str) -> bytes:
    """Seconds by class; all classes share one axis, from 0 to the longest."""
    longest = max((value for values in classes.values() for value in values), default=1.0) or 1.0
    canvas = _Canvas(_WIDTH, 30 + _ROW_HEIGHT * len(classes) + _BOTTOM)
    canvas.text(10, 8, title)
    span = _WIDTH - _LEFT - 40
    for number in range(6):
        x = _LEFT + span * number // 5
        canvas.box(x, 26, 1, _ROW_HEIGHT * len(classes), _LINE)
        canvas.text(x - 8, 36 + _ROW_HEIGHT * len(classes), f"{longest * number / 5:.1f} s")
    for place, (name, values) in enumerate(classes.items()):
        base = 26 + _ROW_HEIGHT * (place + 1)
        canvas.text(10, base - 52, name)
        if values:
            canvas.text(10, base - 36, f"n={len(values)} p50={quantile(values, 0.5):.2f} s")
            canvas.text(10, base - 20, f"p99={quantile(values, 0.99):.2f} s")
        counts = [0] * _BINS
        for value in values:
            counts[min(_BINS - 1, int(value / longest * _BINS))] += 1
        for bin_number, count in enumerate(counts):
            height = (_ROW_HEIGHT - 14) * count // max(counts) if count else 0
            canvas.box(_LEFT + span * bin_number // _BINS, base - height, max(1, span // _BINS - 1), height, _BAR)
        canvas.box(_LEFT, base, span, 1, _BLACK)
    return canvas.png()


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that is at least as large as this share of them."""
    ordered = sorted(values)
    place = -(-int(share * 1_000_000) * len(ordered) // 1_000_000)
    return ordered[max(0, min(len(ordered), place) - 1)]


class _Canvas:
    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._rows = [bytearray([_WHITE]) * width for _ in range(height)]

    def box(self, x: int, y: int, width: int, height: int, grey: int) -> None:
        for row in self._rows[max(0, y) : max(0, y + height)]:
            for column in range(max(0, x), min(self._width, x + width)):
                row[column] = grey

    def text(self, x: int, y: int, text: str) -> None:
        for number, glyph in enumerate(text.lower()):
            for line, points in enumerate(_GLYPHS.get(glyph, _BLANK)):
                for column in range(3):
                    if int(points) & (4 >> column):
                        self.box(x + (number * 4 + column) * _SCALE, y + line * _SCALE, _SCALE, _SCALE, _BLACK)

    def png(self) -> bytes:
        raw = b"".join(b"\0" + bytes(row) for row in self._rows)
        header = struct.pack(">IIBBBBB", self._width, self._height, 8, 0, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(raw, 9)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
