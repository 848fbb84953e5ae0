"""What `make failover` demands, and what it says where that was missed."""

from __future__ import annotations

import pytest

from benchmarks.failover import DEMANDS, Pause, missed, percentile


@pytest.mark.parametrize(("count", "found"), [(1, 1.0), (50, 50.0), (100, 99.0), (200, 198.0)])
def test_the_percentile_is_that_of_the_nearest_rank(count: int, found: float) -> None:
    assert percentile([float(one) for one in range(count, 0, -1)], 99) == found


def pauses(kind: str, *seconds: float | None) -> list[Pause]:
    return [Pause(kind, one) for one in seconds]


def test_what_is_as_demanded_is_not_told() -> None:
    found = [pauses(kind, demand.median, demand.median, demand.p99) for kind, demand in DEMANDS.items()]
    assert missed([pause for of_kind in found for pause in of_kind]) == []


def test_each_demand_that_is_missed_is_told() -> None:
    words = missed(
        [*pauses("replica", 0.1, 0.2, 0.7), *pauses("tree", 0.4, 0.4), *pauses("scheduler", 0.1), *pauses("stop", None)]
    )
    assert words == [
        "stop: no binding came for 20 s",
        "replica: median 0.200 s, p99 0.700 s; demanded are 0.3 and 0.6 s",
        "tree: median 0.400 s, p99 0.400 s; demanded are 0.3 and 0.6 s",
    ]
