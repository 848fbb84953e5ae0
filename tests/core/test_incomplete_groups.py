"""Gangs that lose members after they were bound: their room waits, they go first, and they may end as a whole.

Each test ends with an auditor's reading of the history: it found nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rayched.api.incomplete_groups import HOLD_ANNOTATION, RELEASE_ANNOTATION
from rayched.core.groups.group_preemption import run
from rayched.v1.workloads_pb2 import PodGroup
from tests.core.builders import a_pod
from tests.core.grouped import a_group, a_member, audited, bound_of, change_pod, later, put_group, put_members
from tests.core.leading import a_replica, decide, key_of, put_pod
from tests.core.replica import Replica


@pytest.fixture
def leader() -> Iterator[Replica]:
    """A leader over three nodes of 4 CPUs, with room for one member on each."""
    replica = a_replica("n1", "n2", "n3", events=True)
    yield replica
    findings = audited(replica.store).findings
    assert findings.total == 0, findings.first


def annotated(hold: int | None = None, release: int | None = None) -> PodGroup:
    group = a_group(least=3)
    if hold is not None:
        group.metadata.annotations[HOLD_ANNOTATION] = str(hold)
    if release is not None:
        group.metadata.annotations[RELEASE_ANNOTATION] = str(release)
    return group


def having_lost_one(leader: Replica, group: PodGroup) -> str:
    """A gang of three that ran, of which one has gone. Gives the node that this one had."""
    put_group(leader.store, group)
    put_members(leader.store, 3, cpu="3")
    leader.settle()
    node = leader.bound()["train-1"]
    leader.store.delete(key_of("train-1"))
    leader.settle()
    return node


def held(replica: Replica) -> list[str]:
    """Nodes on which room is held."""
    return [node for _, node in replica.core.scheduler.nominations.of.values()]


def ending(replica: Replica) -> list[str]:
    pods = replica.store.pods().values()
    return sorted(pod.metadata.name for pod in pods if pod.metadata.HasField("deletion_timestamp"))


def events_of(replica: Replica, reason: str) -> list[str]:
    entries = [entry.value for key, entry in replica.store.now.items() if b"/events/" in key]
    return [reason for value in entries if reason.encode() in value]


def test_a_gang_whose_binding_is_answered_before_it_is_seen_is_never_incomplete(leader: Replica) -> None:
    put_group(leader.store, annotated(release=0))
    put_members(leader.store, 3, cpu="3")
    decide(leader)
    leader.turn()
    assert leader.arrive() and leader.answer()
    # All three in one delivery: the cache has read the last before the group hears of the first.
    assert leader.watch()
    later(leader, 5.0)
    assert len(leader.bound()) == 3 and not ending(leader)
    assert events_of(leader, "GroupIncomplete") == []


@pytest.mark.row("G47")
def test_the_hole_of_an_incomplete_group_is_held_for_it_for_thirty_seconds(leader: Replica) -> None:
    having_lost_one(leader, annotated())
    put_pod(leader.store, a_pod("other", cpu="3"))
    leader.settle()
    later(leader, 29.0)
    assert "other" not in leader.bound()
    later(leader, 2.0)
    assert "other" in leader.bound()
    assert held(leader) == []


def test_a_pod_of_higher_priority_takes_the_hole_and_ends_nobody(leader: Replica) -> None:
    node = having_lost_one(leader, annotated())
    put_pod(leader.store, a_pod("high", cpu="3", priority=1_000))
    leader.settle()
    assert leader.bound()["high"] == node and ending(leader) == []


@pytest.mark.row("G47")
def test_a_member_that_comes_gets_the_hole_before_all_others_of_its_priority(leader: Replica) -> None:
    node = having_lost_one(leader, annotated())
    put_pod(leader.store, a_pod("other", cpu="3"))
    put_pod(leader.store, a_member("train-3", cpu="3"))
    leader.settle()
    assert leader.bound()["train-3"] == node
    assert "other" not in leader.bound() and held(leader) == []


@pytest.mark.row("G47")
def test_an_incomplete_group_is_tried_before_older_pods_of_its_priority(leader: Replica) -> None:
    having_lost_one(leader, annotated(hold=0))
    put_pod(leader.store, a_pod("older", cpu="3"))
    put_pod(leader.store, a_member("train-3", cpu="3"))
    leader.settle()
    assert "train-3" in leader.bound() and "older" not in leader.bound()


@pytest.mark.parametrize(("how", "is_held"), [("Succeeded", False), ("Failed", True)])
def test_room_is_held_for_members_that_were_lost_alone(leader: Replica, how: str, is_held: bool) -> None:
    put_group(leader.store, annotated())
    put_members(leader.store, 3, cpu="3")
    leader.settle()
    change_pod(leader.store, "train-1", phase=how)
    leader.settle()
    assert len(held(leader)) == int(is_held)


def test_what_is_held_is_free_again_once_the_group_is_whole_or_gone(leader: Replica) -> None:
    having_lost_one(leader, annotated())
    assert len(held(leader)) == 1
    put_group(leader.store, a_group(least=2))
    leader.settle()
    assert held(leader) == []


def test_what_is_held_ends_with_the_term(leader: Replica) -> None:
    having_lost_one(leader, annotated())
    leader.lead()
    leader.settle()
    assert held(leader) == []


def test_a_group_that_is_incomplete_says_so_by_an_event(leader: Replica) -> None:
    having_lost_one(leader, annotated())
    later(leader, 5.0)
    assert events_of(leader, "GroupIncomplete")


def test_a_whole_group_is_never_called_incomplete(leader: Replica) -> None:
    put_group(leader.store, annotated(release=1))
    put_members(leader.store, 3, cpu="3")
    leader.settle()
    later(leader, 30.0)
    assert not events_of(leader, "GroupIncomplete") and ending(leader) == []


@pytest.mark.row("G48")
def test_with_a_release_the_members_that_are_left_end_together(leader: Replica) -> None:
    having_lost_one(leader, annotated(release=60))
    later(leader, 59.0)
    assert ending(leader) == []
    later(leader, 2.0)
    assert ending(leader) == ["train-0", "train-2"]
    pod = leader.store.pod(key_of("train-0"))
    assert pod is not None
    reasons = {one.type: one.reason for one in pod.status.conditions}
    assert reasons["DisruptionTarget"] == "GroupIncomplete"


@pytest.mark.row("G48")
def test_a_group_that_is_whole_again_in_time_is_not_ended(leader: Replica) -> None:
    having_lost_one(leader, annotated(release=60))
    later(leader, 50.0)
    put_members(leader.store, 1, first=3, cpu="3")
    leader.settle()
    later(leader, 60.0)
    assert ending(leader) == [] and len(bound_of(leader)) == 3


@pytest.mark.row("G48")
def test_without_a_release_an_incomplete_group_goes_on_for_ever(leader: Replica) -> None:
    having_lost_one(leader, annotated())
    later(leader, 100_000.0)
    assert ending(leader) == []


@pytest.mark.row("G48")
def test_the_next_leader_finishes_at_once_what_was_begun(leader: Replica) -> None:
    having_lost_one(leader, annotated(release=60))
    leader.clock.now += 61.0
    leader.turn()
    (send,) = [send for send in leader.to_store if send.op == "group-release"]
    # One of the two has changed meanwhile, so that it is not ended by this write.
    change_pod(leader.store, "train-2", message="running")
    leader.to_store.clear()
    leader.stored(send)
    assert ending(leader) == ["train-0"]
    successor = Replica(leader.store, leader.clock, "b")
    successor.list()
    successor.lead()
    successor.settle()
    assert ending(successor) == ["train-0", "train-2"]


def test_an_explanation_counts_the_room_that_is_held_for_the_group_itself_and_it_stays_held(leader: Replica) -> None:
    lost = having_lost_one(leader, annotated())
    put_group(leader.store, a_group(least=4))
    put_members(leader.store, 2, first=3, cpu="3")
    leader.settle()
    assert len(bound_of(leader)) == 2 and held(leader) == [lost]
    told = run(leader.core.groups.looks.of("default/train"))
    assert told is not None and (told.fit, told.waiting) == (1, 2)
    assert held(leader) == [lost]
