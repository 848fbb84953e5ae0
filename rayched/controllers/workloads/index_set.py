"""Completed indexes of a job: disjoint intervals in order, as its status has them ("0,3-5,7"). Pure, immutable.

Cost: in proportion to the intervals, of which a job that completes in order has one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IndexSet:
    """`intervals` are pairs of the first and the last index; no two of them touch."""

    intervals: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.intervals)

    def __contains__(self, index: object) -> bool:
        if not isinstance(index, int):
            return False
        place = bisect_right(self.intervals, (index, float("inf"))) - 1
        return place >= 0 and self.intervals[place][1] >= index

    def __str__(self) -> str:
        """Of two neighbours each is written, of more only the first and the last."""
        return ",".join(
            str(first) if first == last else f"{first},{last}" if last == first + 1 else f"{first}-{last}"
            for first, last in self.intervals
        )

    def with_indexes(self, indexes: Iterable[int]) -> IndexSet:
        return IndexSet(_merged([*self.intervals, *((index, index) for index in indexes)]))

    def missing(self, below: int, besides: Collection[int] = ()) -> Iterator[int]:
        """The indexes below a number that are neither in here nor in `besides`, in order."""
        next_one = 0
        for first, last in (*self.intervals, (below, below)):
            yield from (index for index in range(next_one, min(first, below)) if index not in besides)
            next_one = last + 1


def parsed(text: str, below: int) -> IndexSet:
    """From the text of a status; what is no interval, and what is not below the number, is left out."""
    found: list[tuple[int, int]] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first.isdigit() and (last.isdigit() if dash else True):
            begin, end = int(first), min(int(last) if dash else int(first), below - 1)
            if begin <= end:
                found.append((begin, end))
    return IndexSet(_merged(found))


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
