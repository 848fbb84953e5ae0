"""One cycle for a group: which members are placed where, and all or nothing, over a model store.

Each test ends with an auditor's reading of the history: it found nothing.
"""

from __future__ import annotations

import pytest

from rayched.v1.core_pb2 import Pod
from tests.core.builders import a_node, a_pod
from tests.core.grouped import (
    MINUTES,
    a_group,
    a_member,
    audited,
    bound_of,
    change_pod,
    later,
    put_group,
    put_members,
    revisions_of_bindings,
    scheduled,
)
from tests.core.leading import a_replica, assumed, put_node, put_pod, reason_of
from tests.core.replica import Replica
from tests.planted_bugs import planted


@pytest.mark.row("G21", "G22", "G60")
def test_a_group_that_does_not_fit_holds_no_room_and_says_what_it_lacks(leader: Replica) -> None:
    put_group(leader.store, a_group(least=3))
    put_members(leader.store, 3, cpu="3")
    leader.settle()
    assert bound_of(leader) == [] and assumed(leader) == 0
    status, reason, message = scheduled(leader.store)
    assert (status, reason) == ("False", "Unschedulable")
    none = "0/2 nodes are available: 2 Insufficient cpu."
    nobody = "preemption: no pods of lower priority may go."
    assert message == f"0 bound, 2 placed, 3 needed, 3 members: default/train-2: {none} {nobody}"
    assert reason_of(leader, "train-0") == ("Unschedulable", message)
    put_pod(leader.store, a_pod("single", cpu="4"))
    leader.settle()
    assert "single" in leader.bound()


@pytest.mark.row("G23", "G24")
def test_with_more_members_than_needed_as_many_as_fit_are_bound_and_the_rest_follows_by_itself(leader: Replica) -> None:
    put_group(leader.store, a_group(least=2))
    put_members(leader.store, 3, cpu="3")
    leader.settle()
    assert len(bound_of(leader)) == 2
    put_node(leader.store, a_node("n3"))
    leader.settle()
    later(leader, 2.0)
    assert len(bound_of(leader)) == 3


@pytest.mark.row("G27")
def test_an_attempt_that_cannot_reach_the_minimum_any_more_stops_at_once(leader: Replica) -> None:
    put_group(leader.store, a_group(least=4))
    for number in range(4):
        put_pod(leader.store, a_member(f"train-{number}", cpu="9" if number < 1 else "100m", labels={"n": str(number)}))
    leader.settle()
    # The largest is tried first, and no other after it.
    assert scheduled(leader.store)[2].startswith("0 bound, 0 placed, 4 needed, 4 members: default/train-0: ")


@pytest.mark.row("G28")
def test_equal_members_are_placed_whenever_that_is_possible(leader: Replica) -> None:
    put_node(leader.store, a_node("n3", cpu="7"))
    put_group(leader.store, a_group(least=4))
    put_members(leader.store, 4, cpu="3")
    leader.settle()
    assert len(bound_of(leader)) == 4


@pytest.mark.row("G31", "G33")
@pytest.mark.parametrize("how", ["anti-affinity", "host port"])
def test_members_that_exclude_each_other_come_to_different_nodes_in_one_attempt(leader: Replica, how: str) -> None:
    put_group(leader.store, a_group(least=2))
    for number in range(2):
        pod = a_member(f"train-{number}", labels={"app": "train"})
        exclude(pod, how)
        put_pod(leader.store, pod)
    leader.settle()
    assert sorted(leader.bound().values()) == ["n1", "n2"]


@pytest.mark.row("G32")
def test_spreading_counts_members_that_were_placed_before_in_the_same_attempt(leader: Replica) -> None:
    put_group(leader.store, a_group(least=4))
    for number in range(4):
        pod = a_member(f"train-{number}", labels={"app": "train"}, cpu="100m")
        spread = pod.spec.topology_spread_constraints.add(max_skew=1, topology_key="kubernetes.io/hostname")
        spread.when_unsatisfiable = "DoNotSchedule"
        spread.label_selector.match_labels["app"] = "train"
        put_pod(leader.store, pod)
    leader.settle()
    assert sorted(leader.bound().values()) == ["n1", "n1", "n2", "n2"]


@pytest.mark.row("G70")
def test_of_a_hundred_groups_on_room_for_fifty_exactly_fifty_start(leader: Replica) -> None:
    for number in range(3, 11):
        put_node(leader.store, a_node(f"n{number}", cpu="62"))
    # Room for 500 pods of one CPU, less what is left of the last group.
    for number in range(100):
        put_group(leader.store, a_group(f"g{number:02}", 10))
        put_members(leader.store, 10, f"g{number:02}")
    leader.settle()
    starts = {name.partition("-")[0] for name in leader.bound()}
    assert len(starts) == 50
    assert len(leader.bound()) == 500


@pytest.mark.row("G71")
def test_of_two_groups_that_each_need_most_of_the_room_one_starts_and_the_other_waits(leader: Replica) -> None:
    for name in ("a", "b"):
        put_group(leader.store, a_group(name, 5))
    for number in range(5):
        for name in ("a", "b"):
            put_pod(leader.store, a_member(f"{name}-{number}", name))
    leader.settle()
    later(leader, 1 * MINUTES)
    assert len(bound_of(leader, "a")) == 5 and bound_of(leader, "b") == []
    for number in range(5):
        change_pod(leader.store, f"a-{number}", phase="Succeeded")
    leader.settle()
    later(leader, 10.0)
    assert len(bound_of(leader, "b")) == 5


@pytest.mark.row("G69")
def test_a_basic_group_binds_as_many_as_fit_with_one_attempt_for_all(leader: Replica) -> None:
    put_group(leader.store, a_group(least=None))
    put_members(leader.store, 4, cpu="3")
    leader.settle()
    assert len(bound_of(leader)) == 2
    assert len(set(revisions_of_bindings(leader.store).values())) == 1


@pytest.mark.row("G69")
def test_a_basic_group_comes_to_what_single_pods_come_to(leader: Replica) -> None:
    singles = a_replica("n1", "n2")
    put_group(leader.store, a_group(least=None))
    for number, cpu in enumerate(("1", "3", "2", "1")):
        put_pod(leader.store, a_member(f"train-{number}", cpu=cpu))
    # In the order in which members are tried: the largest first.
    for number, cpu in enumerate(("3", "2", "1", "1")):
        put_pod(singles.store, a_pod(f"single-{number}", cpu=cpu))
    for replica in (leader, singles):
        replica.settle()
    sizes = {"train-0": "1", "train-1": "3", "train-2": "2", "train-3": "1"}
    placed = sorted((sizes[name], node) for name, node in leader.bound().items())
    sizes = {"single-0": "3", "single-1": "2", "single-2": "1", "single-3": "1"}
    assert placed == sorted((sizes[name], node) for name, node in singles.bound().items())
    assert len(placed) == 4


def test_the_auditor_notices_a_gang_that_is_bound_in_part() -> None:
    replica = a_replica("n1", "n2")
    put_group(replica.store, a_group(least=3))
    put_members(replica.store, 3, cpu="3")
    with planted("a group binds what fits"):
        replica.settle()
    found = audited(replica.store).findings
    assert found.gang_partial == 1
    assert "of pod group default/train 2 members are bound, 3 are needed" in found.first["gang_partial"]


def exclude(pod: Pod, how: str) -> None:
    if how == "host port":
        pod.spec.containers[0].ports.add(container_port=80, host_port=8080, protocol="TCP")
        return
    terms = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    term = terms.add(topology_key="kubernetes.io/hostname")
    term.label_selector.match_labels["app"] = "train"
