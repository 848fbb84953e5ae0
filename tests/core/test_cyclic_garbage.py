"""What decides about pods refers to nothing that refers back: memory is free at once, not when garbage is collected.

Long-lived processes collect seldom (`actors/garbage.py`), so a cycle for each decision is a leak for hours.
"""

from __future__ import annotations

import gc
from collections import Counter

import pytest

from benchmarks import workloads
from benchmarks.one_thread import OneThread

NAMES = (
    "SchedulingBasic",
    "SchedulingPodAntiAffinity",
    "SchedulingPreferredPodAffinity",
    "TopologySpreading",
    "PreferredTopologySpreading",
    "SchedulingNodeAffinity",
    "Unschedulable",
)


@pytest.mark.parametrize("templates", [1, 20])
@pytest.mark.parametrize("name", NAMES)
def test_decisions_leave_no_cycles_behind(name: str, templates: int) -> None:
    workload = workloads.chosen(name)[0].sized(30, 30, 100)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        leader = OneThread(workload)
        assert leader.prepare()
        gc.collect()
        assert leader.bind(leader.cluster.pairs(workload.pods_measured(templates)))
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = Counter(type(one).__qualname__ for one in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        if was_enabled:
            gc.enable()
    assert not found
