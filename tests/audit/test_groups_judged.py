"""The auditor's judgement of gangs, on histories made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rayched.audit.capacity import Capacity
from rayched.audit.findings import Findings
from rayched.audit.groups_judged import GroupJudge
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.storage_pb2 import GroupPlan, LeaderWrite
from rayched.v1.workloads_pb2 import PodGroup

BINDING = LeaderWrite(op="bind", epoch=1, attempt="a-1", decided_at_revision=10)


def a_gang(least: int) -> PodGroup:
    group = PodGroup(metadata={"uid": "g"})
    group.spec.scheduling_policy.gang.min_count = least
    return group


def a_member(name: str, *, node: str = "n", phase: str = "Running", group: str = "train") -> Pod:
    pod = Pod(metadata={"namespace": "default", "name": name}, spec={"node_name": node}, status={"phase": phase})
    pod.spec.scheduling_group.pod_group_name = group
    return pod


def judged(least: int) -> tuple[GroupJudge, Findings]:
    findings = Findings()
    judge = GroupJudge(findings, Capacity(), {})
    judge.group_changed("default/train", a_gang(least), LeaderWrite(), 2)
    return judge, findings


@pytest.mark.parametrize(("bound", "partial"), [(1, 1), (2, 1), (3, 0), (4, 0)])
def test_a_gang_that_is_bound_below_its_minimum_is_found(bound: int, partial: int) -> None:
    judge, findings = judged(3)
    for number in range(bound):
        judge.pod_changed(f"u{number}", a_member(f"m{number}"), 12, BINDING)
    judge.revision_over(12)
    assert findings.gang_partial == partial


@pytest.mark.parametrize(("phase", "partial"), [("Succeeded", 0), ("Failed", 1)])
def test_members_that_succeeded_count_and_failed_ones_do_not(phase: str, partial: int) -> None:
    judge, findings = judged(2)
    judge.pod_changed("u1", a_member("m1", phase=phase), 5)
    judge.revision_over(5)
    judge.pod_changed("u2", a_member("m2"), 12, BINDING)
    judge.revision_over(12)
    assert findings.gang_partial == partial


@pytest.mark.parametrize(("ended_at", "partial"), [(9, 1), (11, 0)])
def test_a_member_that_ended_between_decision_and_commit_is_no_fault(ended_at: int, partial: int) -> None:
    judge, findings = judged(2)
    judge.pod_changed("u1", a_member("m1"), 5)
    judge.pod_changed("u1", None, ended_at)
    judge.pod_changed("u2", a_member("m2"), 12, BINDING)
    judge.revision_over(12)
    assert findings.gang_partial == partial


def test_a_pod_of_no_group_and_one_of_a_basic_group_are_nobodys_part() -> None:
    judge, findings = judged(2)
    basic = PodGroup()
    basic.spec.scheduling_policy.basic.SetInParent()
    judge.group_changed("default/some", basic, LeaderWrite(), 3)
    judge.pod_changed("u1", a_member("m1", group=""), 12, BINDING)
    judge.pod_changed("u2", a_member("m2", group="some"), 12, BINDING)
    judge.revision_over(12)
    assert findings.gang_partial == 0


def a_plan(judge: GroupJudge, revision: int, *members: str, of: int = 2, epoch: int = 1, node: str = "n") -> None:
    """A leader writes a plan for the group as it was at revision `of`."""
    plan = GroupPlan(group_uid="g", group_revision=of, min_count=2)
    for uid in members:
        plan.members.add(uid=uid, name=uid, node=node)
    write = LeaderWrite(op="group-plan", epoch=epoch, attempt=f"p-{revision}", decided_at_revision=revision - 1)
    judge.plan_changed("default/train", plan, write, revision)


def roomy() -> Capacity:
    """Two nodes with room for all."""
    capacity = Capacity()
    for name in ("n", "other"):
        node = Node()
        node.status.allocatable["pods"].string = "110"
        capacity.offer(name, node)
    return capacity


def judged_with_pods(*waiting: str, gone: Sequence[str] = ()) -> tuple[GroupJudge, Findings]:
    """A gang of two, of which these members wait; those that are `gone` did so until they went."""
    findings = Findings()
    pods = {uid: a_member(uid, node="", phase="Pending") for uid in (*waiting, *gone)}
    judge = GroupJudge(findings, roomy(), pods)
    judge.group_changed("default/train", a_gang(2), LeaderWrite(), 2)
    for uid, pod in pods.items():
        judge.pod_changed(uid, pod, 3)
    for uid in gone:
        del pods[uid]
    return judge, findings


@pytest.mark.parametrize(("went", "partial"), [(10, 1), (11, 0)])
def test_a_member_that_went_between_the_decision_of_a_plan_and_its_commit_is_no_fault(went: int, partial: int) -> None:
    judge, findings = judged_with_pods("u1", gone=["u2"])
    judge.pod_changed("u2", None, went)
    a_plan(judge, 11, "u1", "u2")
    judge._pods["u1"].spec.node_name = "n"  # type: ignore[index]
    judge.pod_changed("u1", a_member("u1"), 12, LeaderWrite(op="bind", epoch=1, attempt="p-2", decided_at_revision=11))
    judge.revision_over(12)
    assert findings.gang_partial == partial


def test_a_plan_for_an_older_state_of_its_group_is_found() -> None:
    judge, findings = judged_with_pods("u1", "u2")
    a_plan(judge, 11, "u1", "u2", of=1)
    assert findings.plan_broken == 1


def test_a_member_that_is_bound_elsewhere_than_planned_is_found() -> None:
    judge, findings = judged_with_pods("u1", "u2")
    a_plan(judge, 11, "u1", "u2", node="other")
    judge.pod_changed("u1", a_member("u1"), 12, BINDING)
    judge.revision_over(12)
    assert findings.member_strayed == 1 and findings.gang_partial == 0


def test_first_members_that_are_bound_one_by_one_are_found_unless_a_plan_lists_them() -> None:
    judge, findings = judged_with_pods("u1", "u2")
    judge.pod_changed("u1", a_member("u1"), 12, BINDING)
    judge.revision_over(12)
    assert findings.gang_unplanned == 1
    judge, findings = judged_with_pods("u1", "u2")
    a_plan(judge, 11, "u1", "u2")
    judge.pod_changed("u1", a_member("u1"), 12, BINDING)
    judge.revision_over(12)
    assert findings.total == 0


@pytest.mark.parametrize(("moves_at", "broken"), [(0, 2), (13, 0)])
def test_a_later_leader_that_moves_a_planned_member_has_to_have_a_cause(moves_at: int, broken: int) -> None:
    judge, findings = judged_with_pods("u1", "u2")
    a_plan(judge, 11, "u1", "u2")
    if moves_at:
        judge.plans.node_changed("n", moves_at)
    a_plan(judge, 15, "u1", "u2", epoch=14, node="other")
    assert findings.plan_broken == broken


def test_a_plan_that_goes_before_its_members_are_bound_is_found() -> None:
    judge, findings = judged_with_pods("u1", "u2")
    a_plan(judge, 11, "u1", "u2")
    judge.plan_changed("default/train", None, LeaderWrite(), 12)
    assert findings.plan_broken == 1


def test_a_condition_that_is_said_too_early_or_taken_back_is_found() -> None:
    judge, findings = judged(2)
    scheduled = a_gang(2)
    scheduled.status.conditions.add(type="PodGroupInitiallyScheduled", status="True")
    judge.group_changed("default/train", scheduled, LeaderWrite(epoch=1, decided_at_revision=10), 12)
    judge.revision_over(12)
    assert findings.condition_wrong == 1
    judge.group_changed("default/train", a_gang(2), LeaderWrite(epoch=1), 13)
    assert findings.condition_wrong == 2


def test_members_that_differ_and_members_with_gates_are_found() -> None:
    judge, findings = judged(1)
    other = a_member("m1", node="", phase="Pending")
    other.spec.priority = 5
    judge.pod_changed("u1", other, 5)
    judge.pod_changed("u2", a_member("m2"), 12, BINDING)
    judge.revision_over(12)
    assert findings.group_mixed == 1
    judge, findings = judged(1)
    gated = a_member("m1", node="", phase="Pending")
    gated.spec.scheduling_gates.add(name="wait")
    judge.pod_changed("u1", gated, 5)
    judge.pod_changed("u2", a_member("m2"), 12, BINDING)
    judge.revision_over(12)
    assert findings.gate_passed == 1


def test_a_plan_that_takes_room_that_is_not_there_is_found_and_what_others_take_of_it() -> None:
    judge, findings = judged_with_pods("u1", "u2")
    small = Node()
    small.status.allocatable["pods"].string = "1"
    judge.plans.capacity.offer("n", small)
    a_plan(judge, 11, "u1", "u2")
    assert findings.over_capacity == 1
    assert judge.plans.capacity.exceeded_by(a_member("single", group=""), "n") is not None
    judge.plan_changed("default/train", None, LeaderWrite(), 12)
    assert judge.plans.capacity.exceeded_by(a_member("single", group=""), "n") is None
