"""Preemptions as they are written: all of one or nothing, fenced, without anybody waiting who need not."""

from __future__ import annotations

import pytest

from rayched.store.transactions import ALSO_MAX
from rayched.v1.core_pb2 import Event
from rayched.v1.storage_pb2 import Stored
from tests.core.builders import a_pod
from tests.core.leading import key_of
from tests.core.preempting import (
    a_leader,
    ending,
    full_of,
    hard_budget,
    on_node,
    pod_of,
    put,
    stop_ending,
    until_sent,
)
from tests.core.replica import KEYS, Replica


@pytest.mark.row("F14", "F15", "K9.7")
def test_one_transaction_nominates_the_pod_and_tells_its_victims_to_end() -> None:
    replica = a_leader({"n1": full_of("a", "b", "c", "d")})
    put(replica.store, a_pod("vip", cpu="3", priority=10))
    replica.settle()
    vip = pod_of(replica, "vip")
    assert vip.status.nominated_node_name == "n1" and not vip.spec.node_name
    victims = [pod_of(replica, name) for name in ending(replica)]
    assert len(victims) == 3
    revisions = {replica.store.now[key_of(pod.metadata.name)].mod_revision for pod in (vip, *victims)}
    assert len(revisions) == 1
    for victim in victims:
        assert victim.metadata.deletion_grace_period_seconds == 30
        (condition,) = [found for found in victim.status.conditions if found.type == "DisruptionTarget"]
        assert (condition.status, condition.reason) == ("True", "PreemptionByScheduler")
        assert condition.message == "default-scheduler: preempting to accommodate a higher priority pod"


@pytest.mark.row("F1", "K9.8", "K9.9")
def test_the_pod_waits_for_its_victims_and_then_gets_the_room_while_others_go_on() -> None:
    replica = a_leader({"n1": full_of("a", "b", "c", "d"), "n2": full_of("x", cpu="3", priority=50)})
    put(replica.store, a_pod("vip", cpu="3", priority=10))
    replica.settle()
    assert len(ending(replica)) == 3
    put(replica.store, a_pod("small", cpu="1"))
    replica.settle()
    assert replica.bound()["small"] == "n2" and "vip" not in replica.bound()
    stop_ending(replica)
    # Whoever comes first now, the room is kept.
    put(replica.store, a_pod("late", cpu="2", priority=9))
    for _ in range(3):
        replica.settle()
        replica.clock.now += 11
    assert replica.bound()["vip"] == "n1" and "late" not in replica.bound()
    assert pod_of(replica, "late").status.nominated_node_name == ""


def test_a_pod_whose_victims_still_end_takes_no_more_victims() -> None:
    replica = a_leader({"n1": full_of("a", "b", "c", "d")})
    put(replica.store, a_pod("vip", cpu="3", priority=10))
    replica.settle()
    before = ending(replica)
    for _ in range(5):
        replica.clock.now += 400
        replica.settle()
    assert ending(replica) == before
    assert pod_of(replica, "vip").status.nominated_node_name == "n1"


@pytest.mark.row("K9.13")
def test_victims_have_an_event_that_names_node_and_cause() -> None:
    replica = a_leader({"n1": full_of("a", "b", cpu="2")}, events=True)
    put(replica.store, a_pod("vip", cpu="4", priority=10))
    for _ in range(3):
        replica.settle()
        replica.clock.now += 1
    found = [
        event
        for key, entry in replica.store.now.items()
        if b"/events/" in key and (event := Stored.FromString(entry.value).object.event).reason == "Preempted"
    ]
    assert sorted(event.involved_object.name for event in found) == ["a", "b"]
    assert all(isinstance(event, Event) and event.message == "Preempted by pod uid-vip on node n1" for event in found)


@pytest.mark.row("F15", "K9.8")
def test_a_lower_nomination_on_the_node_is_cleared_in_the_same_write() -> None:
    replica = a_leader({"n1": full_of("a", "b", cpu="2")})
    put(replica.store, a_pod("middle", cpu="3", priority=5))
    replica.settle()
    assert pod_of(replica, "middle").status.nominated_node_name == "n1"
    put(replica.store, on_node(a_pod("c", cpu="1"), "n1"))
    stop_ending(replica)
    put(replica.store, a_pod("vip", cpu="4", priority=10))
    until_sent(replica)
    replica.settle()
    assert pod_of(replica, "vip").status.nominated_node_name == "n1" or "vip" in replica.bound()
    assert pod_of(replica, "middle").status.nominated_node_name == ""


