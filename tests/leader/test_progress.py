"""The tie between renewals and signs of life, in numbers."""

from __future__ import annotations

import pytest

from leader.progress import ProgressTie

LIMIT = 10


@pytest.mark.parametrize(
    ("began", "reports", "asked_at", "alive"),
    [
        (None, [], 1000, True),
        (None, [0], LIMIT, True),
        (None, [0], LIMIT + 1, False),
        (None, [5], LIMIT + 5, True),
        (None, [5, 3], LIMIT + 5, True),
        (None, [5, None], LIMIT + 6, False),
        (7, [None], LIMIT + 7, True),
        (7, [None], LIMIT + 8, False),
        (7, [5], LIMIT + 7, True),
        (7, [9], LIMIT + 9, True),
    ],
)
def test_work_lives_for_the_limit_after_its_beginning_and_after_each_sign(
    began: int | None, reports: list[int | None], asked_at: int, alive: bool
) -> None:
    tie = ProgressTie(LIMIT)
    if began is not None:
        tie.restart(began)
    for report in reports:
        tie.report(report)
    assert tie.alive(asked_at) is alive


def test_a_sign_of_life_counts_as_later_only_when_it_is() -> None:
    tie = ProgressTie(LIMIT)
    tie.report(5)
    assert [tie.ticked_since(then) for then in (4, 5, 6)] == [True, False, False]
