"""Pod groups in plans: whole or not at all, as the leader over the same objects then does it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from rayched.api import kinds
from rayched.core.groups.planning import planner_of
from rayched.framework.cycle_state import CycleState
from rayched.framework.status import SUCCESS, Status, unschedulable
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import Stored
from rayched.v1.workloads_pb2 import PodGroup
from rayched.whatif.cluster import Basis, Cluster
from rayched.whatif.plan import GroupOutlook, WhatIfPlan, WhatIfPlanner
from tests.core.builders import a_node, a_pod
from tests.core.grouped import a_group, a_member, put_group, scheduled
from tests.core.leading import a_replica, put_node, put_pod
from tests.core.preempting import ending, full_of, on_node, stop_ending
from tests.core.replica import KEYS, Replica, default_profiles

ZONE = "topology.kubernetes.io/zone"


def copy_of(leader: Replica, *more: PodGroup) -> Cluster:
    """What `rayched plan` has of the leader's cluster, with groups of a manifest."""
    planned = [kind for kind in kinds.KINDS if kind is not kinds.EVENT]
    entries = [entry for entry in leader.store.now.values() if any(entry.key.startswith(KEYS.prefix(kind)) for kind in planned)]
    objects = [kinds.unwrap(Stored.FromString(entry.value).object) for entry in entries]
    snapshot = leader.core.snapshot
    basis = Basis(leader.core.scheduler.draws(), tuple(snapshot.names[: snapshot.n_rows]))
    return Cluster([*objects, *more], leader.profiles, basis)


def members(count: int, group: str = "train", **options: object) -> list[Pod]:
    return [a_member(f"{group}-{number}", group, **options) for number in range(count)]


def planned(leader: Replica, groups: list[PodGroup], pods: list[Pod]) -> WhatIfPlan:
    """The plan, which the leader does not notice."""
    draws, revision = leader.core.scheduler.draws(), leader.store.revision
    found = planner_of(copy_of(leader, *groups)).plan(pods)
    assert leader.core.scheduler.draws() == draws and leader.store.revision == revision
    return found


def nodes_in(plan: WhatIfPlan) -> dict[str, str]:
    return {one.pod.removeprefix("default/"): one.node_name for one in plan.placements}


def submitted(leader: Replica, groups: list[PodGroup], pods: list[Pod]) -> None:
    for group in groups:
        put_group(leader.store, group)
    for pod in pods:
        put_pod(leader.store, pod)
    leader.settle()


@pytest.mark.row("GT8")
@pytest.mark.parametrize("first", range(0, 40, 10))
def test_a_plan_places_groups_and_pods_as_the_leader_then_does(first: int) -> None:
    whole = held = 0
    for seed in range(first, first + 10):
        random = Random(seed)
        leader = a_replica(*(f"n{number}" for number in range(8)))
        nodes = sorted(leader.core.snapshot.node_names())
        for number in range(4):
            put_pod(leader.store, on_node(a_pod(f"old-{number}", priority=1_000), random.choice(nodes)))
        leader.settle()
        groups: list[PodGroup] = []
        pods: list[Pod] = []
        for number, priority in enumerate(random.sample(range(100), 8)):
            cpu = random.choice(("1", "2", "3"))
            if random.random() < 0.6:
                count = random.randint(2, 6)
                groups.append(a_group(f"g{number}", count, priority=priority))
                pods += members(count, f"g{number}", cpu=cpu, priority=priority)
            else:
                pods.append(a_pod(f"single-{number}", cpu=cpu, priority=priority))
        plan = planned(leader, groups, pods)
        submitted(leader, groups, pods)
        new = {name: node for name, node in leader.bound().items() if not name.startswith("old-")}
        assert nodes_in(plan) == new, seed
        assert {one.group for one in plan.groups} == {f"default/{group.metadata.name}" for group in groups}
        for one in plan.groups:
            assert one.placed == (one.members if one.is_whole else 0), seed
            assert (scheduled(leader.store, one.group.removeprefix("default/"))[0] == "True") is one.is_whole, seed
            whole, held = whole + one.is_whole, held + (not one.is_whole)
    assert whole and held


