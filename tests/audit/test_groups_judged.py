"""The auditor's judgement of gangs, on histories made by hand."""

from __future__ import annotations

import pytest

from rayched.audit.findings import Findings
from rayched.audit.groups_judged import GroupJudge
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import LeaderWrite
from rayched.v1.workloads_pb2 import PodGroup

BINDING = LeaderWrite(op="bind", epoch=1, attempt="a-1", decided_at_revision=10)


def a_gang(least: int) -> PodGroup:
    group = PodGroup()
    group.spec.scheduling_policy.gang.min_count = least
    return group


def a_member(name: str, *, node: str = "n", phase: str = "Running", group: str = "train") -> Pod:
    pod = Pod(metadata={"namespace": "default", "name": name}, spec={"node_name": node}, status={"phase": phase})
    pod.spec.scheduling_group.pod_group_name = group
    return pod


def judged(least: int) -> tuple[GroupJudge, Findings]:
    findings = Findings()
    judge = GroupJudge(findings)
    judge.group_changed("default/train", a_gang(least))
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
    judge.group_changed("default/some", basic)
    judge.pod_changed("u1", a_member("m1", group=""), 12, BINDING)
    judge.pod_changed("u2", a_member("m2", group="some"), 12, BINDING)
    judge.revision_over(12)
    assert findings.gang_partial == 0
