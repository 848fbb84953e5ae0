"""What the replica's metrics tell of the election."""

from __future__ import annotations

import pytest
from prometheus_client import Metric

from leader.config import FAST
from leader.revocation import Evidence
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


def test_a_renewal_without_an_answer_counts_and_the_buckets_go_beyond_every_deadline_of_the_default_profile() -> None:
    counts = ElectionCounts("rayched")
    counts.master_status("rayched", True)
    for _ in range(98):
        counts.renewed("rayched", 0.01)
    counts.renewed("rayched", 0.9)
    counts.not_renewed("rayched", FAST.lease_duration)
    buckets = {
        float(sample.labels["le"]): sample.value
        for family in counts.families(None, None)
        for sample in family.samples
        if sample.name == "rayched_leader_renew_duration_seconds_bucket"
    }
    above = [bound for bound in buckets if bound >= FAST.lease_duration]
    assert buckets[0.512] == 98 and buckets[1.024] == 99 and buckets[above[0]] == 100
    assert above[0] < float("inf"), "else a percentile could not tell of them"


def test_suspicions_and_revocations_are_counted_by_evidence_from_the_start() -> None:
    counts = ElectionCounts("rayched")
    counts.suspects(Evidence.SILENT)
    counts.revoked(Evidence.DEAD)
    counts.revoked(Evidence.DEAD)
    told = {
        (sample.name, sample.labels["evidence"]): sample.value
        for family in counts.families(None, None)
        for sample in family.samples
        if "evidence" in sample.labels and sample.name.endswith("_total")
    }
    suspicions, revocations = "rayched_leader_suspicions_total", "rayched_leader_revocations_total"
    assert told == {
        (suspicions, "refused"): 0,
        (suspicions, "silent"): 1,
        (revocations, "dead"): 2,
        (revocations, "refused"): 0,
        (revocations, "silent"): 0,
    }
