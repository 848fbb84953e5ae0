"""The rules that make the scheduler safe, one scripted history each. Nothing here happens by itself: see `Replica`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rayched.actors.messages import GivenBack
from rayched.api import kinds
from rayched.framework.cycle_state import CycleState
from rayched.framework.status import SUCCESS, Code, Status
from rayched.snapshot.columns import Log
from rayched.store.entries import Entry
from rayched.store.errors import RequestTooLarge, StoreFull
from rayched.store.list_watch import Changed, Listed, Resumed
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.storage_pb2 import Stored
from tests.actors.builders import a_node, a_pod, stored
from tests.actors.model_store import ModelStore
from tests.actors.replica import KEYS, Clock, Replica, default_profiles


def put_node(store: ModelStore, node: Node) -> int:
    return store.put(KEYS.object_key(kinds.NODE, "", node.metadata.name), stored(node))


def key_of(name: str) -> bytes:
    return KEYS.object_key(kinds.POD, "default", name)


def put_pod(store: ModelStore, pod: Pod) -> int:
    return store.put(key_of(pod.metadata.name), stored(pod))


def reason_of(replica: Replica, name: str) -> tuple[str, str]:
    """Reason and message of the stored pod's condition."""
    pod = replica.store.pod(key_of(name))
    assert pod is not None
    (condition,) = pod.status.conditions
    return condition.reason, condition.message


def nowhere(n_nodes: int) -> str:
    """What a pod is told that asks for more CPU than any node has."""
    none = f"0/{n_nodes} nodes are available: {n_nodes}"
    return f"{none} Insufficient cpu. preemption: {none} Preemption is not helpful for scheduling."


def a_replica(*nodes: str, **options: object) -> Replica:
    """A leader at rest over these nodes of 4 CPUs."""
    store = ModelStore()
    for name in nodes:
        put_node(store, a_node(name))
    replica = Replica(store, Clock(), **options)  # type: ignore[arg-type]
    replica.list()
    replica.lead()
    replica.settle()
    return replica


def decide(replica: Replica) -> None:
    """Let the leader see the store, fetch its pods and decide them; nothing is written yet."""
    replica.watch()
    replica.turn()
    while replica.exchange():
        replica.exchanged()
        replica.turn()
    replica.exchanged()
    replica.core.decide()


def assumed(replica: Replica) -> int:
    return replica.core.scheduler.occupancy.n_assumed


# ------------------------------------------------------------------------------------------------------------ freshness


@pytest.mark.row("L32")
def test_nothing_is_decided_before_the_watch_has_delivered_the_epochs_own_event() -> None:
    replica = a_replica("n1")
    replica.belief = None
    replica.settle()
    put_pod(replica.store, a_pod("web"))
    replica.watch()
    replica.lead()
    # A progress notification says how far etcd is, not how far we have read.
    replica.deliver(Resumed(replica.store.revision))
    for _ in range(3):
        assert not replica.turn() and not replica.core.decide()
    replica.watch()
    replica.settle()
    assert replica.bound() == {"web": "n1"}


def test_a_list_at_the_epochs_revision_or_later_is_as_fresh_as_its_event() -> None:
    store = ModelStore()
    put_node(store, a_node("n1"))
    put_pod(store, a_pod("web"))
    replica = Replica(store, Clock())
    replica.lead()
    assert not replica.turn()
    replica.list()
    replica.settle()
    assert replica.bound() == {"web": "n1"}


# --------------------------------------------------------------------------------------------------------------- belief


def test_what_was_decided_is_not_sent_when_belief_ends_before_the_send() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web"))
    decide(replica)
    assert assumed(replica) == 1
    replica.belief = None
    replica.turn()
    assert replica.to_store == [] and assumed(replica) == 0 and replica.core.drained


def test_nothing_is_decided_when_belief_ends_before_the_batch() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web"))
    replica.watch()
    replica.turn()
    replica.exchange()
    replica.exchanged()
    replica.belief = None
    assert not replica.core.decide()
    assert replica.core.link is None and assumed(replica) == 0