@pytest.mark.row("GT8")
def test_of_two_groups_that_each_need_most_of_the_room_one_is_whole_and_of_the_other_nobody_is_placed() -> None:
    leader = a_replica("n1", "n2", "n3", "n4", "n5")
    groups = [a_group(name, 3) for name in ("one", "other")]
    plan = planned(leader, groups, [*members(3, "one", cpu="3"), *members(3, "other", cpu="3")])
    assert sorted(nodes_in(plan)) == ["one-0", "one-1", "one-2"]
    first, second = plan.groups
    assert first == GroupOutlook("default/one", 3, 3, 3, is_whole=True, reason="")
    assert (second.group, second.placed, second.is_whole) == ("default/other", 0, False)
    none = "0/5 nodes are available: 5 Insufficient cpu."
    nobody = "preemption: no pods of lower priority may go."
    assert second.reason == f"0 bound, 2 placed, 3 needed, 3 members: default/other-2: {none} {nobody}"
    assert {one.pod: one.reason for one in plan.unplaced} == {f"default/other-{number}": second.reason for number in range(3)}


def test_members_beyond_the_minimum_are_placed_as_far_as_they_fit_and_the_others_say_why_not() -> None:
    plan = planned(a_replica("n1", "n2"), [a_group(least=1)], members(3, cpu="3"))
    (group,) = plan.groups
    assert (group.placed, group.members, group.is_whole) == (2, 3, True)
    (left,) = plan.unplaced
    assert left.pod == "default/train-2" and "2 Insufficient cpu" in left.reason == group.reason


def test_who_has_to_leave_for_a_group_is_who_the_leader_then_ends() -> None:
    leader = a_replica("n1", "n2", "n3")
    for name, node, priority in (("low", "n1", 1), ("high", "n1", 5), ("other", "n2", 3)):
        put_pod(leader.store, on_node(full_of(name, cpu="2", priority=priority)[0], node))
    leader.settle()
    groups, pods = [a_group(least=4, priority=10)], members(4, cpu="2", priority=10)
    plan = planned(leader, groups, pods)
    (preemption,) = plan.preemptions
    assert (preemption.pod, preemption.node_name) == ("default/podgroup:train", "")
    assert sorted(nodes_in(plan)) == [f"train-{number}" for number in range(4)] and plan.groups[0].is_whole
    submitted(leader, groups, pods)
    assert [name.removeprefix("default/") for name in sorted(preemption.victims)] == ending(leader) == ["low"]
    stop_ending(leader)
    leader.settle()
    assert nodes_in(plan) == {name: node for name, node in leader.bound().items() if name.startswith("train-")}


def test_what_would_not_help_ends_nobody_and_pods_that_end_already_are_waited_for() -> None:
    leader = a_replica("n1")
    leaving = on_node(full_of("low", cpu="3", priority=1)[0], "n1")
    put_pod(leader.store, leaving)
    leader.settle()
    plan = planned(leader, [a_group(least=2, priority=10)], members(2, cpu="3", priority=10))
    assert plan.is_empty and plan.groups[0].reason.endswith("no pods of lower priority make room for the minimum.")
    leaving.metadata.deletion_timestamp.seconds = 1
    put_pod(leader.store, leaving)
    leader.settle()
    plan = planned(leader, [a_group(least=1, priority=10)], members(1, cpu="3", priority=10))
    assert plan.is_empty and plan.groups[0].reason == "it fits once pods have gone that are ending already"


def test_a_group_that_may_push_nobody_aside_does_not() -> None:
    leader = a_replica("n1")
    put_pod(leader.store, on_node(full_of("low", cpu="3")[0], "n1"))
    leader.settle()
    group = a_group(least=1, priority=10, policy="Never")
    plan = planned(leader, [group], members(1, cpu="3", priority=10, policy="Never"))
    assert plan.is_empty and "preemptionPolicy=Never" in plan.groups[0].reason


