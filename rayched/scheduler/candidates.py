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
from dataclasses import dataclass
from typing import Final, TypeAlias

from rayched.snapshot.snapshot import BoundPod

PRIORITIES_BELOW_ZERO: Final = 2**31
"""Added to each priority in the sum, so that more victims never sum up to less."""

Rank: TypeAlias = tuple[int, int, int, int, float]


@dataclass(frozen=True, slots=True)
class Victim:
    uid: str
    pod: BoundPod

    @property
    def priority(self) -> int:
        return self.pod.template.priority

    @property
    def importance(self) -> tuple[int, float]:
        """Lowest first: the most important pod has the highest priority, and among equals it started first."""
        return -self.pod.template.priority, self.pod.facts.started


@dataclass(frozen=True, slots=True)
class Candidate:
    row: int
    victims: tuple[Victim, ...]
    """One at least, the most important first."""
    n_violating: int
    """Victims whose end violates a budget."""

    @property
    def rank(self) -> Rank:
        """Lower is better."""
        highest = max(victim.priority for victim in self.victims)
        earliest = min(victim.pod.facts.started for victim in self.victims if victim.priority == highest)
        total = sum(victim.priority + PRIORITIES_BELOW_ZERO for victim in self.victims)
        return self.n_violating, highest, total, len(self.victims), -earliest


def best(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that no criterion tells apart, in their order."""
    ranks = [candidate.rank for candidate in candidates]
    lowest = min(ranks)
    return [candidate for candidate, rank in zip(candidates, ranks, strict=True) if rank == lowest]
