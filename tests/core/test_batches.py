"""Which pods are queued, and how many are decided and written at a time. As scripted histories."""

from __future__ import annotations

import pytest

from leader.etcd_shim import rpc
from rayched.core.exchange.queue_session import GATHER_SECONDS
from tests.core.builders import a_pod
from tests.core.leading import a_replica, assumed, decide, having_decided, key_of, put_pod
from tests.core.replica import default_profiles


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
    assert replica.bound() == {"on-node": "n1", "web": "n1"}
    # That the attempt has ended waits for another pod; for a moment, for none comes.
    assert replica.queue.queue.pending().in_flight == 1
    replica.clock.now += GATHER_SECONDS
    replica.settle()
    assert replica.queue.queue.pending().total == 0


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


def test_a_thousand_pods_go_out_in_transactions_of_at_most_a_hundred_four_at_a_time() -> None:
    replica = a_replica(*(f"n{i}" for i in range(10)), profiles=default_profiles())
    for i in range(1000):
        put_pod(replica.store, a_pod(f"p{i}", cpu="10m"))
    replica.watch()
    for _ in range(60):
        replica.turn()
        replica.exchange()
        replica.exchanged()
        replica.core.decide()
    sent = [rpc.TxnRequest.FromString(send.content) for send in replica.to_store]
    assert len(sent) == 4 and max(len(request.success) for request in sent) == 100
    for _ in range(3):
        assert not replica.turn() or len(replica.to_store) == 4
    replica.settle()
    assert len(replica.bound()) == 1000


@pytest.mark.parametrize(("looks_a_second", "most"), [(1000, 8), (100, 1)], ids=["time is up", "one long attempt"])
def test_a_batch_ends_when_its_time_is_up_and_after_one_long_attempt(looks_a_second: int, most: int) -> None:
    reading = iter(range(10**6))
    replica = a_replica("n1", stopwatch=lambda: next(reading) / looks_a_second)
    for i in range(50):
        put_pod(replica.store, a_pod(f"p{i}", cpu="10m"))
    replica.watch()
    replica.turn()
    replica.exchange()
    replica.exchanged()
    replica.core.decide()
    assert 1 <= assumed(replica) <= most


def test_one_pod_is_decided_when_one_is_there() -> None:
    replica = having_decided(a_pod("web"))
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
