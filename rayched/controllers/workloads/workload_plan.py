"""What the reconciler wants written for one controller, and in which rounds its pods are created. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rayched.api.occurrences import EventOccurrence
from rayched.store.transactions import GuardedPut, Write

STRAYS: Final = ""
"""In place of an owner: pods whose controller is gone."""


@dataclass(slots=True, eq=False)
class WorkloadPlan:
    """What is to be written for one controller: first `pods`, then `creations` by and by, then `last`."""

    owner: str
    """Its identity, or STRAYS."""
    kind: str = ""
    key: bytes = b""
    """Of the controller itself."""
    pods: list[Write] = field(default_factory=list)
    creations: list[GuardedPut] = field(default_factory=list)
    last: list[Write] = field(default_factory=list)
    recheck_at: float | None = None
    """By the wall clock."""
    each_alone: bool = False
    """None of `pods` depends on another: one that fails is put off, and the others go on."""
    news: dict[bytes, list[EventOccurrence]] = field(default_factory=dict)
    """By the key of a write: what people are told once it is done."""
    stopped: bool = False
    """A creation was not done: the others are not sent."""

    def again_at(self, wall: float) -> None:
        self.recheck_at = wall if self.recheck_at is None else min(wall, self.recheck_at)

    def tell(self, key: bytes, *news: EventOccurrence) -> None:
        if news:
            self.news.setdefault(key, []).extend(news)

    def __len__(self) -> int:
        return len(self.pods) + len(self.creations) + len(self.last)


def slow_start(plans: Sequence[WorkloadPlan]) -> Iterator[list[tuple[WorkloadPlan, list[GuardedPut]]]]:
    """The creations of plans in rounds: of each plan one, then two, four, and so on, so that what fails fails for few.

    Whoever takes a round marks a plan as stopped where one was not done, and it is in no further round.
    """
    sent = {id(plan): 0 for plan in plans}
    count = 1
    while True:
        found = [(plan, plan.creations[sent[id(plan)] : sent[id(plan)] + count]) for plan in plans if not plan.stopped]
        found = [(plan, some) for plan, some in found if some]
        if not found:
            return
        yield found
        for plan, some in found:
            sent[id(plan)] += len(some)
        count *= 2
