"""Workloads that take more than the scheduling cycle, in small: every pod gets its node, and nobody else pays for it."""

from __future__ import annotations

import json

import pytest

from benchmarks import one_thread
from benchmarks.workloads import WORKLOADS
from rayched.v1.storage_pb2 import Stored

SMALL = {workload.name: workload for workload in WORKLOADS if not workload.is_for_the_engine}


@pytest.mark.row("K9.7", "K9.13", "F13")
def test_every_preemptor_on_full_nodes_is_bound_for_three_lower_pods() -> None:
    found = one_thread.measure(SMALL["PreemptionBasic"].sized(40, 160, 40))
    assert found["wrong"] == []
    assert found["placed"] == 200


def test_a_victim_too_many_is_seen() -> None:
    rig = one_thread.OneThread(SMALL["PreemptionBasic"].sized(3, 12, 2))
    assert rig.prepare()
    assert rig.bind(rig.cluster.pairs(rig.cluster.workload.pods_measured(1)))
    assert rig.cluster.judged(1).wrong == []
    victim = next(pair for pair in rig.cluster.memory.listed().entries if b"low-priority" in pair.key)
    rig.cluster.memory.alter(victim.key, lambda value: value + _condition())
    assert "7 victims on" in rig.cluster.judged(1).wrong[0]


def _condition() -> bytes:
    stored = Stored()
    stored.object.pod.status.conditions.add(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    return stored.SerializeToString()


@pytest.mark.parametrize("name", ["PreemptionAsync", "SchedulingWhileGated", "SchedulingDeletedPodsWithFinalizers"])
def test_pods_that_come_and_go_meanwhile_keep_nobody_from_a_node(name: str) -> None:
    found = one_thread.measure(SMALL[name].sized(20, 60, 30), templates=5)
    assert found["wrong"] == []
    assert found["bound"] == 30


def test_what_is_printed_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert one_thread.main(["PreemptionBasic", "--nodes", "3", "--init", "12", "--measure", "2"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert line["bound"] == 2 and line["pods_per_cpu_second"] > 0
    stages = line["us_per_pod"]
    assert stages.keys() == {"watch", "decide", "writes", "answers", "exchange", "queue", "store", "benchmark"}
    assert 0 < sum(stages.values()) < 1e6 / line["pods_per_cpu_second"]
