"""The queue's audit finds what is broken in the queue on purpose, names the pod, and brings the pod back on its way.

Each fault is planted into the real queue behind the real exchange. Without a fault the simulations and the slow model of the
queue run under the same audit and find nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from rayched.api import kinds
from rayched.framework.cluster_event import NODE_ADD
from rayched.queue.audit import Invariant
from rayched.queue.backoff import BackoffQueue
from rayched.queue.hints import Requeue
from rayched.queue.in_flight import InFlightPods
from rayched.queue.queued_pod import Place
from rayched.queue.requeue_matcher import RequeueMatcher
from rayched.queue.scheduling_queue import SchedulingQueue
from rayched.queue.unschedulable import UnschedulablePods
from tests.core.builders import a_node, a_pod, stored
from tests.core.model_store import ModelStore
from tests.core.replica import KEYS, Clock, Replica


def put_node(store: ModelStore, name: str, cpu: str) -> None:
    store.put(KEYS.object_key(kinds.NODE, "", name), stored(a_node(name, cpu=cpu)))


def put_pod(store: ModelStore, name: str, **fields: Any) -> None:
    store.put(KEYS.object_key(kinds.POD, "default", name), stored(a_pod(name, **fields)))


def with_a_pod_too_large(cpu: str = "6") -> Replica:
    """A leader over a node of 4 CPUs; a small pod is bound there, and the pod `large` waits for more."""
    store = ModelStore()
    put_node(store, "n1", "4")
    replica = Replica(store, Clock())
    replica.list()
    replica.lead()
    put_pod(store, "small")
    replica.settle()
    put_pod(store, "large", cpu=cpu)
    replica.settle()
    assert replica.queue.queue.pending().unschedulable == 1
    return replica


def pass_seconds(replica: Replica, seconds: int) -> None:
    for _ in range(seconds):
        replica.clock.now += 1.0
        replica.settle()


# -------------------------------------------------------------------------------------------------------------- faults


def skips_the_move_on_node_add(patch: pytest.MonkeyPatch) -> None:
    moving_all = SchedulingQueue.moving_all

    def deaf(self: SchedulingQueue, event: Any, now: float, **details: Any) -> Any:
        if event == NODE_ADD:
            return ()
        return (yield from moving_all(self, event, now, **details))

    patch.setattr(SchedulingQueue, "moving_all", deaf)


def loses_a_pod_on_update(patch: pytest.MonkeyPatch) -> None:
    def careless(self: SchedulingQueue, pending: Any, now: float, **_: Any) -> Any:
        self.delete(pending.uid, pending.key)
        return ()

    patch.setattr(SchedulingQueue, "update", careless)


def loses_the_timer_of_five_minutes(patch: pytest.MonkeyPatch) -> None:
    add = UnschedulablePods.add

    def forgetful(self: UnschedulablePods, pod: Any, flush_due: float | None) -> None:
        add(self, pod, flush_due)
        self._timeouts.delete(pod.key)

    patch.setattr(UnschedulablePods, "add", forgetful)


def never_ends_a_backoff(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BackoffQueue, "completed", lambda self, now: [])
    patch.setattr(BackoffQueue, "n_rejected", 0)


def sets_the_timer_too_late(patch: pytest.MonkeyPatch) -> None:
    add = UnschedulablePods.add
    patch.setattr(UnschedulablePods, "add", lambda self, pod, due: add(self, pod, None if due is None else due + 60.0))


def wakes_everybody_for_anything(patch: pytest.MonkeyPatch) -> None:
    def eager(self: RequeueMatcher, event: Any, old: Any, new: Any, found: Any, *, anew: bool) -> Any:
        found.update({pod.key: (pod, Requeue.AFTER_BACKOFF) for pod in self._places.pool})
        yield

    patch.setattr(RequeueMatcher, "worth", eager)


def keeps_pods_that_are_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SchedulingQueue, "delete", lambda self, uid, key: Place.NOWHERE)


# ------------------------------------------------------------------------------------------------------------ occasions


def a_node_comes(replica: Replica) -> None:
    put_node(replica.store, "n2", "8")


def a_node_comes_that_helps_nobody(replica: Replica) -> None:
    put_node(replica.store, "n2", "1")


def its_labels_change(replica: Replica) -> None:
    put_pod(replica.store, "large", cpu="6", labels={"changed": "yes"})


def it_is_deleted(replica: Replica) -> None:
    replica.store.delete(KEYS.object_key(kinds.POD, "default", "large"))


def nothing_happens(replica: Replica) -> None:
    pass


@dataclass(frozen=True)
class Fault:
    plant: Callable[[pytest.MonkeyPatch], None]
    occasion: Callable[[Replica], None]
    found: Invariant


FAULTS = [
    Fault(skips_the_move_on_node_add, a_node_comes, Invariant.MISSED_EVENT),
    Fault(loses_a_pod_on_update, its_labels_change, Invariant.LOST),
    Fault(loses_the_timer_of_five_minutes, nothing_happens, Invariant.TIMER),
    Fault(sets_the_timer_too_late, nothing_happens, Invariant.TIMER),
    Fault(never_ends_a_backoff, a_node_comes, Invariant.TIMER),
    Fault(wakes_everybody_for_anything, a_node_comes_that_helps_nobody, Invariant.CAUSE),
    Fault(keeps_pods_that_are_gone, it_is_deleted, Invariant.STRANGER),
]


@pytest.mark.row("Q15")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.plant.__name__)
def test_a_fault_of_the_queue_is_found_and_names_its_pod(fault: Fault) -> None:
    for planted in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if planted:
                fault.plant(patch)
            replica = with_a_pod_too_large()
            fault.occasion(replica)
            replica.settle()
            pass_seconds(replica, 3)
        found = set(replica.queue.violations)
        problems = replica.core.problems.take()
        assert found == ({fault.found.value} if planted else set()), problems
        assert all(problem.startswith("queue: pod default/large: ") for problem in problems)
        assert bool(problems) is planted


@pytest.mark.parametrize("fault", FAULTS[:6], ids=lambda fault: fault.plant.__name__)
def test_a_pod_that_was_found_misplaced_is_queued_again_and_gets_its_node(fault: Fault) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fault.plant(patch)
        replica = with_a_pod_too_large()
        fault.occasion(replica)
        replica.settle()
        assert "large" not in replica.bound()
        pass_seconds(replica, 3)
        assert replica.queue.violations
    pass_seconds(replica, 2)
    put_node(replica.store, "n3", "8")
    pass_seconds(replica, 12)
    assert "large" in replica.bound()
    assert replica.queue.queue.verify() == []
    violations = dict(replica.queue.violations)
    replica.clock.now += 10.0
    replica.settle()
    assert replica.queue.violations == violations, "what was repaired is sound"


def test_an_event_that_was_not_replayed_after_the_attempt_is_found() -> None:
    """A pod in flight while a node comes: the outcome of its attempt is told after the event."""
    for planted in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if planted:
                patch.setattr(InFlightPods, "record", lambda *_, **__: None)
            replica = with_a_pod_too_large()
            replica.clock.now += 301.0
            replica.turn()
            replica.exchange()
            replica.exchanged()
            assert replica.queue.queue.pending().in_flight == 1
            link, record = replica.core.link, replica.core.cache.pod("uid-large")
            assert link is not None and record is not None
            began, failure = link.end, replica.core.scheduler.schedule(_to_schedule(record), link.end, replica.clock.now)
            link.take()
            a_node_comes(replica)
            replica.watch()
            link.failed("uid-large", began, failure)  # type: ignore[arg-type]
            replica.turn()
            replica.exchange()
            assert (replica.queue.queue.pending().unschedulable == 1) is planted
            replica.clock.now += 1.1
            replica.settle()
        assert set(replica.queue.violations) == ({Invariant.MISSED_EVENT.value} if planted else set())
        replica.clock.now += 3.0
        replica.settle()
        assert replica.bound()["large"] == "n2"


def _to_schedule(record: Any) -> Any:
    from rayched.scheduler.scheduler import PodToSchedule

    return PodToSchedule(record.uid, record.name, record.template, record.pod)


def test_a_pod_that_the_queue_gave_out_and_forgot_comes_back() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InFlightPods, "begin", lambda *_: None)
        store = ModelStore()
        put_node(store, "n1", "4")
        replica = Replica(store, Clock())
        replica.list()
        replica.lead()
        put_pod(store, "large", cpu="6")
        replica.settle()
        assert replica.queue.refused == {"NotInFlight": 1} and replica.queue.queue.pending().total == 0
    replica.clock.now += 1.0
    replica.settle()
    assert replica.queue.violations == {Invariant.LOST.value: 1}
    a_node_comes(replica)
    replica.clock.now += 1.0
    replica.settle()
    assert replica.bound()["large"] == "n2"


@pytest.mark.row("Q15")
@pytest.mark.slow
def test_the_audit_costs_less_than_a_hundredth_of_the_time_it_has() -> None:
    """As many pods as it is asked about in a second, and as many events as one pod is judged by, take less than 10 ms."""
    store = ModelStore()
    put_node(store, "n1", "4")
    replica = Replica(store, Clock())
    replica.list()
    replica.lead()
    for number in range(1_000):
        put_pod(store, f"large-{number}", cpu="6")
    for number in range(20):
        put_node(store, f"tiny-{number}", "1")
    replica.settle()
    for number in range(20):
        put_node(store, f"tiny-{number}", "2")
    replica.settle()
    assert replica.queue.queue.pending().unschedulable == 1_000
    best = min(_seconds_of_audit(replica) for _ in range(5))
    assert best < 0.005, f"{best * 1000:.1f} ms for half a second's pods"
    assert not replica.queue.violations


def _seconds_of_audit(replica: Replica) -> float:
    """CPU time, of half a second: choosing the pods, examining them, and all of the exchange that is made for it."""
    replica.clock.now += 0.5
    began = time.thread_time()
    replica.turn()
    assert len(replica.to_queue[0].roll) == 75
    replica.exchange()
    replica.exchanged()
    return time.thread_time() - began
