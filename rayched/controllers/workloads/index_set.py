"""Completed indexes of a job: disjoint intervals in order, as its status has them ("0,3-5,7"). Pure, immutable.

Cost: to look an index up, the logarithm of the intervals. A set with further indexes costs as many look-ups, and copies of flat
tuples beside them, which no Python code goes through.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

_END = float("inf")


@dataclass(frozen=True, slots=True)
class IndexSet:
    """`intervals` are pairs of the first and the last index; no two of them touch."""

    intervals: tuple[tuple[int, int], ...] = ()
    _texts: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Of each interval; `_made` fills it in, as it does the next one."""
    _size: int = field(default=0, compare=False, repr=False)

    def __len__(self) -> int:
        return self._size

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and self._interval_at(index) is not None

    def __str__(self) -> str:
        """Of two neighbours each is written, of more only the first and the last."""
        return ",".join(self._texts)

    def with_indexes(self, indexes: Iterable[int]) -> IndexSet:
        intervals, texts, size = list(self.intervals), list(self._texts), self._size
        for index in indexes:
            place = bisect_right(intervals, (index, _END))
            first = last = index
            begin = end = place
            if place and intervals[place - 1][1] >= index:
                continue
            if place and intervals[place - 1][1] == index - 1:
                begin, first = place - 1, intervals[place - 1][0]
            if place < len(intervals) and intervals[place][0] == index + 1:
                end, last = place + 1, intervals[place][1]
            intervals[begin:end] = [(first, last)]
            texts[begin:end] = [_text_of(first, last)]
            size += 1
        return IndexSet(tuple(intervals), tuple(texts), size)

    def next_missing(self, at: int) -> int:
        """The first index from this one on that is not in here."""
        interval = self._interval_at(at)
        return at if interval is None else interval[1] + 1

    def _interval_at(self, index: int) -> tuple[int, int] | None:
        place = bisect_right(self.intervals, (index, _END)) - 1
        return self.intervals[place] if place >= 0 and self.intervals[place][1] >= index else None


def parsed(text: str, below: int) -> IndexSet:
    """From the text of a status; what is no interval, and what is not below the number, is left out."""
    found: list[tuple[int, int]] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first.isdigit() and (last.isdigit() if dash else True):
            begin, end = int(first), min(int(last) if dash else int(first), below - 1)
            if begin <= end:
                found.append((begin, end))
    return _made(_merged(found))


class LastIndexSet:
    """What one job's text says, kept until it is another: a long text is read once, not at each look."""

    def __init__(self) -> None:
        self._text, self._below, self._known = "", 0, IndexSet()

    def of(self, text: str, below: int) -> IndexSet:
        if (text, below) != (self._text, self._below):
            self._text, self._below, self._known = text, below, parsed(text, below)
        return self._known

    def keep(self, known: IndexSet, below: int) -> str:
        """Its text, which is what the job says soon."""
        self._text, self._below, self._known = str(known), below, known
        return self._text


def _merged(intervals: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return tuple(merged)


def _made(intervals: tuple[tuple[int, int], ...]) -> IndexSet:
    size = sum(last - first + 1 for first, last in intervals)
    return IndexSet(intervals, tuple(_text_of(first, last) for first, last in intervals), size)


def _text_of(first: int, last: int) -> str:
    return str(first) if first == last else f"{first},{last}" if last == first + 1 else f"{first}-{last}"
