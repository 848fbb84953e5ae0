"""Pod groups, from members that come to a group that is bound whole, over a model store.

Each test ends with an auditor's reading of the history: it found nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rayched.api import kinds
from rayched.store.codec import encode
from rayched.v1.core_pb2 import Pod
from tests.core.builders import a_node, a_pod
from tests.core.grouped import (
    a_group,
    a_member,
    audited,
    bound_of,
    change_pod,
    group_key,
    put_group,
    put_members,
    revisions_of_bindings,
    scheduled,
)
from tests.core.leading import a_replica, assumed, decide, key_of, put_node, put_pod, reason_of
from tests.core.model_store import ModelStore
from tests.core.replica import KEYS, Replica
from tests.planted_bugs import GROUPS, planted

MINUTES = 60.0


@pytest.fixture
def leader() -> Iterator[Replica]:
    """A leader over two nodes of 4 CPUs."""
    replica = a_replica("n1", "n2")
    yield replica
    assert audited(replica.store).findings.counts() == dict.fromkeys(audited(ModelStore()).findings.counts(), 0)


def later(replica: Replica, seconds: float) -> None:
    replica.clock.now += seconds
    replica.settle()


@pytest.mark.row("G11", "G40")
def test_the_last_member_that_is_needed_starts_the_group_and_all_are_bound_in_one_revision(leader: Replica) -> None:
    put_group(leader.store, a_group(least=3))
    put_members(leader.store, 2)
    leader.settle()
    later(leader, 10 * MINUTES)
    assert bound_of(leader) == []
    assert leader.decided_about.count("uid-of-group-default-train") == 0
    assert leader.queue.queue.pending().total == 0
    put_members(leader.store, 1, first=2)
    leader.settle()
    assert bound_of(leader) == ["train-0", "train-1", "train-2"]
    assert len(set(revisions_of_bindings(leader.store).values())) == 1
    assert scheduled(leader.store)[:2] == ("True", "Scheduled")


@pytest.mark.row("G40")
def test_a_group_of_54_is_bound_in_one_revision() -> None:
    replica = a_replica(*(f"n{number}" for number in range(18)))
    replica.store.txn_ops_max = 1_100
    put_group(replica.store, a_group(least=54))
    put_members(replica.store, 54)
    replica.settle()
    assert len(bound_of(replica)) == 54
    assert len(set(revisions_of_bindings(replica.store).values())) == 1


@pytest.mark.row("G9")
def test_members_of_a_group_that_is_missing_wait_say_so_and_go_on_when_it_comes(leader: Replica) -> None:
    put_members(leader.store, 3)
    leader.settle()
    later(leader, 2.0)
    assert bound_of(leader) == []
    assert reason_of(leader, "train-0") == ("Unschedulable", "waiting for pod group default/train: it does not exist")
    put_group(leader.store, a_group(least=3))
    leader.settle()
    assert len(bound_of(leader)) == 3


@pytest.mark.row("G12")
@pytest.mark.parametrize("least", [2, None], ids=["gang", "basic"])
def test_one_member_with_a_gate_holds_all(leader: Replica, least: int | None) -> None:
    put_group(leader.store, a_group(least=least))
    put_pod(leader.store, a_member("train-2", gates=["example.com/wait"]))
    put_members(leader.store, 2)
    leader.settle()
    later(leader, 2.0)
    assert bound_of(leader) == []
    assert reason_of(leader, "train-2")[0] == "SchedulingGated"
    assert reason_of(leader, "train-0") == ("Unschedulable", "waiting for pod group default/train: a member has scheduling gates")
    put_pod(leader.store, a_member("train-2"))
    leader.settle()
    assert len(bound_of(leader)) == 3


@pytest.mark.row("G12")
def test_a_member_with_a_gate_that_comes_later_takes_a_waiting_group_back(leader: Replica) -> None:
    put_group(leader.store, a_group(least=3))
    put_members(leader.store, 3, cpu="3")
    leader.settle()
    put_pod(leader.store, a_member("train-9", gates=["example.com/wait"]))
    put_node(leader.store, a_node("n3"))
    leader.settle()
    later(leader, 10 * MINUTES)
    assert bound_of(leader) == []
    leader.store.delete(key_of("train-9"))
    leader.settle()
    assert len(bound_of(leader)) == 3


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


@pytest.mark.row("G18", "G21")
def test_a_group_that_never_fits_waits_for_ever_and_ends_nobody(leader: Replica) -> None:
    put_pod(leader.store, a_pod("low", cpu="3", priority=-5))
    put_group(leader.store, a_group(least=3))
    put_members(leader.store, 3, cpu="3")
    leader.settle()
    for _ in range(12):
        later(leader, 10 * MINUTES)
    assert bound_of(leader) == []
    pods = leader.store.pods().values()
    assert len(pods) == 4
    assert not any(pod.status.nominated_node_name or pod.metadata.HasField("deletion_timestamp") for pod in pods)


@pytest.mark.row("G19")
def test_a_node_that_makes_the_group_fit_wakes_it_and_one_that_helps_nobody_does_not(leader: Replica) -> None:
    put_group(leader.store, a_group(least=3))
    put_members(leader.store, 3, cpu="3")
    leader.settle()
    tries = leader.decided_about.count("uid-of-group-default-train")
    put_node(leader.store, a_node("small", cpu="1"))
    leader.settle()
    later(leader, 30.0)
    assert leader.decided_about.count("uid-of-group-default-train") == tries
    put_node(leader.store, a_node("n3"))
    leader.settle()
    later(leader, 2.0)
    assert len(bound_of(leader)) == 3


@pytest.mark.row("G20")
def test_a_group_that_failed_is_tried_again_after_five_minutes_without_any_event(leader: Replica) -> None:
    put_group(leader.store, a_group(least=3))
    put_members(leader.store, 3, cpu="3")
    leader.settle()
    later(leader, 4 * MINUTES)
    tries = leader.decided_about.count("uid-of-group-default-train")
    later(leader, 2 * MINUTES)
    assert leader.decided_about.count("uid-of-group-default-train") == tries + 1


@pytest.mark.row("G10")
def test_a_thousand_members_are_one_entry_of_the_queue_and_one_attempt(leader: Replica) -> None:
    put_group(leader.store, a_group(least=1_000))
    put_members(leader.store, 1_000)
    leader.settle()
    assert leader.queue.queue.pending().total == 1
    assert leader.core.attempts == {"unschedulable": 1}


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


@pytest.mark.row("G13")
def test_members_that_come_during_an_attempt_are_in_the_next_which_follows_at_once(leader: Replica) -> None:
    put_group(leader.store, a_group(least=2))
    put_members(leader.store, 2)
    decide(leader)
    assert assumed(leader) == 2
    put_members(leader.store, 2, first=2)
    leader.settle()
    assert len(bound_of(leader)) == 4


@pytest.mark.row("G14")
def test_a_lower_minimum_wakes_a_waiting_group_and_a_higher_one_does_not(leader: Replica) -> None:
    put_group(leader.store, a_group(least=3))
    put_members(leader.store, 3, cpu="3")
    leader.settle()
    tries = leader.decided_about.count("uid-of-group-default-train")
    raised = a_group(least=3)
    raised.spec.scheduling_policy.gang.min_count = 4
    put_group(leader.store, raised)
    leader.settle()
    assert leader.decided_about.count("uid-of-group-default-train") == tries
    put_group(leader.store, a_group(least=2))
    leader.settle()
    assert len(bound_of(leader)) == 2


@pytest.mark.row("G16", "G36")
def test_groups_and_pods_stand_in_one_order_and_a_waiting_group_blocks_nobody(leader: Replica) -> None:
    put_group(leader.store, a_group("waits", 5))
    put_members(leader.store, 2, "waits")
    put_group(leader.store, a_group("high", 2, priority=7))
    put_group(leader.store, a_group("older", 2))
    put_members(leader.store, 2, "older")
    put_pod(leader.store, a_pod("younger", cpu="2"))
    put_members(leader.store, 2, "high", cpu="1", priority=7)
    put_pod(leader.store, a_pod("first", cpu="1", priority=9))
    leader.settle()
    order = ["uid-first", "uid-of-group-default-high", "uid-of-group-default-older", "uid-younger"]
    assert [uid for uid in leader.decided_about if uid] == order
    assert len(leader.bound()) == 6


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


def exclude(pod: Pod, how: str) -> None:
    if how == "host port":
        pod.spec.containers[0].ports.add(container_port=80, host_port=8080, protocol="TCP")
        return
    terms = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    term = terms.add(topology_key="kubernetes.io/hostname")
    term.label_selector.match_labels["app"] = "train"


@pytest.mark.row("G34", "G35")
@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"scheduler": "another"}, "have different schedulerNames: another and default-scheduler"),
        ({"priority": 5}, "has priority 5, its group 0"),
    ],
    ids=["schedulerName", "priority"],
)
def test_members_that_differ_in_what_they_must_share_are_all_turned_down(
    leader: Replica, other: dict[str, object], words: str
) -> None:
    put_group(leader.store, a_group(least=2))
    put_members(leader.store, 2)
    put_pod(leader.store, a_member("train-2", **other))
    leader.settle()
    later(leader, 2.0)
    assert bound_of(leader) == []
    reason, message = reason_of(leader, "train-0")
    assert reason == "SchedulerError" and words in message
    assert scheduled(leader.store)[1] == "SchedulerError" and words in scheduled(leader.store)[2]


@pytest.mark.row("G37", "G38")
def test_a_member_that_came_with_its_node_counts_as_bound(leader: Replica) -> None:
    there = a_member("train-0")
    there.spec.node_name = "n2"
    put_pod(leader.store, there)
    put_group(leader.store, a_group(least=3))
    put_members(leader.store, 2, first=1)
    leader.settle()
    assert len(bound_of(leader)) == 3
    assert leader.bound()["train-0"] == "n2"


@pytest.mark.row("G8")
@pytest.mark.parametrize(("phase", "bound"), [("Succeeded", 3), ("Failed", 2)])
def test_members_that_succeeded_count_and_failed_ones_do_not(leader: Replica, phase: str, bound: int) -> None:
    put_group(leader.store, a_group(least=2))
    put_members(leader.store, 2)
    leader.settle()
    change_pod(leader.store, "train-0", phase=phase)
    change_pod(leader.store, "train-1", phase=phase)
    put_members(leader.store, 1, first=2)
    leader.settle()
    assert len(bound_of(leader)) == bound


@pytest.mark.row("G39")
def test_a_group_that_loses_a_member_while_it_waits_is_held_back_again(leader: Replica) -> None:
    put_group(leader.store, a_group(least=3))
    put_members(leader.store, 3, cpu="3")
    leader.settle()
    leader.store.delete(key_of("train-2"))
    leader.settle()
    assert leader.queue.queue.pending().total == 0
    put_node(leader.store, a_node("n3"))
    leader.settle()
    later(leader, 10 * MINUTES)
    assert bound_of(leader) == []


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


def test_what_helps_the_member_that_failed_first_wakes_the_group(leader: Replica) -> None:
    put_group(leader.store, a_group(least=2))
    put_pod(leader.store, a_member("train-0", cpu="3"))
    put_pod(leader.store, a_member("train-1", selector={"disk": "ssd"}))
    leader.settle()
    assert bound_of(leader) == []
    put_node(leader.store, a_node("n1", labels={"disk": "ssd"}))
    leader.settle()
    later(leader, 5.0)
    assert len(bound_of(leader)) == 2


@pytest.mark.row("G14")
def test_a_lower_minimum_wakes_a_group_that_is_in_the_queue(leader: Replica) -> None:
    put_group(leader.store, a_group(least=3))
    put_members(leader.store, 3, cpu="3")
    leader.settle()
    put_group(leader.store, a_group(least=2))
    leader.settle()
    assert len(bound_of(leader)) == 2


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


@pytest.mark.row("G68")
def test_a_group_that_is_deleted_and_made_again_is_a_new_one(leader: Replica) -> None:
    put_group(leader.store, a_group(least=2, uid="one"))
    put_members(leader.store, 2)
    decide(leader)
    leader.turn()
    leader.store.delete(group_key())
    put_group(leader.store, a_group(least=3, uid="other"))
    leader.settle()
    assert bound_of(leader) == []
    put_members(leader.store, 1, first=2)
    leader.settle()
    assert len(bound_of(leader)) == 3
    assert "other" in leader.decided_about


def test_a_queue_that_was_lost_has_the_group_again(leader: Replica) -> None:
    put_group(leader.store, a_group(least=3))
    put_members(leader.store, 3, cpu="3")
    leader.settle()
    leader.lose_queue()
    leader.settle()
    assert leader.queue.queue.pending().total == 1
    put_node(leader.store, a_node("n3"))
    leader.settle()
    later(leader, 2.0)
    assert len(bound_of(leader)) == 3


@pytest.mark.row("G61")
def test_members_are_told_a_new_text_at_most_every_few_seconds(leader: Replica) -> None:
    put_group(leader.store, a_group(least=9))
    put_members(leader.store, 9)
    leader.settle()
    for number in range(9, 15):
        put_members(leader.store, 1, first=number, cpu="9")
        leader.settle()
        later(leader, 0.5)
    writes = [change for changes in leader.store.history for change in changes if change.key == key_of("train-0")]
    assert len(writes) == 2, "its creation, and one condition"
    later(leader, 10.0)
    assert reason_of(leader, "train-0")[0] == "Unschedulable"
    assert "15 members" in reason_of(leader, "train-0")[1]


@pytest.mark.row("G59")
def test_that_a_group_was_scheduled_stands_whatever_becomes_of_it(leader: Replica) -> None:
    put_group(leader.store, a_group(least=2))
    put_members(leader.store, 2)
    leader.settle()
    change_pod(leader.store, "train-0", phase="Failed")
    put_members(leader.store, 1, first=2, cpu="9")
    leader.settle()
    later(leader, 1 * MINUTES)
    assert reason_of(leader, "train-2")[0] == "Unschedulable"
    assert scheduled(leader.store)[:2] == ("True", "Scheduled")


@pytest.mark.row("G67")
def test_groups_of_two_namespaces_with_one_name_are_two(leader: Replica) -> None:
    put_group(leader.store, a_group(least=2))
    put_group(leader.store, a_group(least=2, namespace="other"))
    put_members(leader.store, 1)
    pod = a_member("train-1")
    pod.metadata.namespace = "other"
    leader.store.put(KEYS.object_key(kinds.POD, "other", "train-1"), encode(kinds.wrap(pod)))
    leader.settle()
    later(leader, 5 * MINUTES)
    assert bound_of(leader) == []


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


@pytest.mark.row("G15")
def test_a_group_that_failed_goes_behind_equal_ones_that_wait(leader: Replica) -> None:
    put_group(leader.store, a_group("old", 2))
    put_members(leader.store, 2, "old", cpu="5")
    leader.settle()
    later(leader, 20.0)
    put_group(leader.store, a_group("new", 2))
    put_members(leader.store, 2, "new", cpu="5")
    leader.settle()
    later(leader, 20.0)
    # One more member: the older group is tried again, and fails again.
    put_members(leader.store, 1, "old", first=2, cpu="5")
    leader.settle()
    later(leader, 20.0)
    put_node(leader.store, a_node("big", cpu="10"))
    leader.settle()
    assert bound_of(leader, "new") == ["new-0", "new-1"]
    assert bound_of(leader, "old") == []


@pytest.mark.parametrize("bug", GROUPS)
def test_the_auditor_notices_a_gang_that_is_bound_in_part(bug: str) -> None:
    replica = a_replica("n1", "n2")
    put_group(replica.store, a_group(least=3))
    put_members(replica.store, 3, cpu="3")
    with planted(bug):
        replica.settle()
    found = audited(replica.store).findings
    assert found.gang_partial == 1 == found.total
    assert "of pod group default/train 2 members are bound, 3 are needed" in found.first["gang_partial"]


def test_a_group_that_no_transaction_takes_is_refused_with_a_clear_condition() -> None:
    replica = a_replica(*(f"n{number}" for number in range(6)))
    for number in range(6):
        put_node(replica.store, a_node(f"n{number}", cpu="400", pods="400"))
    put_group(replica.store, a_group(least=1_200))
    put_members(replica.store, 1_200)
    replica.settle()
    status, reason, message = scheduled(replica.store)
    assert (status, reason) == ("False", "SchedulerError")
    assert "1200 members have to be bound at once, and one transaction takes" in message
    assert bound_of(replica) == [] and assumed(replica) == 0


def test_a_store_that_takes_small_transactions_alone_says_so() -> None:
    replica = a_replica("n1")
    put_node(replica.store, a_node("n1", cpu="400", pods="400"))
    put_group(replica.store, a_group(least=200))
    put_members(replica.store, 200)
    replica.settle()
    status, reason, message = scheduled(replica.store)
    assert (status, reason) == ("False", "SchedulerError")
    assert "the store refused to bind 200 pods at once" in message
    assert bound_of(replica) == [] and assumed(replica) == 0
