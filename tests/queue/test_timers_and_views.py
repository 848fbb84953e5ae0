"""What time alone brings about, what the queue tells about itself, and that a damaged queue is found out."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.framework.cluster_event import (
    EVERY_EVENT,
    NODE_ADD,
)
from rayched.framework.queueing_hints import Registration
from rayched.plugins.in_tree import IN_TREE
from rayched.queue.backoff import BackoffPolicy
from rayched.queue.hints import HintTable, registrations_of
from rayched.queue.places import QueueSettings
from rayched.queue.queued_pod import Move, Place, QueuedPodInfo
from rayched.queue.scheduling_queue import SchedulingQueue
from rayched.queue.unschedulable import UnschedulablePods
from tests.queue.builders import ON_NODES, Gates, a_queue, gated_queue, pending, to

# ---------------------------------------------------------------------------------------------------------------- timers


@pytest.mark.row("Q60", "Q61", "D7")
def test_a_pod_leaves_backoff_within_a_second_of_its_end() -> None:
    q = a_queue()
    q.after(0.7).add()
    q.pop()
    q.fail()
    due = q.queue.next_due(q.now)
    assert due == 2.0 and 0 <= due - (0.7 + 1.0) <= 1
    assert q.queue.flush(1.999) == ()
    assert q.queue.flush(due) == (Move("uid-a", "default/a", "BackoffComplete", Place.ACTIVE),)


@pytest.mark.row("Q62", "Q23")
def test_a_pod_that_was_unschedulable_for_longer_than_five_minutes_is_tried_again() -> None:
    q = a_queue(ON_NODES)
    q.after(10).unschedulable()
    assert q.queue.flush_unschedulable(309.999) == q.queue.flush_unschedulable(310.0) == q.queue.flush(310.0) == ()
    due = q.queue.next_due(q.now)
    assert due is not None and 310.0 < due < 310.001
    assert q.queue.flush(due) == (Move("uid-a", "default/a", "UnschedulableTimeout", Place.ACTIVE),)
    assert q.queue.next_due(due) is None


@pytest.mark.row("Q18", "D9", "Q62")
def test_backoff_and_time_in_the_unschedulable_pool_are_settings() -> None:
    q = a_queue(ON_NODES, settings=QueueSettings(BackoffPolicy(3.0, 4.0), unschedulable_seconds_max=60.0))
    q.add("a")
    q.pop()
    q.fail("a", "Fit")
    assert q.queue.view(q.pod("a"), q.now).backoff_left_seconds == 4.0
    assert to(Place.ACTIVE, q.queue.flush(60.001)) == ["a"]


@pytest.mark.row("D8", "D10")
def test_an_unschedulable_pod_stays_until_an_event_or_its_time_whatever_the_number_of_flushes() -> None:
    q = a_queue(ON_NODES)
    q.unschedulable()
    for second in range(300):
        assert q.queue.flush(float(second)) == ()
    assert q.place() is Place.UNSCHEDULABLE


def test_a_gate_that_reacts_to_everything_is_asked_again_after_five_minutes_and_then_each_half_minute() -> None:
    gates = Gates()
    q = a_queue({"Gates": [Registration(EVERY_EVENT)]}, pre_enqueue={"default-scheduler": [gates]})
    q.add("a", gates=["g"])
    asked_at = []
    for second in range(1, 400):
        before = gates.asked
        q.queue.flush(float(second))
        if gates.asked > before:
            asked_at.append(second)
    assert asked_at == [301, 332, 363, 394]
    assert q.place("a") is Place.GATED


def test_the_timer_has_nothing_to_do_for_gated_and_active_pods() -> None:
    q = gated_queue()
    q.add("a", gates=["g"])
    q.add("b")
    assert q.queue.next_due(0.0) is None


# ---------------------------------------------------------------------------------------------------------- what is there


@pytest.mark.row("Q58")
def test_the_summary_counts_each_place() -> None:
    q = gated_queue()
    q.unschedulable("u")
    for name in ("e", "f"):
        q.add(name)
        q.pop()
    q.fail("e")
    q.add("g", gates=["g"])
    q.add("a")
    counts = q.queue.pending()
    assert (counts.active, counts.backoff, counts.error_backoff) == (1, 1, 1)
    assert (counts.unschedulable, counts.gated, counts.in_flight, counts.total) == (1, 1, 1, 5)
    assert counts.text == "activeQ:1; backoffQ:1; unschedulablePods:2"
    assert [pod.pod.metadata.name for pod in q.queue.in_order()] == ["a", "e", "u", "g", "f"]


@pytest.mark.row("Q63")
def test_every_pod_that_comes_into_a_queue_is_counted_with_what_brought_it() -> None:
    q = gated_queue()
    q.add("g", gates=["g"])
    q.unschedulable("a")
    q.queue.move_all(NODE_ADD, q.now)
    q.queue.flush(10.0)
    assert q.queue.incoming == {
        ("unschedulable", "UnschedulablePodAdd"): 1,
        ("active", "UnschedulablePodAdd"): 1,
        ("unschedulable", "ScheduleAttemptFailure"): 1,
        ("backoff", "NodeAdd"): 1,
        ("active", "BackoffComplete"): 1,
    }


@pytest.mark.row("Q24")
def test_pods_are_found_by_namespace_and_name_in_any_place() -> None:
    q = gated_queue()
    q.add("g", gates=["g"])
    q.unschedulable("u")
    q.add("f")
    q.pop()
    assert [q.pod(name).key for name in "guf"] == ["default/g", "default/u", "default/f"]
    assert q.queue.find("default/nobody") is None


@pytest.mark.row("Q26")
def test_clearing_the_pool_leaves_nothing_and_counts_nothing() -> None:
    pool = UnschedulablePods(HintTable({}))
    for name in "ab":
        pod = QueuedPodInfo(pending(name), 0.0)
        pod.gating_plugin = "Gates" if name == "b" else ""
        pool.add(pod, None if name == "b" else 300.0)
    assert (pool.n_unschedulable, pool.n_gated, pool.verify()) == (1, 1, [])
    pool.clear()
    assert (pool.n_unschedulable, pool.n_gated, pool.next_due(), list(pool), pool.verify()) == (0, 0, None, [], [])


def _lose(queue: SchedulingQueue, pod: QueuedPodInfo) -> None:
    queue.places.pool.remove(pod)


def _duplicate(queue: SchedulingQueue, pod: QueuedPodInfo) -> None:
    queue.places.active.add(pod)


def _misfile(queue: SchedulingQueue, pod: QueuedPodInfo) -> None:
    pod.unschedulable_plugins = frozenset({"Other"})


def _unset_timer(queue: SchedulingQueue, pod: QueuedPodInfo) -> None:
    pod.flush_due = None


def _forget(queue: SchedulingQueue, pod: QueuedPodInfo) -> None:
    del queue.places.queued[pod.key]


def test_a_pod_whose_hints_would_not_be_asked_is_found_out() -> None:
    q = a_queue({"NodePorts": registrations_of(IN_TREE["NodePorts"](None))})
    q.unschedulable("a", "NodePorts")
    assert q.queue.verify() == []
    q.pod("a").askings = ()
    assert "default/a is filed where no hint would find it" in q.queue.verify()


@pytest.mark.row("Q15")
@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (_lose, "default/a is known, but lost: it is in no queue"),
        (_duplicate, "default/a is in 2 places"),
        (_misfile, "default/a is filed under plugins that do not hold it"),
        (_unset_timer, "default/a has a timer that would not ring"),
        (_forget, "default/a is in a queue, but the queue does not know it"),
    ],
)
def test_a_damaged_queue_is_found_out(damage: Any, found: str) -> None:
    q = a_queue(ON_NODES)
    q.unschedulable("a")
    assert q.queue.verify() == []
    damage(q.queue, q.pod("a"))
    assert found in q.queue.verify()
