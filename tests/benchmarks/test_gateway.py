"""`make gateway-load`: how bursts are judged, and a small run over real gateways, with load and with faults."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks import gateway
from benchmarks.gateway import Burst, Settings
from benchmarks.gateway_load import LoadFigures

SMALL = Settings(nodes=20, pods=200, rounds=1, watches=60, rate=20.0, fault_seconds=4.0)


def loaded(pods_a_second: float, *, watches: int = 60, good: int = 100, bad: int = 0) -> Burst:
    answers = Counter({200: good, 503: bad})
    return Burst(pods_a_second, LoadFigures(5.0, watches, 10, answers, 0, [0.01] * (good + bad)))


@pytest.mark.parametrize(
    ("bursts", "wrong"),
    [
        ([Burst(100.0, None), loaded(91.0)], []),
        ([Burst(100.0, None), loaded(80.0)], ["the load costs the leader 20.0% of its throughput, allowed are 10%"]),
        ([Burst(90.0, None), loaded(95.0, watches=59)], ["59 of 60 watches were open to the end"]),
        (
            [Burst(100.0, None), loaded(100.0, good=90, bad=10)],
            ["18 of 20 requests a second were answered: {200: 90, 503: 10}"],
        ),
        ([Burst(50.0, None), Burst(150.0, None), loaded(95.0)], []),
    ],
)
def test_each_demand_that_is_missed_is_told(bursts: list[Burst], wrong: list[str]) -> None:
    assert gateway.judged(SMALL, bursts, 100) == wrong


@pytest.mark.long
@pytest.mark.cluster
def test_a_small_run_asks_watches_and_hurts_gateways() -> None:
    # What it costs says nothing on a machine that others share; all else that is demanded holds there too.
    assert [words for words in gateway.load(SMALL) if "of its throughput" not in words] == []
    assert [words for words in gateway.faults(SMALL) if "bindings paused" not in words] == []
