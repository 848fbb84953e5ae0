"""Preemption and whole sequences of decisions, against what kube-scheduler 1.34.1 recorded."""

from __future__ import annotations

import pytest

from tests.conformance.cases import load
from tests.conformance.judgement import Verdict, judge

PIECES = 4
"""The cases are dealt out to so many tests."""
SHARDED_EVERY = 6


def differing(topic: str, n_shards: int, piece: int, pieces: int) -> list[object]:
    judged = [judge(case, n_shards) for case in load(topic)[piece::pieces]]
    assert judged
    return [(one.case.id, one.first_difference) for one in judged if one.verdict is not Verdict.AGREES]


@pytest.mark.row("F13", "F14", "F18")
@pytest.mark.parametrize("piece", range(PIECES))
def test_candidates_victims_and_choice_of_every_recorded_preemption_agree(piece: int) -> None:
    assert differing("preempt", 0, piece, PIECES) == []


@pytest.mark.row("F1", "F15", "F23")
@pytest.mark.parametrize("piece", range(PIECES))
def test_one_scheduler_decides_every_pod_of_a_recorded_sequence(piece: int) -> None:
    assert differing("sequence", 0, piece, PIECES) == []


@pytest.mark.parametrize("topic", ["preempt", "sequence"])
def test_it_is_the_same_with_every_column_taken_from_three_workers(topic: str) -> None:
    assert differing(topic, 3, 0, SHARDED_EVERY) == []


@pytest.mark.row("K9.7", "K9.12", "F19")
def test_cases_from_the_documentation_agree_whatever_their_kind() -> None:
    cases = [case for case in load("docs") if case.kind in ("preempt", "sequence")]
    assert len(cases) > 10
    judged = [judge(case, 0) for case in cases]
    assert [(one.case.id, one.first_difference) for one in judged if one.verdict is not Verdict.AGREES] == []