def test_it_is_drained_only_when_the_answers_of_what_was_sent_are_there() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web"))
    decide(replica)
    replica.turn()
    assert len(replica.to_store) == 1 and not replica.core.drained
    replica.belief = None
    replica.turn()
    assert not replica.core.term.leads and not replica.core.drained
    replica.arrive()
    replica.answer()
    assert replica.core.drained
    assert replica.bound() == {"web": "n1"}


def test_belief_that_returns_under_the_same_epoch_keeps_what_is_under_way() -> None:
    replica = a_replica("n1")
    epoch = replica.belief
    put_pod(replica.store, a_pod("web"))
    decide(replica)
    replica.turn()
    replica.belief = None
    replica.turn()
    assert assumed(replica) == 1
    replica.belief = epoch
    replica.turn()
    while replica.exchange():
        replica.exchanged()
        replica.turn()
    assert not replica.core.decide(), "a pod that is being bound was tried again"
    replica.settle()
    assert replica.bound() == {"web": "n1"} and replica.core.attempts["scheduled"] == 1


def test_a_new_epoch_voids_every_assumption() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web", cpu="4"))
    decide(replica)
    replica.turn()
    replica.arrive(lose_request=True)
    replica.answer()
    replica.lead()
    replica.watch()
    replica.turn()
    assert assumed(replica) == 0
    replica.settle()
    assert replica.bound() == {"web": "n1"}
    replica.arrive_late()
    assert replica.store.pod(key_of("web")).spec.node_name == "n1"  # type: ignore[union-attr]


@pytest.mark.row("L32")
def test_a_refusal_by_the_guard_ends_the_term_whatever_the_belief_says() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web"))
    decide(replica)
    replica.store.put(KEYS.epoch, b"somebody else")
    replica.turn()
    replica.arrive()
    replica.answer()
    replica.turn()
    assert not replica.core.term.leads and replica.bound() == {}
    for _ in range(3):
        assert not replica.turn() and not replica.core.decide()


# --------------------------------------------------------------------------------------------------------- lost answers


def test_a_pod_whose_binding_has_no_answer_keeps_its_room_until_the_outcome_is_known() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("first", cpu="3"))
    decide(replica)
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
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web"))
    decide(replica)
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
    replica = a_replica("n1", "n2")
    put_pod(replica.store, a_pod("web"))
    decide(replica)
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
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web", cpu="3"))
    decide(replica)
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
    replica.core.transaction_answered(second.number, replica.store.txn(second.request))
    assert replica.core.attempts == {"error": 1, "scheduled": 1}


# ------------------------------------------------------------------------------------------------------------ conflicts


@pytest.mark.row("F11", "D4")
def test_a_pod_that_lost_a_race_is_queued_again_only_when_the_cache_shows_what_it_lost_to() -> None:
    replica = a_replica("n1", "n2")
    put_pod(replica.store, a_pod("web"))
    decide(replica)
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
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web"))
    decide(replica)
    put_node(replica.store, a_node("n1", unschedulable=True))
    put_node(replica.store, a_node("n2"))
    replica.turn()
    replica.arrive()
    replica.answer()
    assert replica.bound() == {}
    replica.settle()
    assert replica.bound() == {"web": "n2"}


def test_a_pod_deleted_under_its_binding_is_over() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web"))
    decide(replica)
    replica.turn()
    replica.store.delete(key_of("web"))
    replica.arrive()
    replica.settle()
    assert assumed(replica) == 0 and replica.queue.queue.pending().total == 0


def test_a_pod_that_changed_between_decision_and_binding_is_decided_anew() -> None:
    replica = a_replica("n1", "n2")
    put_pod(replica.store, a_pod("web"))
    decide(replica)
    put_pod(replica.store, a_pod("web", selector={"kubernetes.io/hostname": "n2"}))
    replica.watch()
    replica.turn()
    assert replica.to_store == [] and assumed(replica) == 0
    replica.settle()
    assert replica.bound() == {"web": "n2"}


# ------------------------------------------------------------------------------------------------------- status writes


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
    assert b"/web" in first.request.SerializeToString() and b"/too-large" in second.request.SerializeToString()


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


# --------------------------------------------------------------------------------------------- which pods, and how many


