"""Tallies of the recorded attempts of a topic, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from tests.conformance.cases import schedule_cases
from tests.conformance.comparisons import COMPARISONS, Comparison, setting_of

SHOWN: Final = 5


@dataclass(slots=True)
class Tally:
    compared: int = 0
    differing: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, case: str, one: Comparison) -> None:
        self.compared += 1
        if not one.agrees:
            self.differing += 1
            if len(self.first) < SHOWN:
                self.first.append(f"{case} {one.what}: found {one.found}, recorded {one.recorded}")

    def __str__(self) -> str:
        return f"{self.differing} of {self.compared} differ:\n" + "\n".join(self.first)


@lru_cache
def tallies(topic: str) -> Mapping[str, Tally]:
    """Every comparison of a topic. Each cluster is built once and let go."""
    found = {name: Tally() for name in COMPARISONS}
    for case in schedule_cases(topic):
        setting = setting_of(case, 0)
        for name, compare in COMPARISONS.items():
            for one in compare(setting):
                found[name].add(case.id, one)
    return found
