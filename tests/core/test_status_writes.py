"""Why a pod waits stands in its status: written after bindings, when it changed, and not too often. As scripted histories."""

from __future__ import annotations

from tests.core.builders import a_node, a_pod
from tests.core.leading import a_replica, assumed, decide, nowhere, put_node, put_pod, reason_of


def test_a_binding_waits_for_the_status_write_under_way_and_is_built_on_its_result() -> None:
    replica = a_replica()
    put_pod(replica.store, a_pod("web"))
    decide(replica)
    replica.turn()
    assert len(replica.to_store) == 1, "the status is under way"
    put_node(replica.store, a_node("n1"))
    replica.clock.now += 2.0
    decide(replica)
    replica.turn()
    assert assumed(replica) == 1 and len(replica.to_store) == 1, "the binding does not overtake it"
    replica.arrive()
    replica.answer()
    replica.turn()
    assert replica.to_store == [], "nor is it built before the cache shows the pod as it is now"
    replica.settle()
    assert replica.bound() == {"web": "n1"} and replica.core.attempts["scheduled"] == 1


def test_a_binding_replaces_a_status_write_that_was_not_sent() -> None:
    replica = a_replica()
    put_pod(replica.store, a_pod("web", cpu="9"))
    replica.settle()
    put_node(replica.store, a_node("n1"))
    replica.clock.now += 2.0
    replica.settle()
    assert len(replica.core.statuses) == 1, "the second text waits for its time"
    put_node(replica.store, a_node("n2", cpu="16"))
    replica.clock.now += 2.0
    decide(replica)
    replica.turn()
    assert len(replica.to_store) == 1 and len(replica.core.statuses) == 0
    replica.clock.now += 10.0
    replica.turn()
    assert len(replica.to_store) == 1
    replica.settle()
    assert replica.bound() == {"web": "n2"}


def test_a_status_is_written_when_its_text_changed_and_at_most_once_in_five_seconds() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web", cpu="9"))
    replica.settle()
    assert reason_of(replica, "web") == ("Unschedulable", nowhere(1))
    revision = replica.store.revision
    # The same text again, after every event that may help the pod.
    for _ in range(5):
        put_node(replica.store, a_node("n1", cpu="3"))
        replica.clock.now += 11.0
        put_node(replica.store, a_node("n1", cpu="4"))
        replica.settle()
    assert replica.store.revision == revision + 10
    # Another text three times within five seconds: the newest is written when its time has come.
    replica.core.activate(("default/web",))
    for number in range(2, 5):
        put_node(replica.store, a_node(f"n{number}"))
        replica.core.activate(("default/web",))
        replica.settle()
    assert reason_of(replica, "web")[1] == nowhere(2)
    replica.clock.now += 4.9
    replica.settle()
    assert reason_of(replica, "web")[1] == nowhere(2)
    replica.clock.now += 0.2
    replica.settle()
    assert reason_of(replica, "web")[1] == nowhere(4)


def test_statuses_are_sent_after_all_bindings() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("too-large", cpu="9", priority=9))
    put_pod(replica.store, a_pod("web"))
    decide(replica)
    replica.turn()
    first, second = replica.to_store
    assert b"/web" in first.content and b"/too-large" in second.content


def test_a_status_that_meets_a_conflict_is_dropped() -> None:
    replica = a_replica()
    put_pod(replica.store, a_pod("web"))
    decide(replica)
    replica.turn()
    put_pod(replica.store, a_pod("web", labels={"changed": "yes"}))
    replica.arrive()
    replica.answer()
    replica.turn()
    assert replica.to_store == [] and len(replica.core.statuses) == 0


def test_a_gated_pod_says_so_until_its_gates_are_gone() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web", gates=["quota"]))
    replica.settle()
    assert reason_of(replica, "web") == ("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
    put_pod(replica.store, a_pod("web"))
    replica.settle()
    assert replica.bound() == {"web": "n1"}