def with_a_victim_that_changed() -> Replica:
    """The preemption was sent, and has not arrived."""
    replica = a_leader({"n1": full_of("a", "b", cpu="2")})
    put(replica.store, a_pod("vip", cpu="4", priority=10))
    until_sent(replica)
    changed = pod_of(replica, "a")
    changed.metadata.labels["changed"] = "yes"
    put(replica.store, changed)
    return replica


def test_a_victim_that_changed_meanwhile_refuses_all_of_it_and_the_pod_is_tried_again() -> None:
    replica = with_a_victim_that_changed()
    assert replica.arrive() and replica.answer()
    assert ending(replica) == [] and pod_of(replica, "vip").status.nominated_node_name == ""
    replica.settle()
    assert ending(replica) == ["a", "b"] and pod_of(replica, "vip").status.nominated_node_name == "n1"
    assert pod_of(replica, "a").metadata.labels["changed"] == "yes"


def test_a_preemption_without_an_answer_is_sent_again_and_recognised() -> None:
    replica = a_leader({"n1": full_of("a", "b", cpu="2")})
    put(replica.store, a_pod("vip", cpu="4", priority=10))
    until_sent(replica)
    assert replica.arrive(lose_answer=True)
    revision = replica.store.revision
    assert ending(replica) == ["a", "b"]
    for _ in range(3):
        replica.clock.now += 1
        replica.settle()
    assert replica.store.revision == revision
    stop_ending(replica)
    for _ in range(3):
        replica.clock.now += 11
        replica.settle()
    assert replica.bound()["vip"] == "n1"


def test_a_preemption_of_an_epoch_that_is_over_ends_nobody() -> None:
    replica = a_leader({"n1": full_of("a", "b", cpu="2")})
    put(replica.store, a_pod("vip", cpu="4", priority=10))
    until_sent(replica)
    replica.store.put(KEYS.epoch, b"{}")
    assert replica.arrive() and replica.answer()
    replica.settle()
    assert ending(replica) == [] and not replica.core.term.leads


def test_more_victims_than_one_write_takes_follow_the_nomination() -> None:
    names = [f"v{number:02}" for number in range(ALSO_MAX + 12)]
    replica = a_leader({"n1": full_of(*names)}, cpu=str(len(names)))
    put(replica.store, a_pod("vip", cpu=str(len(names)), priority=10))
    until_sent(replica)
    assert replica.arrive()
    assert pod_of(replica, "vip").status.nominated_node_name == "n1"
    first = ending(replica)
    assert len(first) == ALSO_MAX
    # One of the others changes while its turn comes.
    other = next(name for name in names if name not in first)
    replica.answer()
    replica.turn()
    changed = pod_of(replica, other)
    changed.metadata.labels["changed"] = "yes"
    put(replica.store, changed)
    replica.settle()
    assert ending(replica) == names


def test_two_preemptors_never_end_more_than_both_need() -> None:
    replica = a_leader({"n1": full_of("a", "b", "c", "d")})
    for name in ("one", "two"):
        put(replica.store, a_pod(name, cpu="2", priority=10))
    for _ in range(6):
        replica.settle()
        stop_ending(replica)
        replica.clock.now += 11
    assert {name: node for name, node in replica.bound().items() if name in ("one", "two")} == {"one": "n1", "two": "n1"}
    assert len(replica.store.pods()) == 2


def test_a_victim_whose_binding_is_on_its_way_is_waited_for() -> None:
    replica = a_leader({"n1": []})
    put(replica.store, a_pod("low", cpu="4"))
    until_sent(replica)
    put(replica.store, a_pod("vip", cpu="4", priority=10))
    for _ in range(3):
        replica.watch()
        replica.turn()
        replica.exchange()
        replica.exchanged()
        replica.core.decide()
    replica.settle()
    assert replica.bound()["low"] == "n1"
    assert ending(replica) == ["low"] and pod_of(replica, "vip").status.nominated_node_name == "n1"


