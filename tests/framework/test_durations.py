"""Durations are counted in the bucket of the first bound that they do not exceed, one by one or many at once."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from rayched.framework.durations import Durations

BOUNDS = (0.1, 0.2, 0.4)


def told(durations: Durations) -> dict[tuple[str, ...], tuple[list[float], float]]:
    """Cumulated counts and the sum, by labels."""
    found = {}
    for labels, cumulated, total in durations.histograms():
        assert [bound for bound, _ in cumulated] == ["0.1", "0.2", "0.4", "+Inf"]
        found[labels] = [count for _, count in cumulated], total
    return found


@pytest.mark.parametrize(
    ("value", "cumulated"),
    [
        (0.0, [1, 1, 1, 1]),
        (0.1, [1, 1, 1, 1]),
        (0.11, [0, 1, 1, 1]),
        (0.4, [0, 0, 1, 1]),
        (0.41, [0, 0, 0, 1]),
        (9.0, [0, 0, 0, 1]),
    ],
)
def test_a_duration_counts_up_to_each_bound_that_it_does_not_exceed(value: float, cumulated: list[float]) -> None:
    one, several, together = Durations(BOUNDS), Durations(BOUNDS), Durations(BOUNDS)
    one.observe(("a",), value)
    several.observe(("a",), value, 3)
    together.observe_all(("a",), np.array([value] * 3))
    assert told(one) == {("a",): (cumulated, pytest.approx(value))}
    assert told(several) == told(together) == {("a",): ([3 * count for count in cumulated], pytest.approx(3 * value))}


@pytest.mark.parametrize("seed", range(3))
def test_many_at_once_are_what_they_are_one_by_one(seed: int) -> None:
    random, one_by_one, at_once = Random(seed), Durations(BOUNDS), Durations(BOUNDS)
    for _ in range(20):
        labels = (random.choice("ab"), random.choice("xy"))
        values = [random.choice((0.1, 0.2, random.random())) for _ in range(random.randrange(6))]
        for value in values:
            one_by_one.observe(labels, value)
        at_once.observe_all(labels, np.array(values, np.float64))
    found, expected = told(at_once), told(one_by_one)
    for labels, (counts, total) in expected.items():
        assert found[labels][0] == counts and found[labels][1] == pytest.approx(total)
    assert all(not any(counts) for labels, (counts, _) in found.items() if labels not in expected)
