"""Groups in the queue: one entry each, their order, and what wakes them, over a model store.

Each test ends with an auditor's reading of the history: it found nothing.
"""

from __future__ import annotations

import pytest

from rayched.scheduler.nominations import Nominations
from tests.core.builders import a_node, a_pod
from tests.core.grouped import (
    MINUTES,
    a_group,
    a_member,
    bound_of,
    later,
    put_group,
    put_members,
    revisions_of_bindings,
    scheduled,
)
from tests.core.leading import assumed, decide, put_node, put_pod
from tests.core.replica import Replica

UID = "uid-of-group-default-train"


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


@pytest.mark.row("G17")
def test_the_queue_knows_how_many_members_wait_as_of_the_last_failure(leader: Replica) -> None:
    put_group(leader.store, a_group(least=4))
    put_members(leader.store, 4, cpu="9")
    leader.settle()
    (entry,) = leader.queue.queue.places.queued.values()
    assert entry.members == 4
    put_members(leader.store, 5, first=4, cpu="9")
    later(leader, 10 * MINUTES)
    (entry,) = leader.queue.queue.places.queued.values()
    assert entry.members == 9


def test_a_gang_that_gathers_its_members_gives_up_the_nominations_of_those_alone_that_have_one(
    leader: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    nominations = leader.core.scheduler.nominations
    put_group(leader.store, a_group(least=99))
    put_members(leader.store, 1)
    leader.settle()
    record = leader.core.cache.pod("uid-train-0")
    assert record is not None
    nominations.nominate(record.uid, record.template, "n1")
    forgotten: list[str] = []
    real = Nominations.forget

    def counted(of: Nominations, uid: str) -> None:
        forgotten.append(uid)
        real(of, uid)

    monkeypatch.setattr(Nominations, "forget", counted)
    for number in range(1, 41):
        put_members(leader.store, 1, first=number)
        leader.settle()
    assert nominations.of == {} and forgotten == [record.uid]


@pytest.mark.parametrize("away", [True, False], ids=["after the answer", "before the answer"])
def test_a_group_that_leaves_while_it_is_being_handed_out_is_tried_once_when_it_is_back(leader: Replica, *, away: bool) -> None:
    put_group(leader.store, a_group(least=3))
    put_members(leader.store, 3, cpu="3")
    leader.watch()
    leader.turn()
    leader.exchange()
    # The queue has handed it out, and the answer is on its way.
    assert leader.from_queue and leader.from_queue[0].uids == (UID,)
    put_group(leader.store, a_group(least=4))
    leader.watch()
    if away:
        leader.exchanged()
    put_group(leader.store, a_group(least=3))
    leader.watch()
    leader.settle()
    assert leader.decided_about.count(UID) == 1
    assert not leader.queue.refused, "outcomes of what the queue does not wait for"
    link = leader.core.link
    assert link is not None and sum(link.counts.values()) == leader.core.groups.n_queued() == 1
    put_node(leader.store, a_node("n3"))
    later(leader, 2.0)
    assert len(bound_of(leader)) == 3