@pytest.mark.row("D2", "D5", "K1.5")
def test_only_pods_that_wait_for_one_of_our_profiles_are_queued() -> None:
    replica = a_replica("n1")
    on_node, over, leaving = a_pod("on-node"), a_pod("over"), a_pod("leaving")
    on_node.spec.node_name = "n1"
    over.status.phase = "Failed"
    leaving.metadata.deletion_timestamp.seconds = 1
    for pod in (on_node, over, leaving, a_pod("foreign", scheduler="somebody-else")):
        put_pod(replica.store, pod)
    replica.settle()
    assert replica.queue.queue.pending().total == 0 and replica.core.attempts == {}
    assert replica.core.scheduler.occupancy.n_observed == 1, "a pod that somebody else put on a node takes up its room"
    put_pod(replica.store, a_pod("web"))
    replica.settle()
    assert replica.bound() == {"on-node": "n1", "web": "n1"} and replica.queue.queue.pending().total == 0


@pytest.mark.row("F10")
def test_the_next_pod_sees_the_room_that_an_assumed_one_has_taken() -> None:
    replica = a_replica("n1")
    for name in ("a", "b"):
        put_pod(replica.store, a_pod(name, cpu="3"))
    decide(replica)
    assert assumed(replica) == 1 and replica.core.attempts["unschedulable"] == 1


def test_room_is_free_again_when_a_pod_is_over_or_gone() -> None:
    replica = a_replica("n1")
    for name in ("a", "b"):
        put_pod(replica.store, a_pod(name, cpu="4"))
    replica.settle()
    (first,) = replica.bound()
    pod = replica.store.pod(key_of(first))
    assert pod is not None
    pod.status.phase = "Succeeded"
    put_pod(replica.store, pod)
    replica.clock.now += 2.0
    replica.settle()
    assert set(replica.bound()) == {"a", "b"}


def test_a_thousand_pods_go_out_in_transactions_of_a_hundred_four_at_a_time() -> None:
    replica = a_replica(*(f"n{i}" for i in range(10)), profiles=default_profiles())
    for i in range(1000):
        put_pod(replica.store, a_pod(f"p{i}", cpu="10m"))
    replica.watch()
    for _ in range(60):
        replica.turn()
        replica.exchange()
        replica.exchanged()
        replica.core.decide()
    assert [len(send.request.success) for send in replica.to_store[1:]] == [100, 100, 100] and len(replica.to_store) == 4
    for _ in range(3):
        assert not replica.turn() or len(replica.to_store) == 4
    replica.settle()
    assert len(replica.bound()) == 1000


def test_a_batch_ends_when_its_time_is_up() -> None:
    reading = iter(range(10**6))
    replica = a_replica("n1", stopwatch=lambda: next(reading) / 1000)
    for i in range(50):
        put_pod(replica.store, a_pod(f"p{i}", cpu="10m"))
    replica.watch()
    replica.turn()
    replica.exchange()
    replica.exchanged()
    replica.core.decide()
    assert 1 <= assumed(replica) <= 8


def test_one_pod_is_decided_when_one_is_there() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web"))
    decide(replica)
    assert assumed(replica) == 1


@pytest.mark.row("K9.6", "Q28")
def test_pods_in_the_hand_go_back_when_a_more_urgent_one_arrives() -> None:
    replica = a_replica("n1")
    for i in range(6):
        put_pod(replica.store, a_pod(f"low{i}", cpu="1"))
    replica.watch()
    replica.turn()
    replica.exchange()
    replica.exchanged()
    put_pod(replica.store, a_pod("urgent", cpu="3", priority=100))
    decide(replica)
    replica.settle()
    assert "urgent" in replica.bound() and len(replica.bound()) == 2
    assert replica.queue.queue.find("default/low5").attempts <= 1  # type: ignore[union-attr]


def test_pods_handed_out_before_the_queue_knew_of_a_more_urgent_one_go_back() -> None:
    replica = a_replica("n1")
    for i in range(6):
        put_pod(replica.store, a_pod(f"low{i}", cpu="1"))
    replica.watch()
    replica.turn()
    put_pod(replica.store, a_pod("urgent", cpu="3", priority=100))
    replica.watch()
    replica.exchange()
    replica.exchanged()
    replica.settle()
    assert "urgent" in replica.bound()