def test_what_holds_a_group_back_holds_it_in_a_plan() -> None:
    leader = a_replica("n1")
    groups = [a_group("few", 3), a_group("gated", 2), a_group("mixed", 1, priority=5), a_group("foreign", 1)]
    pods = [
        *members(1, "missing"),
        *members(2, "few"),
        *members(1, "gated"),
        a_member("gated-1", "gated", gates=("example.com/wait",)),
        *members(1, "mixed"),
        *members(1, "foreign", scheduler="other"),
    ]
    plan = planned(leader, groups, pods)
    assert plan.is_empty
    reasons = {one.pod.removeprefix("default/"): one.reason for one in plan.unplaced}
    assert reasons == {
        "missing-0": "waiting for pod group default/missing: it does not exist",
        "few-0": (few := "waiting for pod group default/few: it needs 3 members that run or wait"),
        "few-1": few,
        "gated-0": (gated := "waiting for pod group default/gated: a member has scheduling gates"),
        "gated-1": gated,
        "mixed-0": "a pod of group default/mixed has priority 0, its group 5",
        "foreign-0": 'waits for the scheduler "other", which is not served here; served: default-scheduler',
    }
    assert not any(one.is_whole for one in plan.groups)


def test_members_that_run_or_have_succeeded_count_and_failed_ones_do_not() -> None:
    leader = a_replica("n1", "n2")
    put_group(leader.store, a_group(least=3))
    running, done, failed = members(3, cpu="2")
    for pod, phase in ((running, "Running"), (done, "Succeeded"), (failed, "Failed")):
        on_node(pod, "n1").status.phase = phase
        put_pod(leader.store, pod)
    leader.settle()
    plan = planned(leader, [], [a_member("late", cpu="2")])
    assert list(nodes_in(plan)) == ["late"] and plan.groups[0].is_whole
    assert planned(leader, [a_group(least=4)], [a_member("late", cpu="2")]).is_empty


def test_a_group_with_a_topology_goes_to_one_domain_of_it() -> None:
    leader = a_replica()
    for zone, count in (("a", 2), ("b", 3)):
        for number in range(count):
            put_node(leader.store, a_node(f"{zone}{number}", labels={ZONE: zone}))
    leader.settle()
    plan = planned(leader, [a_group(least=3, topology=ZONE)], members(3, cpu="3"))
    assert {node[0] for node in nodes_in(plan).values()} == {"b"}
    plan = planned(leader, [a_group(least=4, topology=ZONE)], members(4, cpu="3"))
    assert plan.is_empty and f"of {ZONE}" in plan.groups[0].reason


def test_members_of_a_drained_node_move_where_the_group_may_be() -> None:
    leader = a_replica("n1", "n2", "n3")
    put_group(leader.store, a_group(least=2))
    for number, pod in enumerate(members(2, cpu="3"), 1):
        put_pod(leader.store, on_node(pod, f"n{number}"))
    leader.settle()
    cluster = copy_of(leader)
    cluster.cordon("n1")
    planner = planner_of(cluster)
    planner.drain("n1")
    plan = planner.plan(())
    assert nodes_in(plan) == {"train-0": "n3"} and plan.groups[0].is_whole


class RefusesOne:
    """PreBind of one pod fails."""

    name = "RefusesOne"

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return unschedulable("it has no volume") if pod.metadata.name == "train-1" else SUCCESS


def test_where_one_member_is_refused_before_it_is_bound_none_is_placed() -> None:
    profiles = {name: replace(one, pre_bind=(RefusesOne(),)) for name, one in default_profiles().items()}
    leader = a_replica("n1", "n2", profiles=profiles)
    planner: WhatIfPlanner = planner_of(copy_of(leader, a_group(least=2)))
    plan = planner.plan(members(2))
    assert plan.is_empty and "it has no volume" in plan.groups[0].reason
    assert planner.cluster.scheduler.occupancy.n_assumed == 0
