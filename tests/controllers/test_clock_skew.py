"""The skew between this clock and the leader's, from what the leader's record says of its time."""

from __future__ import annotations

import pytest

from rayched.controllers.clock_skew import ClockSkew


@pytest.mark.parametrize("ahead", [-300.0, -1.0, 0.0, 51.0])
def test_the_quickest_reading_tells_the_skew(ahead: float) -> None:
    skew = ClockSkew()
    for turn, way in enumerate((0.4, 0.05, 1.9, 0.2)):
        skew.seen("a", 1000.0 + turn, 1000.0 + turn + way + ahead, float(turn))
    assert skew.seconds == pytest.approx(ahead + 0.05)
    assert (skew.problem() is not None) == (abs(ahead) > 2)


def test_a_record_that_nobody_renews_tells_nothing() -> None:
    skew = ClockSkew()
    for turn in range(100):
        skew.seen("a", 1000.0, 5000.0 + turn, float(turn))
    assert skew.seconds is None


def test_another_leaders_clock_is_another_measurement_and_ones_own_is_none() -> None:
    skew = ClockSkew()
    for turn in range(3):
        skew.seen("a", 1000.0 + turn, 1060.0 + turn, float(turn))
    problem = skew.problem()
    assert problem is not None and "60.0 s ahead of the clock of the leader a" in problem
    skew.seen("b", 2000.0, 2000.1, 4.0)
    assert skew.seconds is None
    skew.seen("b", 2001.0, 2001.1, 5.0)
    assert skew.seconds == pytest.approx(0.1)
    skew.itself()
    assert skew.seconds is None


def test_what_was_measured_long_ago_is_forgotten() -> None:
    skew = ClockSkew()
    skew.seen("a", 1000.0, 1000.0, 0.0)
    for turn in range(1, 70):
        skew.seen("a", 1000.0 + turn, 1030.0 + turn, float(turn))
    assert skew.seconds == pytest.approx(30.0)
