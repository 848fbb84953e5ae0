"""What is counted about groups, and what a group is explained by."""

from __future__ import annotations

import pytest
from prometheus_client.metrics_core import GaugeMetricFamily

from rayched.cli.scheduling.explanations import group_lines
from rayched.core.exchange.queue_metrics import queue_metrics
from rayched.core.explaining import GROUP_PREFIX, CannotExplain, answer_of, look_at_group
from rayched.core.groups.group_preemption import run
from rayched.core.scheduler_metrics import scheduler_metrics
from rayched.engine.shards import PoolCounts
from rayched.replica.families import merged
from rayched.v1.services_pb2 import ExplainRequest, ExplainResponse
from tests.core.builders import a_node, a_pod
from tests.core.grouped import a_group, bound_of, put_group, put_members
from tests.core.leading import a_replica, assumed, decide, put_node, put_pod
from tests.core.preempting import a_leader, ending, full_of, on_node, put, stop_ending, until_sent
from tests.core.replica import Replica


def values(replica: Replica) -> dict[tuple[str, ...], float]:
    """Of all samples: by name and values of labels."""
    families = merged(scheduler_metrics(replica.core, PoolCounts()), queue_metrics(replica.queue))
    found: dict[tuple[str, ...], float] = {}
    for family in families:
        for sample in family.samples:
            key = (sample.name, *sample.labels.values())
            assert key not in found or "le" in sample.labels, key
            found[key] = sample.value
    return found


@pytest.mark.row("G10", "G64")
def test_a_group_counts_once_in_the_queue_and_its_members_count_as_pods() -> None:
    leader = a_replica("n1")
    put_group(leader.store, a_group(least=5))
    put_members(leader.store, 3, cpu="3")
    put_pod(leader.store, a_pod("single", cpu="9"))
    leader.settle()
    assert values(leader)["scheduler_pending_pods", "incomplete"] == 3
    put_members(leader.store, 2, first=3, cpu="3")
    leader.settle()
    found = values(leader)
    assert found["scheduler_queued_entities", "unschedulable", "podgroup"] == 1
    assert found["scheduler_queued_entities", "unschedulable", "pod"] == 1
    assert found["scheduler_pending_pods", "unschedulable"] == 6
    assert ("scheduler_pending_pods", "incomplete") not in found
    profile = "default-scheduler"
    assert found["scheduler_podgroup_schedule_attempts_total", "unschedulable", profile] == 1
    assert found["scheduler_podgroup_scheduling_attempt_duration_seconds_count", "unschedulable", profile] == 1
    assert found["scheduler_workload_preemption_attempts_total", "unschedulable"] == 1
    came = "scheduler_queue_incoming_entities_total", "active", "UnschedulablePodAdd"
    assert (found[(*came, "podgroup")], found[(*came, "pod")]) == (1, 1)


@pytest.mark.row("G63")
def test_attempts_are_told_apart_while_pods_end_for_the_group() -> None:
    leader = a_leader({"n1": full_of("a", cpu="3"), "n2": full_of("b", cpu="3")})
    put_group(leader.store, a_group(least=2, priority=10))
    put_members(leader.store, 2, cpu="3", priority=10)
    leader.settle()
    assert ending(leader) == ["a", "b"]
    found, profile = values(leader), "default-scheduler"
    assert found["scheduler_podgroup_schedule_attempts_total", "waiting_on_preemption", profile] >= 1
    assert found["scheduler_workload_preemption_attempts_total", "success"] == 1
    assert found["scheduler_workload_preemption_victims_sum",] == 2
    assert found["scheduler_preemption_pdb_violations_total", "podgroup"] == 0
    assert found["scheduler_preemption_workload_disruptions_sum", "podgroup"] == 2
    assert found["scheduler_preemption_execution_duration_seconds_count", "podgroup", "success"] == 1
    stop_ending(leader)
    leader.settle()
    assert len(bound_of(leader)) == 2
    assert values(leader)["scheduler_podgroup_schedule_attempts_total", "scheduled", profile] == 1
    assert values(leader)["rayched_group_commits_total", "one"] == 1


def test_domains_that_were_tried_are_counted() -> None:
    leader = a_replica()
    for zone in "ab":
        put_node(leader.store, a_node(zone, labels={"zone": zone}, cpu="4" if zone == "a" else "1"))
    put_group(leader.store, a_group(least=1, topology="zone"))
    put_members(leader.store, 1, cpu="3")
    leader.settle()
    found, profile = values(leader), "default-scheduler"
    assert found["scheduler_generated_placements_total", profile] == 2
    assert found["scheduler_placement_evaluations_total", "feasible", profile] == 1
    assert found["scheduler_placement_evaluations_total", "infeasible", profile] == 1
    assert found["scheduler_placement_evaluation_duration_seconds_count", "feasible", profile] == 1
    assert found["scheduler_placement_evaluation_duration_seconds_count", "infeasible", profile] == 1