@pytest.mark.row("K9.8")
def test_a_new_leader_keeps_the_room_of_pods_that_were_nominated_before() -> None:
    replica = a_leader({"n1": full_of("a", "b", cpu="2")})
    put(replica.store, a_pod("vip", cpu="4", priority=10))
    replica.settle()
    replica.belief = None
    replica.turn()
    stop_ending(replica)
    gone = a_pod("lost", cpu="1", priority=20)
    gone.status.nominated_node_name = "gone"
    put(replica.store, gone)
    put(replica.store, a_pod("low", cpu="1"))
    successor = Replica(replica.store, replica.clock, "b")
    successor.list()
    successor.lead()
    nominations = successor.core.scheduler.nominations
    successor.watch()
    successor.turn()
    assert (nominations.node_of("uid-vip"), nominations.node_of("uid-lost")) == ("n1", "")
    put(successor.store, a_pod("lower", cpu="4", priority=1))
    for _ in range(3):
        successor.settle()
        successor.clock.now += 11
    assert "lower" not in successor.bound()


@pytest.mark.row("K9.13")
def test_a_victim_that_comes_back_ends_nobody_and_is_ended_no_second_time() -> None:
    replica = a_leader({"n1": full_of("b0", cpu="4", priority=1)})
    put(replica.store, a_pod("a", cpu="4", priority=10))
    evictions = 0
    for number in range(1, 8):
        replica.settle()
        for name in ending(replica):
            evictions += 1
            replica.store.delete(key_of(name))
            put(replica.store, a_pod(f"b{number}", cpu="4", priority=1))
        replica.clock.now += 11
    assert evictions == 1
    assert replica.bound() == {"a": "n1"}


@pytest.mark.row("K9.13")
def test_an_even_more_urgent_pod_takes_the_room_that_was_made_for_another() -> None:
    replica = a_leader({"n1": full_of("a", "b", cpu="2")})
    put(replica.store, a_pod("urgent", cpu="4", priority=10))
    replica.settle()
    put(replica.store, a_pod("more", cpu="4", priority=20))
    replica.settle()
    for _ in range(4):
        stop_ending(replica)
        replica.settle()
        replica.clock.now += 11
    assert replica.bound() == {"more": "n1"}
    assert pod_of(replica, "urgent").status.nominated_node_name == ""


@pytest.mark.row("F2", "K9.10")
def test_preemptors_at_once_never_take_more_from_a_hard_budget_than_it_allows() -> None:
    guarded = {node: [a_pod(f"db-{node}", cpu="4", labels={"app": "db"})] for node in ("n1", "n2", "n3")}
    replica = a_leader(guarded)
    key = hard_budget(replica.store, 2)
    replica.settle()
    for number in range(3):
        put(replica.store, a_pod(f"vip-{number}", cpu="4", priority=10))
    replica.settle()
    assert len(ending(replica)) == 2
    status = Stored.FromString(replica.store.now[key].value).object.pod_disruption_budget.status
    assert status.disruptions_allowed == 0 and sorted(status.disrupted_pods) == ending(replica)
    for _ in range(3):
        replica.clock.now += 400
        replica.settle()
    assert len(ending(replica)) == 2


def test_a_hard_budget_that_was_spent_by_others_meanwhile_refuses_the_preemption() -> None:
    replica = a_leader({"n1": [a_pod("db", cpu="4", labels={"app": "db"})]})
    hard_budget(replica.store, 1)
    replica.settle()
    put(replica.store, a_pod("vip", cpu="4", priority=10))
    until_sent(replica)
    hard_budget(replica.store, 0)
    replica.settle()
    assert ending(replica) == [] and pod_of(replica, "vip").status.nominated_node_name == ""


def test_a_queue_that_began_meanwhile_has_the_pod_once_the_cache_shows_what_refused_its_preemption() -> None:
    replica = with_a_victim_that_changed()
    assert replica.arrive()
    # Neither the answer nor the change has come yet.
    replica.lose_queue()
    assert replica.answer()
    while replica.turn() or replica.exchange() or replica.exchanged():
        pass
    core, link = replica.core, replica.core.link
    assert link is not None and core.bindings.has_lost("uid-vip") and not sum(link.counts.values())
    replica.settle()
    assert not core.bindings.has_lost("uid-vip")
    assert ending(replica) == ["a", "b"] and sum(link.counts.values()) == 1