# --------------------------------------------------------------------------------------------------- what breaks, parks


def test_one_poisoned_object_among_many_parks_itself() -> None:
    replica = a_replica("n1", "n2")
    for i in range(40):
        put_pod(replica.store, a_pod(f"p{i}", cpu="100m"))
        if i == 20:
            replica.store.put(key_of("bad-bytes"), b"\xff\xff")
            broken = a_pod("bad-quantity")
            broken.spec.containers[0].resources.requests["cpu"].string = "two"
            put_pod(replica.store, broken)
            wrong = a_node("bad-node")
            wrong.status.allocatable["cpu"].string = "many"
            put_node(replica.store, wrong)
            replica.store.put(key_of("bad-twin"), stored(a_pod("bad-twin", uid="uid-p0")))
    replica.settle()
    assert len(replica.bound()) == 40
    assert len(replica.core.cache.poisoned) == 4
    assert len(replica.core.take_problems()) == 4 and replica.core.take_problems() == []
    assert "uid" in replica.core.cache.poisoned[key_of("bad-twin")]


def test_a_node_that_becomes_unreadable_is_used_no_more_and_a_bound_pod_keeps_its_room() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web", cpu="3"))
    replica.settle()
    replica.store.put(key_of("web"), b"\xff\xff")
    put_pod(replica.store, a_pod("other", cpu="3"))
    replica.watch()
    decide(replica)
    assert replica.core.attempts["unschedulable"] == 1, "the room of the unreadable pod was given away"
    replica.store.put(KEYS.object_key(kinds.NODE, "", "n1"), b"\xff\xff")
    replica.watch()
    assert replica.core.snapshot.n_nodes == 0


class Moody:
    """A Filter plugin that raises for one pod's label."""

    name = "Moody"
    reads = Log.USAGE

    def key(self, pod: Pod) -> str | None:
        if pod.metadata.labels.get("mood") == "bad":
            raise RuntimeError("not today")
        return None

    def prepare(self, pod: Pod) -> None: ...

    def filter(self, state: object, rows: object) -> None: ...

    def reasons(self, state: object, rows: object, codes: object) -> list[object]:
        return []


@pytest.mark.row("D4", "K6.3")
def test_a_plugin_that_raises_for_one_pod_ends_its_attempt_and_no_other() -> None:
    (profile,) = default_profiles().values()
    moody = replace(profile, filter=(Moody(), *profile.filter))  # type: ignore[arg-type]
    replica = a_replica("n1", profiles={moody.scheduler_name: moody})
    put_pod(replica.store, a_pod("poison", labels={"mood": "bad"}, priority=9))
    for i in range(3):
        put_pod(replica.store, a_pod(f"p{i}"))
    replica.settle()
    assert set(replica.bound()) == {"p0", "p1", "p2"}
    reason, message = reason_of(replica, "poison")
    assert reason == "SchedulerError" and "Moody" in message and "not today" in message
    assert replica.queue.queue.pending().error_backoff == 1


# -------------------------------------------------------------------------------------------------- queue and sessions


def test_when_the_queue_dies_all_begins_anew_from_the_cache_and_nothing_is_lost_or_tried_twice() -> None:
    replica = a_replica("n1")
    for i in range(3):
        put_pod(replica.store, a_pod(f"p{i}", cpu="1"))
    put_pod(replica.store, a_pod("too-large", cpu="9"))
    decide(replica)
    replica.turn()
    session = replica.core.link.session  # type: ignore[union-attr]
    replica.exchange()
    late = replica.from_queue.pop() if replica.from_queue else None
    replica.lose_queue()
    assert replica.core.link.session > session  # type: ignore[union-attr]
    if late is not None:
        replica.core.exchange_answered(late)
    replica.settle()
    assert len(replica.bound()) == 3 and replica.core.attempts["scheduled"] == 3
    assert replica.queue.queue.pending().total == 1 and replica.queue.queue.verify() == []


