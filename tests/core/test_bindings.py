"""Bindings whose answers get lost, and bindings that lose a race. As scripted histories."""

from __future__ import annotations

import pytest

from leader.etcd_shim import rpc
from rayched.core.exchange.messages import GivenBack
from rayched.store.errors import RequestTooLarge, StoreFull
from rayched.store.list_watch_effects import Changed
from tests.core.builders import a_node, a_pod
from tests.core.leading import a_replica, assumed, decide, having_decided, key_of, put_node, put_pod, take_room
from tests.core.replica import KEYS

# --------------------------------------------------------------------------------------------------------- lost answers


def test_a_pod_whose_binding_has_no_answer_keeps_its_room_until_the_outcome_is_known() -> None:
    replica = having_decided(a_pod("first", cpu="3"))
    replica.turn()
    replica.arrive(lose_answer=True)
    replica.answer()
    put_pod(replica.store, a_pod("second", cpu="3"))
    # The second pod is seen, the first one's binding is not: its revision comes later.
    entry = replica.store.now[key_of("second")]
    replica.deliver(Changed((entry,), entry.mod_revision - 1))
    replica.turn()
    replica.exchange()
    replica.exchanged()
    replica.core.decide()
    assert assumed(replica) == 1 and replica.core.attempts["unschedulable"] == 1


def test_a_binding_without_an_answer_is_sent_again_and_recognised() -> None:
    replica = having_decided(a_pod("web"))
    replica.turn()
    replica.arrive(lose_answer=True)
    replica.answer()
    assert not replica.turn() or not replica.to_store
    replica.clock.now += 0.06
    replica.turn()
    assert len(replica.to_store) == 1
    replica.arrive()
    replica.answer()
    assert replica.core.attempts["scheduled"] == 1
    replica.settle()
    assert replica.bound() == {"web": "n1"} and assumed(replica) == 0


def test_a_binding_that_never_arrived_arrives_the_second_time_and_its_late_copy_changes_nothing() -> None:
    replica = having_decided(a_pod("web"), nodes=("n1", "n2"))
    replica.turn()
    replica.arrive(lose_request=True)
    replica.answer()
    replica.clock.now += 0.06
    replica.settle()
    bound = replica.bound()
    replica.arrive_late()
    assert replica.bound() == bound and replica.core.attempts["scheduled"] == 1


def test_a_binding_whose_trace_was_written_over_is_recognised_by_its_node() -> None:
    """An agent reported on the pod before its binding was asked about again, so the attempt id is gone."""
    replica = having_decided(a_pod("web", cpu="3"))
    replica.turn()
    replica.arrive(lose_answer=True)
    replica.answer()
    pod = replica.store.pod(key_of("web"))
    assert pod is not None
    pod.status.phase = "Running"
    put_pod(replica.store, pod)
    replica.clock.now += 0.06
    replica.turn()
    replica.arrive()
    replica.answer()
    assert replica.core.attempts["scheduled"] == 1
    assert assumed(replica) == 1, "the room of a bound pod was given back before it was seen"
    replica.settle()
    assert assumed(replica) == 0


def test_a_store_that_does_not_answer_stops_the_flow() -> None:
    replica = a_replica("n1", "n2", "n3", "n4")
    for i in range(8):
        put_pod(replica.store, a_pod(f"p{i}"))
        decide(replica)
        replica.turn()
        replica.arrive(lose_request=True)
        replica.answer()
    assert replica.core.window.room == 0 and len(replica.late) == 4 and replica.core.bindings.n_unsent == 4
    replica.clock.now += 1.0
    replica.settle()
    assert len(replica.bound()) == 8


def test_a_full_store_is_asked_again_later_and_a_write_it_cannot_take_spoils_no_other() -> None:
    replica = a_replica("n1")
    for name in ("a", "b"):
        put_pod(replica.store, a_pod(name))
    decide(replica)
    replica.turn()
    number = replica.to_store.pop().number
    replica.core.transaction_answered(number, StoreFull("etcd: database space exceeded"))
    replica.turn()
    assert replica.to_store == []
    replica.clock.now += 0.06
    replica.turn()
    number = replica.to_store.pop().number
    replica.core.transaction_answered(number, RequestTooLarge("etcd: request is too large"))
    replica.turn()
    first, second = replica.to_store
    replica.to_store.clear()
    replica.core.transaction_answered(first.number, RequestTooLarge("etcd: request is too large"))
    replica.core.transaction_answered(second.number, replica.store.txn(rpc.TxnRequest.FromString(second.content)))
    assert replica.core.attempts == {"error": 1, "scheduled": 1}


# ------------------------------------------------------------------------------------------------------------ conflicts


