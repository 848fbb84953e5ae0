"""How fast lost nodes are emptied: states of zones as a table, limits against a count of all that was ever let through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.controllers.node_settings import NodeSettings
from rayched.controllers.zones import Census, ZoneChange, ZoneLimits, ZoneState, zone_state

SETTINGS = NodeSettings()
HEALTHY = Census(10, 0)


@pytest.mark.parametrize(
    ("ready", "not_ready", "state"),
    [
        (0, 0, ZoneState.NORMAL),
        (5, 0, ZoneState.NORMAL),
        (0, 1, ZoneState.FULL),
        (0, 100, ZoneState.FULL),
        (1, 2, ZoneState.NORMAL),
        (2, 3, ZoneState.PARTIAL),
        (9, 11, ZoneState.PARTIAL),
        (46, 54, ZoneState.NORMAL),
        (45, 55, ZoneState.PARTIAL),
    ],
)
def test_the_state_of_a_zone(ready: int, not_ready: int, state: ZoneState) -> None:
    assert zone_state(Census(ready, not_ready), 0.55) is state


def let_through(limits: ZoneLimits, zone: str, seconds: int, start: int = 0) -> list[int]:
    """The seconds at which one more node may be emptied, asked ten times a second."""
    return [step // 10 for step in range(start * 10, (start + seconds) * 10) if limits.may_empty(zone, step / 10)]


@pytest.mark.parametrize(
    ("census", "expected"),
    [
        (Census(9, 1), [0, 10, 20, 30]),
        (Census(0, 10), [0, 10, 20, 30]),
        (Census(22, 28), []),
        (Census(22, 29), [0]),
    ],
)
def test_a_zone_is_emptied_at_the_rate_of_its_state(census: Census, expected: list[int]) -> None:
    limits = ZoneLimits(SETTINGS)
    limits.census({"z": census, "other": HEALTHY}, 0.0)
    assert let_through(limits, "z", 40) == expected


def test_a_large_zone_that_is_mostly_lost_is_emptied_at_the_secondary_rate() -> None:
    limits = ZoneLimits(SETTINGS)
    limits.census({"z": Census(22, 29), "other": HEALTHY}, 0.0)
    assert let_through(limits, "z", 250) == [0, 100, 200]


def test_nothing_is_emptied_while_no_node_of_any_zone_is_ready() -> None:
    limits = ZoneLimits(SETTINGS)
    assert limits.census({"a": Census(1, 9), "b": HEALTHY}, 0.0) is ZoneChange.NONE
    assert limits.census({"a": Census(0, 10), "b": Census(0, 10)}, 5.0) is ZoneChange.ALL_LOST
    assert limits.census({"a": Census(0, 10), "b": Census(0, 10)}, 10.0) is ZoneChange.NONE
    assert let_through(limits, "a", 100, 10) == []
    assert limits.census({"a": Census(0, 10), "b": Census(1, 9)}, 200.0) is ZoneChange.FOUND_AGAIN
    assert let_through(limits, "a", 15, 200) == [200, 210]


def test_a_cluster_that_is_first_seen_with_all_nodes_lost_is_left_alone() -> None:
    limits = ZoneLimits(SETTINGS)
    assert limits.census({"a": Census(0, 3)}, 0.0) is ZoneChange.ALL_LOST
    assert not limits.may_empty("a", 100.0)


def test_a_cluster_without_nodes_is_not_lost() -> None:
    limits = ZoneLimits(SETTINGS)
    assert limits.census({}, 0.0) is ZoneChange.NONE
    assert not limits.all_lost


def test_zones_have_limits_of_their_own() -> None:
    limits = ZoneLimits(SETTINGS)
    limits.census({"a": Census(9, 1), "b": Census(9, 1)}, 0.0)
    assert limits.may_empty("a", 0.0)
    assert not limits.may_empty("a", 0.0)
    assert limits.may_empty("b", 0.0)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=12))
def test_never_more_is_let_through_than_the_rates_of_the_past_allow(phases: list[tuple[int, int, int]]) -> None:
    """Against the sum of all rates so far and the one token at the beginning."""
    limits, now, let, allowed = ZoneLimits(SETTINGS), 0, 0, 1.0
    for ready, not_ready, seconds in phases:
        limits.census({"z": Census(ready, not_ready), "other": HEALTHY}, float(now))
        if not ready + not_ready:
            rate = 0.1
        elif ready and not_ready >= 3 and not_ready * 100 >= 55 * (ready + not_ready):
            rate = 0.01 if ready + not_ready > 50 else 0.0
        else:
            rate = 0.1
        for _ in range(seconds):
            let += limits.may_empty("z", float(now))
            now += 1
            allowed += rate
            assert let <= allowed + 1e-6
