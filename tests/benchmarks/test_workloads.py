"""Workloads at a small size: decisions are those of the plain evaluation; the judge of placements sees what is not allowed."""

from __future__ import annotations

import pytest

from benchmarks import shapes
from benchmarks.engine_depth import EngineRun
from benchmarks.memory_cluster import judge_of
from benchmarks.quick import fallen
from benchmarks.validity import Judge
from benchmarks.workloads import WORKLOADS, Workload
from rayched.configuration.profile_building import default_profile
from rayched.plugins import in_tree
from rayched.v1.core_pb2 import Node, Pod

PROFILE = default_profile(in_tree.IN_TREE)
NODES, INIT, MEASURED = 24, 10, 14
ONCE = list({workload.name: workload for workload in WORKLOADS if workload.is_for_the_engine}.values())


@pytest.mark.parametrize("workload", ONCE, ids=lambda workload: workload.name)
@pytest.mark.parametrize("templates", [1, 9])
def test_decisions_are_those_of_the_plain_evaluation(workload: Workload, templates: int) -> None:
    small = workload.sized(NODES, INIT, MEASURED)
    run = EngineRun(small, PROFILE, templates)
    assert run.run(verify=True).unplaced == 0
    judge = judge_of(small)
    for pod, node_name in run.placements:
        judge.place(pod, node_name)
    assert judge.wrong == []
    assert judge.placed == MEASURED + sum(not group.gated for group, _ in small.pods_before())


def judged(nodes: list[Node], *placements: tuple[Pod, str]) -> list[str]:
    judge = Judge(nodes, {"init-ns-0": shapes.TEAM, "measure-ns-0": shapes.TEAM})
    for pod, node_name in placements:
        judge.place(pod, node_name)
    return judge.wrong


def a_pod(shape: str, number: int = 0, namespace: str = "sched-1") -> Pod:
    return shapes.a_pod(shape, namespace, f"pod-{number}")


def test_a_judge_sees_what_is_not_allowed() -> None:
    plain, zones = list(shapes.plain_nodes(3)), list(shapes.nodes_of_three_zones(3))
    tainted = list(shapes.a_fifth_tainted(5))
    spread = [(a_pod("spread", number), "node-0") for number in range(6)]
    carrier, other = a_pod("ns-anti-affinity", 0, "init-ns-0"), a_pod("anti-affinity-label-only", 1, "measure-ns-0")
    for expected, nodes, placements in (
        ("no such node", plain, [(a_pod("default"), "elsewhere")]),
        ("of cpu wanted", plain, [(a_pod("high-priority-9cpu"), "node-0")]),
        ("a taint is not tolerated", tainted, [(a_pod("default"), "node-4")]),
        ("the node is not selected", plain, [(a_pod("node-affinity"), "node-0")]),
        ("its anti-affinity", plain, [(a_pod("pod-anti-affinity", n), "node-1") for n in range(2)]),
        ("the anti-affinity of a pod there", plain, [(carrier, "node-1"), (other, "node-1")]),
        ("its affinity", zones, [(a_pod("pod-affinity", 0), "node-0"), (a_pod("pod-affinity", 1), "node-1")]),
        ("its spread", zones, spread),
    ):
        wrong = judged(nodes, *placements)
        assert len(wrong) == 1, expected
        assert expected in wrong[0]


def test_what_a_pod_took_is_free_again_when_it_has_ended() -> None:
    judge = Judge(shapes.plain_nodes(1), {})
    for number in range(2):
        judge.place(a_pod("high-priority", number), "node-0")
    assert judge.n_wrong == 1
    for number in range(2):
        judge.end(a_pod("high-priority", number).metadata.uid)
    judge.place(a_pod("high-priority", 2), "node-0")
    for number in range(2):
        judge.place(a_pod("pod-anti-affinity", number), "node-0")
        judge.end(a_pod("pod-anti-affinity", number).metadata.uid)
    assert judge.n_wrong == 1


def test_nobody_ends_for_a_pod_that_is_no_more_important() -> None:
    judge = Judge(shapes.plain_nodes(1), {})
    judge.preempted(a_pod("low-priority"), 10)
    assert judge.wrong == []
    judge.preempted(a_pod("high-priority"), 10)
    assert judge.n_wrong == 1 and "ended for a pod of priority 10, its own is 10" in judge.wrong[0]


def test_pods_of_a_variety_come_from_so_many_templates() -> None:
    basic = next(workload for workload in WORKLOADS if workload.name == "SchedulingBasic").sized(1, 0, 60)
    kinds = set()
    for pod in basic.pods_measured(20):
        pod.metadata.name = pod.metadata.uid = ""
        kinds.add(pod.SerializeToString(deterministic=True))
    assert len(kinds) == 20


def test_a_workload_that_became_half_as_fast_is_named() -> None:
    recorded = {"a": 100.0, "b": 100.0, "c": 100.0}
    assert fallen({"a": 49.9, "b": 50.0, "new": 1.0}, recorded) == ["a", "c"]
