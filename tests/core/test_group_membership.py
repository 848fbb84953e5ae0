"""Who belongs to a pod group, what it needs before it is tried, and what it says meanwhile, over a model store.

Each test ends with an auditor's reading of the history: it found nothing.
"""

from __future__ import annotations

import pytest

from rayched.api import kinds
from rayched.store.codec import encode
from rayched.v1.storage_pb2 import Stored
from tests.core.builders import a_node
from tests.core.grouped import (
    MINUTES,
    a_group,
    a_member,
    bound_of,
    change_pod,
    group_key,
    later,
    put_group,
    put_members,
    scheduled,
)
from tests.core.leading import decide, key_of, put_node, put_pod, reason_of
from tests.core.replica import KEYS, Replica


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


@pytest.mark.row("G34", "G35")
@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"scheduler": "another"}, "have different schedulerNames: another and default-scheduler"),
        ({"priority": 5}, "has priority 5, its group 0"),
        ({"policy": "Never"}, "has preemptionPolicy Never, its group PreemptLowerPriority"),
    ],
    ids=["schedulerName", "priority", "preemptionPolicy"],
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


@pytest.mark.row("G8")
def test_members_that_are_being_deleted_do_not_count(leader: Replica) -> None:
    put_group(leader.store, a_group(least=2))
    put_members(leader.store, 2)
    leader.settle()
    for name in ("train-0", "train-1"):
        stored = Stored.FromString(leader.store.now[key_of(name)].value)
        stored.object.pod.metadata.deletion_timestamp.seconds = 1_700_000_000
        leader.store.put(key_of(name), stored.SerializeToString())
    put_members(leader.store, 1, first=2)
    leader.settle()
    later(leader, 5.0)
    assert bound_of(leader) == ["train-0", "train-1"]
    put_members(leader.store, 1, first=3)
    leader.settle()
    assert bound_of(leader) == ["train-0", "train-1", "train-2", "train-3"]


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
    leader.store.delete(key_of("train-1"))
    put_members(leader.store, 2, first=2, cpu="9")
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
    # The second member of one of them starts that one alone.
    put_members(leader.store, 1, first=2)
    leader.settle()
    assert sorted(leader.bound()) == ["train-0", "train-2"]