@pytest.mark.row("F11", "D4")
def test_a_pod_that_lost_a_race_is_queued_again_only_when_the_cache_shows_what_it_lost_to() -> None:
    replica = having_decided(a_pod("web"), nodes=("n1", "n2"))
    put_pod(replica.store, a_pod("web", labels={"changed": "yes"}))
    replica.turn()
    replica.arrive()
    replica.answer()
    assert assumed(replica) == 0, "a refused pod is forgotten at once"
    replica.turn()
    told = [entry for request in replica.to_queue for entry in request.entries]
    assert not any(isinstance(entry, GivenBack) for entry in told), "it was queued again although the cache has not moved"
    replica.settle()
    assert set(replica.bound()) == {"web"} and replica.core.attempts == {"scheduled": 1}


def test_a_node_that_changed_after_the_decision_refuses_the_binding_and_is_looked_at_again() -> None:
    replica = having_decided(a_pod("web"))
    put_node(replica.store, a_node("n1", unschedulable=True))
    put_node(replica.store, a_node("n2"))
    replica.turn()
    replica.arrive()
    replica.answer()
    assert replica.bound() == {}
    replica.settle()
    assert replica.bound() == {"web": "n2"}


def test_a_pod_deleted_under_its_binding_is_over() -> None:
    replica = having_decided(a_pod("web"))
    replica.turn()
    replica.store.delete(key_of("web"))
    replica.arrive()
    replica.settle()
    assert assumed(replica) == 0 and replica.queue.queue.pending().total == 0


def test_a_pod_that_changed_between_decision_and_binding_is_decided_anew() -> None:
    replica = having_decided(a_pod("web"), nodes=("n1", "n2"))
    put_pod(replica.store, a_pod("web", selector={"kubernetes.io/hostname": "n2"}))
    replica.watch()
    replica.turn()
    assert replica.to_store == [] and assumed(replica) == 0
    replica.settle()
    assert replica.bound() == {"web": "n2"}


def test_a_pod_that_somebody_else_put_on_the_very_node_was_not_bound_by_the_attempt_that_was_never_sent() -> None:
    replica = having_decided(a_pod("web"))
    assert assumed(replica) == 1
    foreign = a_pod("web")
    foreign.spec.node_name = "n1"
    put_pod(replica.store, foreign)
    replica.settle()
    assert replica.core.attempts == {} and replica.core.measures.under_way() == {}
    assert assumed(replica) == 0 and replica.core.scheduler.occupancy.n_observed == 1
    assert replica.core.scheduler.attempt("uid-web") is None


# ------------------------------------------------------------------------------------------- pods that name their node


def test_room_that_a_pod_took_unseen_before_the_binding_arrives_is_not_given_twice() -> None:
    replica = having_decided(a_pod("web", cpu="3"))
    replica.turn()
    assert len(replica.to_store) == 1
    take_room(replica.store, a_pod("own", cpu="2"), "n1")
    replica.settle()
    assert replica.bound() == {"own": "n1"} and assumed(replica) == 0
    assert replica.core.attempts["unschedulable"] == 1


def test_who_lost_room_to_such_a_pod_is_tried_again_only_when_that_pod_is_seen() -> None:
    replica = having_decided(a_pod("web", cpu="3"), nodes=("n1", "n2"))
    replica.turn()
    for name in ("n1", "n2"):
        take_room(replica.store, a_pod(f"own-{name}", cpu="1"), name)
    replica.arrive()
    replica.answer()
    for _ in range(5):
        replica.turn()
        replica.exchange()
        replica.exchanged()
        replica.core.decide()
    assert not replica.to_store and assumed(replica) == 0
    replica.settle()
    assert set(replica.bound()) == {"web", "own-n1", "own-n2"}


@pytest.mark.parametrize("cpu", ["1", "3"], ids=["fits beside it", "does not"])
def test_room_that_a_pod_took_between_decision_and_binding_is_looked_at_again(cpu: str) -> None:
    replica = having_decided(a_pod("web", cpu=cpu))
    take_room(replica.store, a_pod("own", cpu="2"), "n1")
    replica.watch()
    replica.turn()
    assert not replica.to_store, "what it was decided on holds no more"
    replica.settle()
    assert replica.bound() == ({"own": "n1", "web": "n1"} if cpu == "1" else {"own": "n1"})


def test_a_pod_that_took_room_before_the_decision_holds_up_nobody() -> None:
    replica = a_replica("n1")
    take_room(replica.store, a_pod("own", cpu="2"), "n1")
    put_pod(replica.store, a_pod("web", cpu="2"))
    replica.settle()
    assert replica.bound() == {"own": "n1", "web": "n1"} and replica.core.attempts == {"scheduled": 1}


def test_a_pod_that_names_a_node_that_is_not_there_holds_up_nobody() -> None:
    replica = having_decided(a_pod("web", cpu="3"))
    replica.turn()
    other = next(name for number in range(10) if KEYS.taken(name := f"gone-{number}") != KEYS.taken("n1"))
    take_room(replica.store, a_pod("own", cpu="2"), other)
    replica.settle()
    assert replica.bound()["web"] == "n1" and replica.core.attempts == {"scheduled": 1}
