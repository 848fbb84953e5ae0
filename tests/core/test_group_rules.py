"""Groups whose members differ, or have rules among each other: best effort, which the message says."""

from __future__ import annotations

import pytest

from rayched.core.groups.group_writes import BEST_EFFORT
from tests.core.builders import a_node
from tests.core.grouped import a_group, a_member, bound_of, put_group, put_members, scheduled
from tests.core.leading import a_replica, put_node, put_pod

ZONE = "topology.kubernetes.io/zone"


@pytest.mark.row("G30")
def test_members_that_need_each_other_are_placed_together_the_first_one_by_its_own_terms() -> None:
    leader = a_replica()
    for zone, size in (("a", 1), ("b", 3)):
        for number in range(size):
            put_node(leader.store, a_node(f"{zone}-{number}", labels={ZONE: zone}))
    put_group(leader.store, a_group(least=3))
    for number in range(3):
        pod = a_member(f"train-{number}", cpu="1", labels={"app": "train"})
        term = pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution.add()
        term.label_selector.match_labels["app"] = "train"
        term.topology_key = ZONE
        put_pod(leader.store, pod)
    leader.settle()
    assert len(bound_of(leader)) == 3
    assert len({node.partition("-")[0] for node in leader.bound().values()}) == 1


@pytest.mark.row("G29")
def test_the_message_says_that_the_order_may_have_decided_where_members_differ_and_not_otherwise() -> None:
    leader = a_replica("n1")
    put_group(leader.store, a_group(least=2))
    put_members(leader.store, 2, cpu="3")
    put_group(leader.store, a_group("mixed", 2))
    put_pod(leader.store, a_member("mixed-0", "mixed", cpu="3"))
    put_pod(leader.store, a_member("mixed-1", "mixed", cpu="2"))
    leader.settle()
    assert scheduled(leader.store, "mixed")[2].endswith(BEST_EFFORT)
    assert BEST_EFFORT not in scheduled(leader.store)[2] and scheduled(leader.store)[0] == "False"