def test_pods_that_a_dead_queue_handed_out_are_not_taken_into_the_hand() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web"))
    replica.watch()
    replica.turn()
    replica.exchange()
    (late,) = replica.from_queue
    assert late.uids == ("uid-web",)
    replica.lose_queue()
    replica.core.exchange_answered(late)
    assert not replica.core.decide()
    replica.settle()
    assert replica.bound() == {"web": "n1"}


def test_a_request_of_an_old_session_gets_no_pods() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web"))
    replica.watch()
    replica.turn()
    (request,) = replica.to_queue
    replica.queue.exchange(replace(request, session=request.session + 1, entries=(), want=0))
    answer = replica.queue.exchange(request)
    assert answer.uids == () and answer.session == request.session + 1


def test_at_takeover_pods_are_queued_oldest_first_and_the_urgent_ones_before_them() -> None:
    store = ModelStore()
    put_node(store, a_node("n1", cpu="100"))
    for name, priority in (("c", 0), ("a", 0), ("urgent", 7), ("b", 0)):
        put_pod(store, a_pod(name, priority=priority))
    replica = Replica(store, Clock())
    replica.list()
    replica.lead()
    replica.watch()
    replica.turn()
    replica.exchange()
    (answer,) = replica.from_queue
    assert answer.uids == ("uid-urgent", "uid-c", "uid-a", "uid-b")


# ----------------------------------------------------------------------------------------------------------------- list


def test_a_relist_is_taken_as_the_changes_that_were_missed() -> None:
    replica = a_replica("n1", "n2")
    put_pod(replica.store, a_pod("stays", selector={"kubernetes.io/hostname": "n1"}, cpu="3"))
    put_pod(replica.store, a_pod("leaves", selector={"kubernetes.io/hostname": "n2"}, cpu="3"))
    put_pod(replica.store, a_pod("waits", cpu="4"))
    replica.settle()
    assert set(replica.bound()) == {"stays", "leaves"}
    replica.store.delete(key_of("leaves"))
    put_pod(replica.store, a_pod("new", selector={"kubernetes.io/hostname": "n1"}))
    recreated = a_pod("waits", cpu="4", uid="another")
    replica.store.delete(key_of("waits"))
    put_pod(replica.store, recreated)
    replica.clock.now += 3.0
    replica.list()
    replica.settle()
    assert replica.bound() == {"stays": "n1", "new": "n1", "waits": "n2"}
    assert replica.core.scheduler.occupancy.n_observed == 3


def test_a_list_shows_signs_of_life_and_counts_pods_whose_node_comes_later_in_it() -> None:
    pods = [a_pod(f"p{i}") for i in range(2000)]
    for pod in pods:
        pod.spec.node_name = "n1"
    entries = [Entry(key_of(pod.metadata.name), stored(pod), 2, 2) for pod in pods]
    node = Entry(KEYS.object_key(kinds.NODE, "", "n1"), stored(a_node("n1", pods="5000")), 3, 3)
    replica = Replica(ModelStore(), Clock())
    signs: list[int] = []
    replica.core.cache._progress = lambda: signs.append(1)
    replica.deliver(Listed((*entries, node), 3))
    assert len(signs) >= 3 and replica.core.snapshot.n_pods == 2000
    assert replica.core.snapshot.requested[0, 0] == 2_000_000


# --------------------------------------------------------------------------------------------------------------- permit


class Doorman:
    """A Permit plugin that lets pods with a label wait."""

    name = "Doorman"

    def __init__(self) -> None:
        self.handle = None

    def use_permit_handle(self, handle):  # type: ignore[no-untyped-def]
        self.handle = handle

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, float]:
        return (Status(Code.WAIT), 10.0) if pod.metadata.labels.get("wait") else (SUCCESS, 0.0)


def with_doorman() -> tuple[Replica, Doorman]:
    doorman = Doorman()
    (profile,) = default_profiles().values()
    changed = replace(profile, permit=(doorman,))
    return a_replica("n1", profiles={changed.scheduler_name: changed}), doorman


