"""Choice of the host among the nodes with the highest total: a draw that can be repeated.

The draw is a pure function of (seed, decision number), so a run can be replayed and the number of workers cannot change it: of
the rows that tie, in node order, the k-th is taken, k drawn uniformly.

Source: selectHost of kube-scheduler 1.34, which draws from an unseeded generator.
Cost: 1 µs where there is a tie.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Protocol

from rayched.snapshot.columns import RowIndex
from rayched.snapshot.snapshot import Snapshot

_WORD: Final = (1 << 64) - 1
# The constants of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
_GAMMA: Final = 0x9E3779B97F4A7C15
_OFFSETS: Final = 0x0FF5E75
"""Keeps draws of offsets apart from those between ties."""
_MIX_1: Final = 0xBF58476D1CE4E5B9
_MIX_2: Final = 0x94D049BB133111EB


def draw(seed: int, number: int, bound: int) -> int:
    """A number in 0..bound-1 for the `number`-th decision of a run; equal arguments give equal draws.

    SplitMix64's output function over a counter; multiplication by the bound in place of a remainder keeps the draw uniform to
    2**-64 * bound.
    """
    word = _begin(seed) + (number + 1) * _GAMMA & _WORD
    # As `_mixed`.
    word = (word ^ word >> 30) * _MIX_1 & _WORD
    word = (word ^ word >> 27) * _MIX_2 & _WORD
    return (word ^ word >> 31) * bound >> 64


class TieBreaker(Protocol):
    """Decides where all else is equal."""

    seed: int

    def among(self, rows: RowIndex | Sequence[int], number: int) -> int:
        """One of the rows that tie in the `number`-th decision. Shape (ties,), one at least."""

    def offset(self, n_rows: int, number: int) -> int:
        """Where among so many rows (one at least) a search begins."""


class SeededTieBreaker:
    """The chance of a run that can be repeated."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def among(self, rows: RowIndex | Sequence[int], number: int) -> int:
        return choose(rows, self.seed, number)

    def offset(self, n_rows: int, number: int) -> int:
        return draw(self.seed ^ _OFFSETS, number, n_rows)


class SmallestName:
    """Of the rows that tie the one whose node has the smallest name: what recorded decisions are compared by."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.seed = 0
        self._snapshot = snapshot

    def among(self, rows: RowIndex | Sequence[int], number: int) -> int:  # noqa: ARG002
        return min(map(int, rows), key=self._snapshot.name_of)

    def offset(self, n_rows: int, number: int) -> int:  # noqa: ARG002
        return 0


def choose(best_rows: RowIndex | Sequence[int], seed: int, number: int) -> int:
    """One of the rows that tie. Shape (ties,), ascending, one at least."""
    ties = len(best_rows)
    return int(best_rows[draw(seed, number, ties) if ties > 1 else 0])


@lru_cache(maxsize=16)
def _begin(seed: int) -> int:
    return _mixed(seed & _WORD)


def _mixed(word: int) -> int:
    word = (word ^ word >> 30) * _MIX_1 & _WORD
    word = (word ^ word >> 27) * _MIX_2 & _WORD
    return word ^ word >> 31
