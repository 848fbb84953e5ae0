"""What is told of pending pods: order, place, who holds them, what would wake them, and how long they wait yet."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.api import kinds
from rayched.core.exchange.queue_listing import list_queue
from rayched.core.exchange.queue_session import GATHER_SECONDS
from rayched.v1.services_pb2 import ListQueueRequest, ListQueueResponse, PendingPod
from tests.core.builders import a_node, a_pod, stored
from tests.core.model_store import ModelStore
from tests.core.replica import KEYS, Clock, Replica


def put(store: ModelStore, name: str, **fields: Any) -> None:
    store.put(KEYS.object_key(kinds.POD, "default", name), stored(a_pod(name, **fields)))


@pytest.fixture
def replica() -> Replica:
    """A leader over one node of 4 CPUs: `large` was rejected, `gated` is gated; then a, b and c came, which nobody took yet."""
    store = ModelStore()
    store.put(KEYS.object_key(kinds.NODE, "", "n1"), stored(a_node("n1")))
    replica = Replica(store, Clock())
    replica.list()
    replica.lead()
    put(store, "large", cpu="6")
    replica.settle()
    put(store, "gated", gates=["wait"])
    replica.settle()
    replica.clock.now += 1.0
    for name, priority in (("a", 0), ("b", 5), ("c", 0)):
        put(store, name, priority=priority)
    replica.watch()
    link = replica.core.link
    assert link is not None
    link._hand_wanted = 0
    replica.turn()
    replica.exchange()
    return replica


def listed(replica: Replica, **request: Any) -> ListQueueResponse:
    return list_queue(replica.queue.queue, ListQueueRequest(**request), replica.clock.now)


def pod(replica: Replica, name: str) -> PendingPod:
    (found,) = listed(replica, name=name).pods
    return found


@pytest.mark.row("Q31", "Q58")
def test_pods_are_told_in_the_order_in_which_they_leave(replica: Replica) -> None:
    found = listed(replica)
    assert [(told.position, told.name, told.queue) for told in found.pods] == [
        (1, "b", "active"),
        (2, "a", "active"),
        (3, "c", "active"),
        (0, "large", "unschedulable"),
        (0, "gated", "gated"),
    ]
    assert dict(found.counts) == {"active": 3, "backoff": 0, "unschedulable": 1, "gated": 1, "in_flight": 0}
    assert found.total == 5


def test_a_pod_tells_who_holds_it_what_would_wake_it_and_when_it_is_tried_anyway(replica: Replica) -> None:
    large = pod(replica, "large")
    assert (list(large.held_by), large.attempts, large.came_by) == (["NodeResourcesFit"], 1, "ScheduleAttemptFailure")
    assert {"NodeAdd", "NodeUpdateNodeAllocatable"} <= set(large.would_wake)
    # Its backoff ends in the second in which it failed and one more, and is counted in whole seconds.
    assert (large.backoff_left_seconds, large.since_seconds, large.tried_in_seconds) == (1.0, 1.0, 299.0)
    gated = pod(replica, "gated")
    assert (list(gated.held_by), gated.attempts, gated.HasField("tried_in_seconds")) == (["SchedulingGates"], 0, False)
    assert gated.gating_reasons and gated.scheduler_name == "default-scheduler"
    assert (pod(replica, "b").priority, list(pod(replica, "b").held_by)) == (5, [])


def test_a_limit_a_name_and_a_namespace_leave_pods_out_and_keep_positions(replica: Replica) -> None:
    first = listed(replica, limit=2)
    assert ([told.name for told in first.pods], first.total) == (["b", "a"], 5)
    assert [(told.position, told.name) for told in listed(replica, name="c").pods] == [(3, "c")]
    assert listed(replica, namespace="default", limit=1).total == 5
    assert listed(replica, namespace="elsewhere").total == 0
    assert listed(replica, namespace="elsewhere", name="a").total == 0


def test_a_pod_that_is_being_scheduled_is_in_flight_and_one_that_is_bound_is_not_listed(replica: Replica) -> None:
    assert replica.queue.queue.pop(replica.clock.now) is not None
    assert [(told.position, told.queue) for told in listed(replica, name="b").pods] == [(0, "in_flight")]
    replica.lose_queue()
    replica.settle()
    # That they are bound is told with the next call, as nobody here waits for it.
    replica.clock.now += GATHER_SECONDS
    replica.settle()
    assert sorted(told.name for told in listed(replica).pods) == ["gated", "large"]


@pytest.mark.row("Q17")
def test_an_idle_scheduler_is_woken_by_a_pod_that_comes(replica: Replica) -> None:
    """Nobody blocks in the queue: whoever tells it of the pod asks for it in the same exchange."""
    replica.lose_queue()
    replica.settle()
    put(replica.store, "late")
    replica.watch()
    assert replica.turn(), "a call to the queue is made at once"
    replica.exchange()
    replica.exchanged()
    assert replica.core.link is not None and replica.core.link.take() == "uid-late"


@pytest.mark.row("Q65", "D3")
def test_taking_evaluating_and_binding_are_apart_and_one_pod_at_a_time(replica: Replica) -> None:
    """What is decided waits for its binding, while the next pod is decided on a snapshot that has the first one's room taken."""
    replica.lose_queue()
    replica.turn()
    replica.exchange()
    replica.exchanged()
    taken = replica.queue.queue.pending().in_flight
    assert taken == 4 and not replica.to_store
    assert replica.core.scheduler.occupancy.n_assumed == 0
    assert replica.core.decide()
    assert replica.core.scheduler.occupancy.n_assumed == 3 and not replica.bound()
    replica.turn()
    assert replica.to_store and not replica.bound()
    replica.arrive()
    assert set(replica.bound()) == {"a", "b", "c"}
