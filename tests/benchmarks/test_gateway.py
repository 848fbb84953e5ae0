"""`make gateway-load`: how phases are judged, and a small run over real gateways, with load and with faults."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks import gateway, gateway_faults
from benchmarks.gateway import BURST, ROOMY_PROCESSORS, STEADY, LoadPhase
from benchmarks.gateway_load import LoadFigures
from benchmarks.gateway_rig import Settings

SMALL = Settings(nodes=20, pods=200, pods_a_second=20.0, steady_seconds=4.0, rounds=1, watches=60, rate=20.0, fault_seconds=4.0)


def alone(kind: str, pods_a_second: float, scheduler_seconds: float = 0.001) -> LoadPhase:
    return LoadPhase(kind, pods_a_second, scheduler_seconds, {}, None)


def loaded(
    kind: str,
    pods_a_second: float,
    scheduler_seconds: float = 0.001,
    *,
    watches: int = 60,
    good: int = 100,
    bad: int = 0,
    late: float = 0.1,
) -> LoadPhase:
    figures = LoadFigures(5.0, watches, 10, Counter({200: good, 503: bad}), 0, [0.01] * (good + bad), [late] * 10)
    return LoadPhase(kind, pods_a_second, scheduler_seconds, {"gateways": 0.5}, figures)


ALONE = [alone(BURST, 100.0), alone(STEADY, 20.0)]
FEW, MANY = 2, ROOMY_PROCESSORS


@pytest.mark.parametrize(
    ("phases", "processors", "wrong"),
    [
        ([*ALONE, loaded(BURST, 91.0), loaded(STEADY, 18.1)], MANY, []),
        ([*ALONE, loaded(BURST, 50.0), loaded(STEADY, 20.0)], FEW, []),
        ([*ALONE, loaded(BURST, 50.0), loaded(STEADY, 20.0)], MANY, ["50.0% of its throughput by bursts"]),
        ([*ALONE, loaded(BURST, 50.0, 0.00125), loaded(STEADY, 20.0)], FEW, ["20.0% of its throughput by its scheduler's time"]),
        ([*ALONE, loaded(BURST, 50.0), loaded(STEADY, 17.0)], FEW, ["15.0% of its throughput by steady pods"]),
        ([*ALONE, loaded(BURST, 50.0, watches=59), loaded(STEADY, 20.0)], FEW, ["59 of 60 watches were open to the end"]),
        ([*ALONE, loaded(BURST, 50.0, good=1, bad=99, late=9.0), loaded(STEADY, 20.0)], FEW, []),
        (
            [*ALONE, loaded(BURST, 50.0), loaded(STEADY, 20.0, good=90, bad=10)],
            FEW,
            ["18 of 20 requests a second were answered: {200: 90, 503: 10}"],
        ),
        ([*ALONE, loaded(BURST, 50.0), loaded(STEADY, 20.0, late=1.5)], FEW, ["one came after 1.5 s, allowed are 1.0 s"]),
        ([alone(BURST, 50.0), alone(BURST, 150.0), *ALONE, loaded(BURST, 95.0), loaded(STEADY, 20.0)], MANY, []),
    ],
)
def test_each_demand_that_is_missed_is_told(phases: list[LoadPhase], processors: int, wrong: list[str]) -> None:
    found = gateway.judged(SMALL, phases, 100, processors)
    assert len(found) == len(wrong) and all(part in whole for part, whole in zip(wrong, found, strict=True)), found


@pytest.mark.long
@pytest.mark.cluster
def test_a_small_run_asks_watches_and_hurts_gateways() -> None:
    # What it costs, and how soon it comes, says nothing on a machine that others share; all else holds there too.
    shared = ("of its throughput", "one came after", "bindings paused")
    missed = [*gateway.load(SMALL), *gateway_faults.faults(SMALL)]
    assert [words for words in missed if not any(part in words for part in shared)] == []
