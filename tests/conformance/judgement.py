"""Judges recorded cases of every kind: agrees, differs, or not run and why. Nothing that a case does ends the run."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tests.conformance.cases import Case
from tests.conformance.comparisons import Comparison, compare_schedule
from tests.conformance.hint_comparisons import compare_hints
from tests.conformance.parse_comparisons import compare_parsing
from tests.conformance.preempt_comparisons import compare_preemption
from tests.conformance.queue_player import compare_queue
from tests.conformance.sequence_comparisons import compare_sequence


class Verdict(enum.Enum):
    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Judgement:
    case: Case
    verdict: Verdict
    comparisons: tuple[Comparison, ...] = ()
    reason: str = ""
    """Why it was not run."""

    @property
    def first_difference(self) -> Comparison | None:
        return next((one for one in self.comparisons if not one.agrees), None)


def judge(case: Case, n_shards: int) -> Judgement:
    """`n_shards` workers answer for all columns; 0: there are none."""
    compare = _COMPARED.get(case.kind)
    if compare is None:
        return Judgement(case, Verdict.NOT_RUN, reason=f"kind {case.kind!r} is not known")
    comparisons: list[Comparison] = []
    try:
        for one in compare(case, n_shards):
            comparisons.append(one)
    except Exception as problem:
        comparisons.append(Comparison("raised while it was run", f"{type(problem).__name__}: {problem}", "nothing is raised"))
    if any(not one.agrees for one in comparisons):
        return Judgement(case, Verdict.DIFFERS, tuple(comparisons))
    if not comparisons:
        return Judgement(case, Verdict.NOT_RUN, reason="there is nothing to compare")
    return Judgement(case, Verdict.AGREES, tuple(comparisons))


_COMPARED: Final[Mapping[str, Callable[[Case, int], Iterator[Comparison]]]] = {
    "schedule": compare_schedule,
    "hint": lambda case, n_shards: compare_hints(case),
    "parse": lambda case, n_shards: compare_parsing(case),
    "preempt": compare_preemption,
    "sequence": compare_sequence,
    "queue": lambda case, n_shards: compare_queue(case),
}
