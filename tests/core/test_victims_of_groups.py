"""The auditor on pods that end for a group: over histories of real cores with a bug planted, and over one made by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rayched.audit.findings import Findings
from rayched.audit.groups_judged import GroupJudge
from rayched.core.groups.group_rooms import VICTIMS_AT_ONCE
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import GroupPlan, LeaderWrite
from rayched.v1.workloads_pb2 import PodGroup
from tests.audit.test_groups_judged import roomy
from tests.core.builders import a_node
from tests.core.grouped import a_group, audited, put_group, put_members
from tests.core.leading import key_of, put_node, put_pod
from tests.core.preempting import a_leader, full_of, until_sent
from tests.core.replica import Replica
from tests.planted_bugs import planted


def a_whole_group_in_the_way() -> Replica:
    leader = a_leader({"n1": [], "n2": [], "n3": full_of("spare", cpu="2", priority=5)})
    leader.store.txn_ops_max = 1_100
    put_group(leader.store, a_group("batch", 2, whole=True))
    put_members(leader.store, 2, "batch", cpu="3")
    leader.settle()
    put_group(leader.store, a_group(least=1, priority=10))
    put_members(leader.store, 1, cpu="3", priority=10)
    leader.settle()
    return leader


def pods_on_nodes_that_no_member_needs() -> Replica:
    leader = a_leader({f"n{number}": full_of(f"low-{number}", cpu="3") for number in range(4)})
    put_group(leader.store, a_group(least=2, priority=10))
    put_members(leader.store, 2, cpu="3", priority=10)
    leader.settle()
    return leader


def others_bind_the_members_between_two_batches() -> Replica:
    n_nodes = VICTIMS_AT_ONCE + 8
    leader = a_leader({f"n{number}": full_of(f"low-{number}", cpu="3") for number in range(n_nodes)})
    leader.store.txn_ops_max = 1_100
    put_group(leader.store, a_group(least=n_nodes, priority=10))
    put_members(leader.store, n_nodes, cpu="3", priority=10)
    until_sent(leader)
    leader.arrive()
    for number in range(n_nodes):
        put_node(leader.store, a_node(f"free-{number}"))
        member = leader.store.pod(key_of(f"train-{number}"))
        assert member is not None
        member.spec.node_name = f"free-{number}"
        put_pod(leader.store, member)
    leader.settle()
    return leader


HISTORIES: dict[str, tuple[Callable[[], Replica], str]] = {
    "a group spares nobody": (pods_on_nodes_that_no_member_needs, "needless_victim"),
    "a unit ends in part": (a_whole_group_in_the_way, "unit_split"),
    "victims end for nobody": (others_bind_the_members_between_two_batches, "useless_victim"),
}


@pytest.mark.row("G74")
@pytest.mark.parametrize("bug", HISTORIES)
def test_the_auditor_notices_bugs_of_victims_and_finds_nothing_without_them(bug: str) -> None:
    history, kind = HISTORIES[bug]
    assert (found := audited(history().store).findings).total == 0, found.first
    with planted(bug):
        found = audited(history().store).findings
    assert getattr(found, kind) > 0, found.first


@pytest.mark.parametrize(
    ("priority", "policy", "plan_at", "found"),
    [
        (10, "", 0, ""),
        (5, "", 0, "wrong_victim"),
        (10, "Never", 0, "wrong_victim"),
        (10, "", 9, "useless_victim"),
        (10, "", 11, ""),
    ],
)
def test_a_victim_has_a_lower_priority_and_goes_for_a_group_that_waits(
    priority: int, policy: str, plan_at: int, found: str
) -> None:
    findings, pods = Findings(), dict[str, Pod]()
    judge = GroupJudge(findings, roomy(), pods)
    group = PodGroup(metadata={"uid": "g"}, spec={"priority": priority, "preemption_policy": policy})
    group.spec.scheduling_policy.gang.min_count = 1
    judge.group_changed("default/train", group, LeaderWrite(), 2)
    member = pods["u1"] = Pod(metadata={"namespace": "default", "name": "m1"}, spec={"priority": priority})
    member.spec.scheduling_group.pod_group_name = "train"
    member.status.nominated_node_name = "n"
    judge.pod_changed("u1", member, 3)
    if plan_at:
        judge.plans.written("default/train", _plan(), _write("group-plan", plan_at - 1), plan_at, ("g", 2))
    victim = Pod(metadata={"namespace": "default", "name": "low"}, spec={"priority": 5, "node_name": "n"})
    victim.status.conditions.add(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    judge.group_changed("default/train", group, _write("group", 10), 12)
    judge.victims.ended(victim, _write("preempt", 10))
    judge.revision_over(12)
    assert [kind for kind, count in findings.counts().items() if count] == ([found] if found else [])


@pytest.mark.parametrize(
    ("nominated", "rules", "whole", "found"),
    [
        ("n", "", False, 0),
        ("other", "", False, 1),
        ("other", "of the victim", False, 0),
        ("other", "of a member", False, 0),
        ("other", "", True, 0),
    ],
)
def test_a_victim_was_in_the_way_of_a_member(nominated: str, rules: str, whole: bool, found: int) -> None:
    findings, pods = Findings(), dict[str, Pod]()
    judge = GroupJudge(findings, roomy(), pods)
    group = PodGroup(metadata={"uid": "g"}, spec={"priority": 10})
    group.spec.scheduling_policy.gang.min_count = 1
    judge.group_changed("default/train", group, LeaderWrite(), 2)
    loser = PodGroup(metadata={"uid": "l"})
    if whole:
        loser.spec.disruption_mode.all.SetInParent()
    judge.group_changed("default/batch", loser, LeaderWrite(), 2)
    member = pods["u1"] = Pod(metadata={"namespace": "default", "name": "m1"}, spec={"priority": 10})
    member.spec.scheduling_group.pod_group_name = "train"
    member.status.nominated_node_name = nominated
    victim = Pod(metadata={"namespace": "default", "name": "low"}, spec={"node_name": "n"})
    victim.spec.scheduling_group.pod_group_name = "batch"
    victim.status.conditions.add(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    if rules == "of the victim":
        victim.spec.affinity.pod_anti_affinity.SetInParent()
    if rules == "of a member":
        member.spec.topology_spread_constraints.add(topology_key="zone")
    judge.pod_changed("u1", member, 3)
    judge.group_changed("default/train", group, _write("group", 10), 12)
    judge.victims.ended(victim, _write("preempt", 10))
    judge.revision_over(12)
    assert findings.needless_victim == findings.total == found, findings.first


def _write(op: str, decided_at: int) -> LeaderWrite:
    return LeaderWrite(
        op=op, epoch=1, attempt="a-group-preempt-1" if op != "group-plan" else "p-1", decided_at_revision=decided_at
    )


def _plan() -> GroupPlan:
    plan = GroupPlan(group_uid="g", group_revision=2, min_count=1)
    plan.members.add(uid="u1", name="m1", node="n")
    return plan
