"""Candidates of a preemption: nodes with the pods that would have to go there, and the choice among them.

Criteria, the next one where the ones before tie:

1. fewest victims whose end violates a budget
2. the most important victim has the lowest priority
3. the lowest sum of priorities, each counted from the lowest there is
4. fewest victims
5. the earliest start among the victims of the highest priority is latest
6. the first one; kube-scheduler's order is random there, so the caller draws

Pure. Source: pickOneNodeForPreemption, GetEarliestPodStartTime of kube-scheduler 1.34.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rayched.snapshot.columns import RowIndex
from rayched.snapshot.snapshot import BoundPod

PRIORITIES_BELOW_ZERO: Final = 2**31
"""Added to each priority in the sum, so that more victims never sum up to less."""

Rank: TypeAlias = tuple[int, int, int, int, float]
RANKS: Final = 5
Ranks: TypeAlias = NDArray[np.float64]
"""Of many. Shape (candidates, RANKS). Sums of priorities are exact up to a million pods."""


class Victim(NamedTuple):
    uid: str
    pod: BoundPod

    @property
    def importance(self) -> tuple[int, float]:
        """Lowest first: the most important pod has the highest priority, and among equals it started first."""
        return -self.pod.template.priority, self.pod.facts.started


class PreemptionCandidate(NamedTuple):
    row: int
    victims: tuple[Victim, ...]
    """One at least, the most important first."""
    n_violating: int
    """Victims whose end violates a budget."""
    rank: Rank
    """Lower is better."""


def candidate(row: int, victims: Sequence[Victim], n_violating: int) -> PreemptionCandidate:
    """Of victims in the order of their importance."""
    # The most important one has the highest priority, and of those the earliest start.
    first, count = victims[0].pod, len(victims)
    total = PRIORITIES_BELOW_ZERO * count
    for victim in victims:
        total += victim.pod.template.priority
    rank = n_violating, first.template.priority, total, count, -first.facts.started
    return PreemptionCandidate(row, tuple(victims), n_violating, rank)


def best(candidates: Sequence[PreemptionCandidate]) -> list[PreemptionCandidate]:
    """Those that no criterion tells apart, in their order; one at least is given."""
    return [candidates[place] for place in lowest(np.array([one.rank for one in candidates])).tolist()]


def lowest(ranks: Ranks) -> RowIndex:
    """The places of the lowest ranks, ascending. Shape (ties,)."""
    places: RowIndex = np.arange(len(ranks))
    for criterion in range(RANKS):
        column = ranks[:, criterion]
        ties = (column == column.min()).nonzero()[0]
        if len(ties) < len(places):
            places, ranks = places[ties], ranks[ties]
    return places
