"""How many workers there are where a Ray cluster decides."""

from __future__ import annotations

import pytest

from rayched.replica.ray.pool_sizing import PENDING_SECONDS_MAX, PoolSizing


@pytest.mark.parametrize(
    ("workers", "pending", "free_cpus", "missing"),
    [
        (0, 0, 0.0, 0),
        (0, 0, 0.9, 0),
        (0, 0, 6.0, 6),
        # What was asked for takes what is free.
        (4, 4, 6.0, 2),
        (6, 6, 6.0, 0),
        (6, 6, 2.0, 0),
        # Those that run have theirs already.
        (4, 0, 2.0, 2),
        (7, 0, 5.0, 1),
        (8, 0, 5.0, 0),
    ],
)
def test_the_pool_grows_by_what_is_free_and_not_asked_for_yet(workers: int, pending: int, free_cpus: float, missing: int) -> None:
    sizing = PoolSizing(8)
    for number in range(workers):
        sizing.asked_for(f"w{number}", 0.0)
    for number in range(pending, workers):
        sizing.given(f"w{number}")
    assert sizing.missing(workers, free_cpus) == missing


def test_who_finds_no_room_is_let_go_of() -> None:
    sizing = PoolSizing(8)
    for name, at in (("b", 0.0), ("a", 0.0), ("runs", 0.0), ("dead", 0.0), ("late", 1.0)):
        sizing.asked_for(name, at)
    sizing.given("runs")
    sizing.gone("dead")
    assert sizing.without_room(PENDING_SECONDS_MAX) == []
    assert sizing.without_room(PENDING_SECONDS_MAX + 0.5) == ["a", "b"]
    assert sizing.without_room(PENDING_SECONDS_MAX + 1.5) == ["a", "b", "late"]
    sizing.gone("a")
    sizing.asked_for("b", 30.0)
    assert sizing.without_room(PENDING_SECONDS_MAX + 1.5) == ["late"]