@pytest.mark.row("F9", "K6.6", "K6.1")
def test_a_pod_that_waits_holds_its_room_and_holds_up_nobody() -> None:
    replica, doorman = with_doorman()
    put_pod(replica.store, a_pod("waits", cpu="3", labels={"wait": "yes"}))
    put_pod(replica.store, a_pod("small", cpu="1"))
    put_pod(replica.store, a_pod("large", cpu="2"))
    replica.settle()
    assert replica.bound() == {"small": "n1"}
    assert [pod.key for pod in replica.core.scheduler.waiting.waiting()] == ["default/waits"]
    assert doorman.handle is not None
    doorman.handle.allow("uid-waits", "Doorman")
    replica.settle()
    assert set(replica.bound()) == {"small", "waits"}


@pytest.mark.row("K6.6")
def test_a_wait_that_times_out_gives_its_room_back_and_names_the_plugin() -> None:
    replica, _ = with_doorman()
    put_pod(replica.store, a_pod("waits", cpu="3", labels={"wait": "yes"}))
    replica.settle()
    assert replica.turn_at == replica.clock.now + 10.0
    replica.clock.now += 10.0
    replica.settle()
    assert assumed(replica) == 0
    assert reason_of(replica, "waits")[1] == (
        "0/1 nodes are available: 1 rejected due to timeout after waiting 10s at plugin Doorman."
    )
    pod = replica.queue.queue.find("default/waits")
    assert pod is not None and pod.rejectors == {"Doorman"}


@pytest.mark.parametrize("deleted", [False, True])
def test_room_that_an_attempt_held_and_gave_back_wakes_those_who_lacked_it(deleted: bool) -> None:
    """It never showed in the store, so no change there could wake them; the pod itself is not woken by its own room."""
    replica, _ = with_doorman()
    put_pod(replica.store, a_pod("waits", cpu="3", labels={"wait": "yes"}))
    replica.settle()
    put_pod(replica.store, a_pod("large", cpu="2"))
    replica.settle()
    assert replica.queue.queue.pending().unschedulable == 1
    if deleted:
        replica.store.delete(key_of("waits"))
    replica.clock.now += 10.0
    replica.settle()
    assert replica.bound() == {"large": "n1"}
    assert replica.queue.queue.pending().unschedulable == (0 if deleted else 1)


@pytest.mark.row("D12", "D13", "Q42")
def test_what_happened_since_its_cycle_began_is_replayed_to_a_pod_that_failed_and_nothing_earlier() -> None:
    for node_comes_during_the_attempt in (True, False):
        replica, _ = with_doorman()
        put_pod(replica.store, a_pod("waits", labels={"wait": "yes"}))
        if not node_comes_during_the_attempt:
            put_node(replica.store, a_node("n2", cpu="1"))
        replica.settle()
        if node_comes_during_the_attempt:
            put_node(replica.store, a_node("n2", cpu="1"))
            replica.settle()
        replica.clock.now += 10.0
        replica.settle()
        counts = replica.queue.queue.pending()
        woken = counts.backoff + counts.active + counts.in_flight
        assert (woken, counts.unschedulable) == ((1, 0) if node_comes_during_the_attempt else (0, 1))


def test_a_waiting_pod_that_is_deleted_gives_its_room_back() -> None:
    replica, doorman = with_doorman()
    put_pod(replica.store, a_pod("waits", labels={"wait": "yes"}))
    replica.settle()
    replica.store.delete(key_of("waits"))
    replica.settle()
    assert assumed(replica) == 0 and len(replica.core.scheduler.waiting) == 0
    assert doorman.handle is not None and not doorman.handle.allow("uid-waits", "Doorman")


def test_what_a_leader_writes_says_under_which_epoch_and_on_what_it_was_decided() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web"))
    decided_at = replica.store.revision
    replica.settle()
    write = Stored.FromString(replica.store.now[key_of("web")].value).leader_write
    assert (write.op, write.epoch, write.decided_at_revision) == ("bind", replica.belief, decided_at)
    assert write.attempt.startswith("a-")
    pod = replica.store.pod(key_of("web"))
    assert pod is not None
    (condition,) = pod.status.conditions
    assert (condition.type, condition.status) == ("PodScheduled", "True")
