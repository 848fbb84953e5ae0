"""Room that is made for pod groups, over a model store.

Each test ends with an auditor's reading of the history: it found nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest

from rayched.core.groups.group_rooms import MARGIN_SECONDS, VICTIMS_AT_ONCE
from rayched.core.writes.window import TRANSACTIONS_MAX
from rayched.v1.core_pb2 import Pod
from tests.core.builders import a_node, a_pod
from tests.core.grouped import (
    a_group,
    a_member,
    audited,
    bound_of,
    put_group,
    put_members,
    revisions_of_bindings,
    scheduled,
    stored_group,
)
from tests.core.leading import a_replica, decide, key_of, put_node, put_pod, reason_of
from tests.core.model_store import ModelStore
from tests.core.preempting import a_leader, budget_status, ending, full_of, hard_budget, on_node, pod_of, put, stop_ending
from tests.core.replica import Replica
from tests.planted_bugs import planted

ZONE = "topology.kubernetes.io/zone"


@pytest.fixture
def leaders() -> Iterator[list[Replica]]:
    """Whoever leads in the test."""
    made: list[Replica] = []
    yield made
    for replica in made:
        nothing = dict.fromkeys(audited(ModelStore()).findings.counts(), 0)
        assert audited(replica.store).findings.counts() == nothing


def leading(leaders: list[Replica], bound: Mapping[str, Sequence[Pod]], *, cpu: str = "4", events: bool = False) -> Replica:
    replica = a_leader(bound, cpu=cpu, events=events)
    replica.store.txn_ops_max = 1_100
    leaders.append(replica)
    return replica


def put_gang(replica: Replica, count: int, *, least: int = 0, name: str = "train", cpu: str = "3", **options: object) -> None:
    put_group(replica.store, a_group(name, least or count, priority=10, **options))  # type: ignore[arg-type]
    put_members(replica.store, count, name, cpu=cpu, priority=10)
    replica.settle()


def nominated(replica: Replica, count: int = 3, name: str = "train") -> list[str]:
    """Nodes of the members that have a nomination, by its member."""
    return [pod_of(replica, f"{name}-{number}").status.nominated_node_name for number in range(count)]


def later(replica: Replica, seconds: float) -> None:
    replica.clock.now += seconds
    replica.settle()


@pytest.mark.row("G50", "G51", "G62")
def test_a_group_takes_the_room_of_lower_pods_once_these_have_gone(leaders: list[Replica]) -> None:
    leader = leading(leaders, {"n1": full_of("a", cpu="3"), "n2": full_of("b", cpu="3"), "n3": []})
    put_gang(leader, 3)
    assert ending(leader) == ["a", "b"]
    assert bound_of(leader) == []
    assert sorted(nominated(leader)) == ["n1", "n2", "n3"]
    assert "2 pods of lower priority" in scheduled(leader.store)[2]
    stop_ending(leader)
    leader.settle()
    assert len(bound_of(leader)) == 3
    assert scheduled(leader.store)[:2] == ("True", "Scheduled")
    assert nominated(leader) == ["", "", ""]


@pytest.mark.row("G51")
def test_free_room_is_used_first_and_nobody_goes_for_a_group_that_would_not_fit_even_so(leaders: list[Replica]) -> None:
    leader = leading(leaders, {"n1": full_of("a", cpu="3"), "n2": [], "n3": []})
    put_gang(leader, 2, name="small")
    assert len(bound_of(leader, "small")) == 2 and ending(leader) == []
    put_gang(leader, 2, name="large")
    assert ending(leader) == []
    none = "no pods of lower priority make room for the minimum."
    assert scheduled(leader.store, "large")[2].endswith(f"preemption: {none}")


@pytest.mark.row("G50")
@pytest.mark.parametrize(("priority", "policy"), [(10, "PreemptLowerPriority"), (0, "Never")], ids=["equal", "never"])
def test_equal_pods_stay_and_a_group_may_be_told_to_push_nobody_aside(leaders: list[Replica], priority: int, policy: str) -> None:
    leader = leading(leaders, {"n1": full_of("a", cpu="3", priority=priority)})
    put_group(leader.store, a_group(least=1, priority=10, policy=policy))
    member = a_member("train-0", cpu="3", priority=10)
    member.spec.preemption_policy = policy
    put_pod(leader.store, member)
    leader.settle()
    assert ending(leader) == [] and bound_of(leader) == []
    assert ("preemptionPolicy=Never" in scheduled(leader.store)[2]) is (policy == "Never")


@pytest.mark.row("G52")
def test_who_can_be_spared_is_spared_the_more_important_one_first(leaders: list[Replica]) -> None:
    pods = [*full_of("low", cpu="2", priority=1), *full_of("high", cpu="2", priority=5)]
    leader = leading(leaders, {"n1": pods, "n2": full_of("other", cpu="3", priority=3)})
    put_gang(leader, 3, cpu="2")
    # The second node gives two places, the first one as many as have to be: the lower pod's.
    assert ending(leader) == ["low", "other"]


@pytest.mark.row("G54")
def test_a_group_that_ends_as_a_whole_goes_with_all_of_its_members_and_says_why(leaders: list[Replica]) -> None:
    leader = leading(leaders, {"n1": [], "n2": [], "n3": []})
    put_group(leader.store, a_group("batch", 3, whole=True))
    put_members(leader.store, 3, "batch", cpu="3")
    leader.settle()
    assert len(bound_of(leader, "batch")) == 3
    put_gang(leader, 1)
    print("DBG", leader.bound(), ending(leader))
    assert ending(leader) == ["batch-0", "batch-1", "batch-2"]
    said = {one.type: (one.status, one.reason) for one in stored_group(leader.store, "batch").status.conditions}
    assert said["DisruptionTarget"] == ("True", "PreemptionByScheduler")
    assert said["PodGroupInitiallyScheduled"] == ("True", "Scheduled")
    stop_ending(leader)
    leader.settle()
    assert len(bound_of(leader)) == 1


@pytest.mark.row("G54")
def test_a_member_that_comes_to_a_group_while_it_is_about_to_end_as_a_whole_ends_with_it(leaders: list[Replica]) -> None:
    leader = leading(leaders, {"n1": [], "n2": []})
    put_group(leader.store, a_group("batch", 1, whole=True))
    put_members(leader.store, 2, "batch", cpu="3")
    leader.settle()
    # The store takes its time, so what is decided next is not written at once.
    for number in range(TRANSACTIONS_MAX + 1):
        put_pod(leader.store, a_pod(f"large-{number}", cpu="99"))
        decide(leader)
    assert not leader.core.window.room
    put_group(leader.store, a_group(least=1, priority=10))
    put_members(leader.store, 1, cpu="3", priority=10)
    decide(leader)
    put_members(leader.store, 1, "batch", first=2, cpu="500m")
    decide(leader)
    leader.settle()
    assert ending(leader) == ["batch-0", "batch-1", "batch-2"]


@pytest.mark.row("G54", "G58")
def test_a_single_pod_takes_one_member_of_a_group_of_single_mode_and_none_of_a_whole_one(leaders: list[Replica]) -> None:
    leader = leading(leaders, {"n1": [], "n2": []})
    for name, node, whole in (("whole", "n1", True), ("loose", "n2", False)):
        put_group(leader.store, a_group(name, 2, whole=whole))
        put_members(leader.store, 2, name, cpu="2", selector={"kubernetes.io/hostname": node})
    leader.settle()
    put_pod(leader.store, a_pod("single", cpu="2", priority=10, selector={"kubernetes.io/hostname": "n1"}))
    leader.settle()
    assert ending(leader) == []
    put_pod(leader.store, a_pod("other", cpu="2", priority=10))
    leader.settle()
    assert len(ending(leader)) == 1 and ending(leader)[0].startswith("loose-")


@pytest.mark.row("G55")
def test_a_pod_whose_budget_is_spent_goes_last_and_one_with_a_hard_limit_never(leaders: list[Replica]) -> None:
    guarded, plain = full_of("guarded", cpu="3", priority=-5), full_of("plain", cpu="3", priority=5)
    guarded[0].metadata.labels["app"] = "db"
    leader = leading(leaders, {"n1": guarded, "n2": plain})
    key = hard_budget(leader.store, 0)
    leader.settle()
    put_gang(leader, 1)
    assert ending(leader) == ["plain"]
    stop_ending(leader)
    leader.settle()
    assert len(bound_of(leader)) == 1
    put_gang(leader, 1, name="next")
    assert ending(leader) == []
    assert "hard disruption budgets" in scheduled(leader.store, "next")[2]
    hard_budget(leader.store, 1)
    later(leader, 301.0)
    assert ending(leader) == ["guarded"]
    assert budget_status(leader.store, key).disruptions_allowed == 0
    assert list(budget_status(leader.store, key).disrupted_pods) == ["guarded"]


@pytest.mark.row("GT4")
def test_a_gang_is_cut_below_its_minimum_only_where_nobody_else_helps(leaders: list[Replica]) -> None:
    leader = leading(leaders, {"n1": [], "n2": []})
    put_group(leader.store, a_group("gang", 1))
    put_members(leader.store, 1, "gang", cpu="3", selector={"kubernetes.io/hostname": "n1"})
    put(leader.store, on_node(full_of("plain", cpu="3", priority=5)[0], "n2"))
    leader.settle()
    assert len(bound_of(leader, "gang")) == 1
    put_gang(leader, 1)
    assert ending(leader) == ["plain"]
    put_gang(leader, 1, name="next")
    assert ending(leader) == ["gang-0", "plain"]


@pytest.mark.row("G53")
def test_whoever_is_not_needed_any_more_when_its_turn_comes_is_spared(leaders: list[Replica]) -> None:
    n_nodes = VICTIMS_AT_ONCE + 8
    leader = leading(leaders, {f"n{number}": full_of(f"low-{number}", cpu="3") for number in range(n_nodes)})
    put_group(leader.store, a_group(least=n_nodes, priority=10))
    put_members(leader.store, n_nodes, cpu="3", priority=10)
    while not any(send.op == "preempt" for send in leader.to_store):
        leader.watch()
        leader.exchange()
        leader.exchanged()
        leader.core.decide()
        leader.turn()
    # Free room comes before the second batch is sent.
    for number in range(8):
        put_node(leader.store, a_node(f"free-{number}"))
    leader.settle()
    assert len(ending(leader)) == VICTIMS_AT_ONCE
    stop_ending(leader)
    leader.settle()
    assert len(bound_of(leader)) == n_nodes


@pytest.mark.row("G53")
def test_where_the_group_would_not_fit_any_more_those_not_yet_ended_are_spared(leaders: list[Replica]) -> None:
    n_nodes = VICTIMS_AT_ONCE + 8
    leader = leading(leaders, {f"n{number}": full_of(f"low-{number}", cpu="3") for number in range(n_nodes)})
    put_group(leader.store, a_group(least=n_nodes, priority=10))
    put_members(leader.store, n_nodes, cpu="3", priority=10)
    while not any(send.op == "preempt" for send in leader.to_store):
        leader.watch()
        leader.exchange()
        leader.exchanged()
        leader.core.decide()
        leader.turn()
    put_node(leader.store, a_node("n3", unschedulable=True))
    leader.settle()
    assert len(ending(leader)) == VICTIMS_AT_ONCE


@pytest.mark.row("G56", "G63")
def test_while_victims_end_nobody_else_goes_and_after_their_time_the_group_counts_on_them_no_more(
    leaders: list[Replica],
) -> None:
    leader = leading(leaders, {"n1": full_of("a", cpu="3", priority=1), "n2": full_of("b", cpu="3", priority=5)})
    put_gang(leader, 1)
    assert ending(leader) == ["a"]
    put_node(leader.store, a_node("n3", cpu="1"))
    later(leader, 20.0)
    later(leader, 20.0)
    assert ending(leader) == ["a"]
    assert "terminating pod" in scheduled(leader.store)[2] or "lower priority" in scheduled(leader.store)[2]
    later(leader, 30 + MARGIN_SECONDS)
    later(leader, 60.0)
    assert ending(leader) == ["a", "b"]


@pytest.mark.row("G62")
def test_a_group_that_counts_on_its_victims_no_more_is_nominated_nowhere(leaders: list[Replica]) -> None:
    leader = leading(leaders, {"n1": full_of("a", cpu="3")})
    put_gang(leader, 1)
    assert ending(leader) == ["a"] and nominated(leader, 1) == ["n1"]
    later(leader, 31 + MARGIN_SECONDS)
    later(leader, 5.0)
    assert nominated(leader, 1) == [""] and bound_of(leader) == []


@pytest.mark.row("G62")
def test_a_group_whose_node_is_no_good_once_its_victims_have_gone_is_nominated_nowhere(leaders: list[Replica]) -> None:
    leader = leading(leaders, {"n1": full_of("a", cpu="3")})
    put_gang(leader, 1)
    assert nominated(leader, 1) == ["n1"]
    put_node(leader.store, a_node("n1", unschedulable=True))
    stop_ending(leader)
    leader.settle()
    later(leader, 5.0)
    assert nominated(leader, 1) == [""] and bound_of(leader) == []


@pytest.mark.row("G57")
def test_a_group_that_waits_for_its_victims_goes_elsewhere_where_that_is_possible_sooner(leaders: list[Replica]) -> None:
    leader = leading(leaders, {"n1": full_of("a", cpu="3")})
    put_gang(leader, 1)
    assert ending(leader) == ["a"] and nominated(leader, 1) == ["n1"]
    put_node(leader.store, a_node("n2"))
    leader.settle()
    later(leader, 5.0)
    assert leader.bound()["train-0"] == "n2"


@pytest.mark.row("G57")
def test_nominated_members_leave_the_room_to_higher_pods_alone(leaders: list[Replica]) -> None:
    leader = leading(leaders, {"n1": full_of("a", cpu="3")})
    put_gang(leader, 1)
    put_pod(leader.store, a_pod("low", cpu="3", priority=5))
    stop_ending(leader)
    leader.settle()
    assert "low" not in leader.bound()
    assert len(bound_of(leader)) == 1


@pytest.mark.row("G25", "G26")
def test_a_later_attempt_of_a_gang_makes_room_for_the_rest_and_a_first_one_does_not(leaders: list[Replica]) -> None:
    leader = leading(leaders, {"n1": full_of("low", cpu="3"), "n2": []})
    put_gang(leader, 2, least=1)
    assert len(bound_of(leader)) == 1
    assert ending(leader) == ["low"]
    asked = pod_of(leader, "low").metadata
    assert asked.HasField("deletion_timestamp")
    bound_at = revisions_of_bindings(leader.store)
    last = leader.store.now[key_of("low")].mod_revision
    assert min(bound_at.values()) < last
    stop_ending(leader)
    leader.settle()
    assert len(bound_of(leader)) == 2


@pytest.mark.row("G26")
def test_a_basic_group_binds_what_fits_and_makes_no_room_for_the_rest_while_some_fit(leaders: list[Replica]) -> None:
    leader = leading(leaders, {"n1": [], "n2": []})
    put_group(leader.store, a_group(least=None, priority=10))
    put_members(leader.store, 1, cpu="3", priority=10)
    leader.settle()
    put_pod(leader.store, a_pod("low", cpu="3", priority=1))
    leader.settle()
    put_node(leader.store, a_node("n3"))
    put_members(leader.store, 2, first=1, cpu="3", priority=10)
    bound = len(bound_of(leader))
    leader.settle()
    assert bound == 1 and len(bound_of(leader)) == 2
    assert scheduled(leader.store)[0] == "True"


@pytest.mark.row("GT5")
def test_each_zone_is_asked_and_the_one_that_costs_least_is_cleared(leaders: list[Replica]) -> None:
    leader = a_replica()
    leaders.append(leader)
    for zone, priority in (("a", 7), ("b", 3), ("c", 7)):
        for number in range(2):
            put_node(leader.store, a_node(f"{zone}-{number}", labels={ZONE: zone}))
            put(leader.store, on_node(a_pod(f"low-{zone}-{number}", cpu="3", priority=priority), f"{zone}-{number}"))
    leader.settle()
    put_gang(leader, 2, topology=ZONE)
    assert ending(leader) == ["low-b-0", "low-b-1"]
    stop_ending(leader)
    leader.settle()
    assert {node[0] for node in leader.bound().values() if node} >= {"b"} and len(bound_of(leader)) == 2


def test_a_new_leader_waits_for_the_victims_of_the_one_before(leaders: list[Replica]) -> None:
    leader = leading(leaders, {"n1": full_of("a", cpu="3", priority=1), "n2": full_of("b", cpu="3", priority=5)})
    put_gang(leader, 1)
    assert ending(leader) == ["a"]
    leader.belief = None
    leader.settle()
    leader.lead()
    leader.settle()
    later(leader, 10.0)
    assert ending(leader) == ["a"]
    stop_ending(leader)
    leader.settle()
    assert len(bound_of(leader)) == 1


def test_victims_are_told_of_by_events_that_name_the_group(leaders: list[Replica]) -> None:
    leader = leading(leaders, {"n1": full_of("a", cpu="3")}, events=True)
    put_gang(leader, 1)
    later(leader, 5.0)
    told = [entry.value for key, entry in leader.store.now.items() if b"Preempted by pod group default/train" in entry.value]
    assert told


def test_the_reason_of_members_is_that_of_their_group(leaders: list[Replica]) -> None:
    leader = leading(leaders, {"n1": full_of("a", cpu="3")})
    put_gang(leader, 1)
    later(leader, 10.0)
    assert reason_of(leader, "train-0") == ("Unschedulable", scheduled(leader.store)[2])


@pytest.mark.row("G51")
def test_a_group_is_tried_once_its_victims_have_gone_whatever_member_failed_first(leaders: list[Replica]) -> None:
    """That one was in nobody's way, so that no hint wakes the group."""
    leader = leading(leaders, {"n1": full_of("a", cpu="3"), "n2": []})
    put_group(leader.store, a_group(least=2, priority=10))
    put_members(leader.store, 2, cpu="3", priority=10)
    put_pod(leader.store, a_member("train-2", cpu="4", priority=10, selector={ZONE: "nowhere"}))
    leader.settle()
    assert ending(leader) == ["a"]
    later(leader, 6.0)
    assert bound_of(leader) == [], "while its victims end the group waits"
    stop_ending(leader)
    leader.settle()
    later(leader, 6.0)
    assert bound_of(leader) == ["train-0", "train-1"]


@pytest.mark.row("GT9")
def test_nobody_ends_for_a_member_that_has_gone_since_it_was_decided(leaders: list[Replica]) -> None:
    leader = leading(leaders, {"n1": full_of("a", cpu="3"), "n2": full_of("b", cpu="3")})
    put_group(leader.store, a_group(least=1, priority=10))
    put_members(leader.store, 2, cpu="3", priority=10)
    decide(leader)
    leader.store.delete(key_of("train-1"))
    leader.watch()
    leader.settle()
    assert len(ending(leader)) == 1
    stop_ending(leader)
    leader.settle()
    assert bound_of(leader) == ["train-0"]


@pytest.mark.parametrize("bug", [None, "a group spares nobody", "a unit ends in part"])
def test_planted_bugs_of_victims_are_noticed(bug: str | None) -> None:
    leader = a_leader({"n1": [], "n2": [], "n3": full_of("spare", cpu="2", priority=5)})
    put_group(leader.store, a_group("batch", 2, whole=True))
    put_members(leader.store, 2, "batch", cpu="3")
    leader.settle()
    with planted(bug):
        put_gang(leader, 1)
    assert (ending(leader) == ["batch-0", "batch-1"]) is (bug is None)
