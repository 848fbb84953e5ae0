"""What the replica's metrics tell of the election."""

from __future__ import annotations

import pytest
from prometheus_client import Metric

from rayched.replica.election_metrics import ElectionCounts
from rayched.server.ports import Leader


def values(families: list[Metric]) -> dict[str, float]:
    return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}


@pytest.mark.row("L30")
def test_transitions_are_those_in_the_store_so_that_all_replicas_tell_the_same() -> None:
    """More than three in ten minutes are worth an alert."""
    counts = ElectionCounts("rayched")
    assert "rayched_leader_transitions_total" not in values(counts.families(None, None)), "not read yet is not zero"
    told = values(counts.families(Leader("a", "127.0.0.1:7420", epoch=12, transitions=3), 3))
    assert told["rayched_leader_transitions_total"] == 3 and told["rayched_leader_epoch"] == 12
    assert values(counts.families(None, 3))["rayched_leader_epoch"] == 0
