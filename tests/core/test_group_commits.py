"""A group is bound in one transaction or not at all, whoever dies when, over a model store.

Each test ends with an auditor's reading of the history: it found nothing.
"""

from __future__ import annotations

import pytest

from tests.core.builders import a_node, a_pod
from tests.core.grouped import (
    a_group,
    a_member,
    bound_of,
    group_key,
    later,
    put_group,
    put_members,
    revisions_of_bindings,
)
from tests.core.leading import a_replica, assumed, decide, key_of, put_node, put_pod
from tests.core.replica import KEYS, Replica


@pytest.mark.row("G40")
def test_a_group_of_54_is_bound_in_one_revision() -> None:
    replica = a_replica(*(f"n{number}" for number in range(18)))
    replica.store.txn_ops_max = 1_100
    put_group(replica.store, a_group(least=54))
    put_members(replica.store, 54)
    replica.settle()
    assert len(bound_of(replica)) == 54
    assert len(set(revisions_of_bindings(replica.store).values())) == 1


def having_decided_small_groups(count: int, members: int, operations: int) -> Replica:
    replica = a_replica(*(f"n{number}" for number in range(count)))
    replica.store.txn_ops_max = operations
    for group in range(count):
        put_group(replica.store, a_group(f"g{group:02}", members))
        for number in range(members):
            put_pod(replica.store, a_member(f"g{group:02}-{number}", f"g{group:02}", cpu="100m"))
    decide(replica)
    while replica.core.decide():
        pass
    replica.turn()
    return replica


@pytest.mark.parametrize("operations", [128, 20], ids=["etcd's default", "a store that takes one at a time"])
def test_small_groups_share_a_request_in_which_each_is_bound_or_refused(operations: int) -> None:
    replica = having_decided_small_groups(20, 3, operations)
    assert [(send.op, send.n_writes) for send in replica.to_store] == [("group", 20)]
    replica.store.delete(key_of("g07-1"))
    replica.settle()
    assert {group: len(bound_of(replica, group)) for group in map("g{:02}".format, range(20))} == {
        group: 0 if group == "g07" else 3 for group in map("g{:02}".format, range(20))
    }
    revisions = set(revisions_of_bindings(replica.store).values())
    assert len(revisions) == 1 if operations == 128 else len(revisions) > 1


def test_a_request_has_no_more_groups_than_the_largest_of_them_leaves_operations_for() -> None:
    replica = having_decided_small_groups(40, 30, 128)
    sent = [send.n_writes for send in replica.to_store]
    assert sum(sent) == 40 and 1 < len(sent) < 10
    replica.settle()
    assert len(replica.bound()) == 1_200
    assert len(set(revisions_of_bindings(replica.store).values())) == len(sent), "none was refused, and taken apart"


@pytest.mark.row("G41")
def test_a_minimum_that_was_raised_since_the_decision_is_kept(leader: Replica) -> None:
    put_group(leader.store, a_group(least=2))
    put_members(leader.store, 3, cpu="3")
    decide(leader)
    put_group(leader.store, a_group(least=3))
    leader.settle()
    assert bound_of(leader) == []
    put_node(leader.store, a_node("n3", cpu="4"))
    leader.settle()
    later(leader, 60.0)
    assert len(bound_of(leader)) == 3


@pytest.mark.row("G41")
@pytest.mark.parametrize("what", ["member", "group", "node", "room taken"])
def test_if_anything_changed_since_the_decision_no_member_is_bound_by_it(leader: Replica, what: str) -> None:
    put_group(leader.store, a_group(least=3))
    put_members(leader.store, 3)
    decide(leader)
    leader.turn()
    assert [send.op for send in leader.to_store] == ["group"]
    match what:
        case "member":
            leader.store.delete(key_of("train-1"))
        case "group":
            put_group(leader.store, a_group(least=4))
        case "node":
            put_node(leader.store, a_node("n1", unschedulable=True))
            put_node(leader.store, a_node("n2", unschedulable=True))
        case _:
            for node in ("n1", "n2"):
                there = a_pod(f"taker-{node}", cpu="4")
                there.spec.node_name = node
                put_pod(leader.store, there)
                leader.store.put(KEYS.taken(node), b"")
    leader.settle()
    assert bound_of(leader) == [] and assumed(leader) == 0


@pytest.mark.parametrize("gone", [False, True], ids=["answer lost", "answer lost, and the group has gone"])
def test_a_lost_answer_of_a_commit_binds_nobody_twice_and_frees_no_room(leader: Replica, gone: bool) -> None:
    put_group(leader.store, a_group(least=2))
    put_members(leader.store, 2, cpu="3")
    decide(leader)
    leader.turn()
    leader.arrive(lose_answer=True)
    if gone:
        leader.store.delete(group_key())
    leader.answer()
    put_pod(leader.store, a_pod("greedy", cpu="3"))
    later(leader, 1.0)
    assert len(bound_of(leader)) == 2
    assert "greedy" not in leader.bound()


def test_a_commit_whose_group_has_gone_is_known_by_its_members(leader: Replica) -> None:
    put_group(leader.store, a_group(least=2))
    put_members(leader.store, 2, cpu="3")
    decide(leader)
    leader.turn()
    leader.arrive(lose_answer=True)
    leader.store.delete(group_key())
    leader.answer()
    # Sent again before the watch has shown anything.
    leader.clock.now += 1.0
    leader.turn()
    leader.arrive()
    leader.answer()
    assert assumed(leader) == 2
    assert leader.core.attempts["scheduled"] == 2


def test_members_left_over_need_no_quorum_before_the_watch_has_shown_the_others(leader: Replica) -> None:
    put_group(leader.store, a_group(least=2))
    put_members(leader.store, 3, cpu="3")
    decide(leader)
    leader.turn()
    leader.arrive()
    leader.answer()
    leader.turn()
    while leader.exchange():
        leader.exchanged()
        leader.turn()
    leader.core.decide()
    leader.settle()
    assert leader.core.attempts == {"scheduled": 2, "unschedulable": 1}


@pytest.mark.row("G44", "G49")
def test_the_next_leader_decides_anew_and_late_writes_of_the_old_one_change_nothing(leader: Replica) -> None:
    put_group(leader.store, a_group(least=3))
    put_members(leader.store, 3)
    decide(leader)
    leader.turn()
    sent = leader.to_store.pop(0)
    leader.belief = leader.store.put(KEYS.epoch, b"{}")
    leader.settle()
    where = leader.bound()
    assert len(where) == 3
    answer = leader.stored(sent)
    assert not answer.succeeded
    assert leader.bound() == where


@pytest.mark.row("G44", "G72")
@pytest.mark.parametrize("moment", ["decided", "sent", "committed, not answered"])
def test_whenever_the_leader_dies_the_next_one_finds_the_group_whole_or_unbound(leader: Replica, moment: str) -> None:
    put_group(leader.store, a_group(least=3))
    put_members(leader.store, 4)
    decide(leader)
    late = []
    if moment != "decided":
        leader.turn()
        late = leader.to_store[:]
    if moment.startswith("committed"):
        leader.arrive()
    before = leader.bound()
    assert len(before) in (0, 4)
    successor = Replica(leader.store, leader.clock, "b")
    successor.list()
    successor.lead()
    successor.settle()
    after = successor.bound()
    assert len(after) == 4 and before.items() <= after.items()
    for send in late:
        leader.stored(send)
    assert successor.bound() == after