def test_a_plan_is_counted_with_its_age_until_it_is_over() -> None:
    leader = a_replica(*(f"n{number}" for number in range(40)))
    put_group(leader.store, a_group(least=120))
    put_members(leader.store, 120)
    decide(leader)
    # One transaction is too large for this store.
    for step in (leader.turn, leader.arrive, leader.answer, leader.turn):
        step()
    leader.clock.now += 7.0
    found = values(leader)
    assert (found["rayched_group_plans",], found["rayched_group_plan_age_seconds",]) == (1, 7)
    leader.settle()
    found = values(leader)
    assert (found["rayched_group_plans",], found["rayched_group_plan_age_seconds",]) == (0, 0)
    assert found["rayched_group_commits_total", "recorded"] == 1


def test_room_that_the_store_refuses_to_make_counts_as_an_error() -> None:
    leader = a_leader({"n1": full_of("a", cpu="3")})
    put_group(leader.store, a_group(least=1, priority=10))
    put_members(leader.store, 1, cpu="3", priority=10)
    until_sent(leader)
    # Its victim changes before the batch arrives: it is decided anew.
    put(leader.store, on_node(full_of("a", cpu="3")[0], "n1", started=101))
    leader.settle()
    found = values(leader)
    assert found["scheduler_preemption_execution_duration_seconds_count", "podgroup", "error"] == 1
    assert found["scheduler_preemption_execution_duration_seconds_count", "podgroup", "success"] == 1


def test_parts_of_one_value_from_two_processes_are_added() -> None:
    one, other = (GaugeMetricFamily("pods", "", labels=["queue"]) for _ in range(2))
    one.add_metric(["active"], 2)
    other.add_metric(["active"], 3)
    other.add_metric(["gated"], 4)
    (family,) = merged([one], [other])
    assert {sample.labels["queue"]: sample.value for sample in family.samples} == {"active": 5, "gated": 4}


def explained(replica: Replica, name: str = "train") -> ExplainResponse:
    request = ExplainRequest(name=f"{GROUP_PREFIX}{name}")
    return answer_of(run(look_at_group(replica.core.groups.looks.of, replica.core.cache, request)), request)


@pytest.mark.row("G66")
def test_a_group_is_explained_by_how_many_would_fit_and_what_stands_against_the_next() -> None:
    leader = a_leader({"n1": [], "n2": full_of("low", cpu="3")})
    put_group(leader.store, a_group(least=3, priority=10))
    put_members(leader.store, 3, cpu="3", priority=10)
    leader.settle()
    before, attempts = leader.store.revision, leader.core.scheduler.draws()
    found = explained(leader).group
    assert (found.bound, found.waiting, found.min_count, found.fit) == (0, 3, 3, 1)
    assert found.next == "default/train-1" and "Insufficient cpu" in found.reason
    assert found.no_preemption == "no pods of lower priority make room for the minimum." and not found.victims
    assert leader.core.scheduler.draws() == attempts and assumed(leader) == 0
    leader.settle()
    assert leader.store.revision == before and ending(leader) == []
    lines = list(group_lines("default/train", explained(leader), None))
    assert any("1 of 3 members that wait" in line for line in lines)
    assert any("default/train-1: 0/2 nodes" in line for line in lines)


@pytest.mark.row("G66")
def test_who_would_have_to_end_is_named_and_nobody_does() -> None:
    leader = a_leader({"n1": full_of("low", cpu="3")})
    put_group(leader.store, a_group(least=2, priority=10))
    put_members(leader.store, 1, cpu="3", priority=10)
    leader.settle()
    assert explained(leader).group.held == "waiting for pod group default/train: it needs 2 members that run or wait"
    put_group(leader.store, a_group("other", 1, priority=10, policy="Never"))
    put_members(leader.store, 1, "other", cpu="3", priority=10, policy="Never")
    leader.settle()
    assert "Never" in explained(leader, "other").group.no_preemption
    assert ending(leader) == []


def test_a_group_that_is_not_there_cannot_be_explained() -> None:
    with pytest.raises(CannotExplain, match="PodGroup default/nobody not found"):
        explained(a_replica("n1"), "nobody")
