"""Turns for those who wait: nobody starves behind pods that are tried in vain, and without a limit nothing changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.configuration.configuration import Configuration
from rayched.configuration.profile_building import build_profiles
from rayched.core.exchange.queue_core import queue_factory
from rayched.framework.cluster_event import NODE_ADD
from rayched.plugins.in_tree import IN_TREE
from rayched.queue.durations import PreEnqueueDurations
from rayched.queue.fair_active import FairActiveQueue
from rayched.queue.flags import QueueFlags
from rayched.queue.heap import EmptyHeap, KeyedHeap
from rayched.queue.places import QueueSettings
from rayched.queue.queued_pod import QueuedPodInfo
from tests.queue.builders import ON_NODES, Clocked, a_queue, by_priority, pending


def with_limit(limit: int) -> Clocked:
    return a_queue(ON_NODES, settings=QueueSettings(retries_in_a_row_max=limit))


def attempts_until(q: Clocked, name: str, *, limit: int) -> int | None:
    """Unschedulable pods are woken all the time and there is time for ten attempts in between; how many `name` waits for."""
    for number in range(limit):
        if number % 10 == 0:
            q.after(11.0)
            q.queue.move_all(NODE_ADD, q.now)
            q.queue.flush(q.now)
        popped = q.pop()
        assert popped is not None
        if popped == name:
            return number
        q.fail(popped, "Fit")
    return None


@pytest.mark.parametrize(("limit", "waits_for"), [(0, None), (3, 3), (10, 10)])
def test_unschedulable_pods_of_high_priority_do_not_starve_the_others(limit: int, waits_for: int | None) -> None:
    q = with_limit(limit)
    q.add("feasible", priority=1)
    q.after(1.0)
    for number in range(100):
        q.add(f"hopeless-{number}", priority=100)
        q.after(0.001)
    # The first attempt of each goes first, with or without a limit.
    for number in range(100):
        assert q.pop() == f"hopeless-{number}"
        q.fail(f"hopeless-{number}", "Fit")
    assert attempts_until(q, "feasible", limit=500) == waits_for


def test_first_attempts_are_in_the_order_of_priority_whatever_the_limit() -> None:
    q = with_limit(1)
    for number in range(20):
        q.after(0.001).add(f"p{number}", priority=number)
    assert [q.pop() for _ in range(20)] == [f"p{number}" for number in reversed(range(20))]


def test_a_pod_that_is_given_back_keeps_its_place_among_those_who_wait() -> None:
    q = with_limit(2)
    q.add("low")
    q.after(1.0)
    for name in ("high-1", "high-2", "high-3"):
        q.after(0.001).add(name, priority=9)
        assert q.pop() == name
        q.fail(name)
    q.after(5.0).queue.flush(q.now)
    assert [q.pop() for _ in range(3)] == ["high-1", "high-2", "low"]
    q.queue.give_back(["uid-low", "uid-high-1", "uid-high-2"], q.now)
    assert [q.pop() for _ in range(3)] == ["high-1", "high-2", "low"]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 50)), min_size=1, max_size=30), st.integers(1, 4))
def test_nobody_waits_longer_than_was_said(pods: list[tuple[int, int, int]], limit: int) -> None:
    """(limit + 1) retries for each pod that waits longer, and the first attempts of others."""
    active = FairActiveQueue(by_priority, limit)
    waiting: list[QueuedPodInfo] = []
    for number, (priority, attempts, since) in enumerate(pods):
        pod = QueuedPodInfo(pending(f"p{number}", priority=priority), since + number / 1000)
        pod.attempts = attempts
        active.add(pod)
        waiting.append(pod)
    assert active.verify() == []
    longer = {pod.key: sum(other.timestamp < pod.timestamp for other in waiting) for pod in waiting}
    retries = 0
    while active:
        head_is_new = not min(waiting, key=by_priority).attempts
        pod = active.pop()
        waiting.remove(pod)
        if head_is_new:
            assert not pod.attempts
            continue
        retries += 1
        assert retries <= (limit + 1) * (longer[pod.key] + 1)
        assert all(retries < (limit + 1) * (longer[other.key] + 1) for other in waiting)
    assert active.verify() == [] and not waiting


def test_a_pod_that_is_in_one_of_the_two_orders_alone_is_found() -> None:
    active = FairActiveQueue(by_priority, 1)
    for name in ("a", "b"):
        active.add(QueuedPodInfo(pending(name), 0.0))
    assert active.verify() == []
    KeyedHeap.delete(active, "default/a")
    assert active.verify() == ["the pods in activeQ and those that wait for their turn differ"]


@pytest.mark.row("D9", "Q18", "Q62")
def test_flags_and_configuration_reach_the_queue() -> None:
    configuration = Configuration(pod_initial_backoff_seconds=3, pod_max_backoff_seconds=20)
    profiles = build_profiles(Configuration(), IN_TREE).profiles
    q = Clocked(queue_factory(configuration, profiles, QueueFlags(60.0, 5))(PreEnqueueDurations(lambda: 0.0)))
    q.add()
    q.pop()
    q.fail("a", "NodeResourcesFit")
    assert q.pod().flush_due == 60.0
    assert isinstance(q.queue.places.active, FairActiveQueue)
    q.queue.activate(["default/a"], q.now)
    q.pop()
    q.fail()
    assert q.queue.places.backoff.ends(q.pod()) == 3.0


def test_an_empty_queue_with_turns_has_nothing_to_pop_either() -> None:
    active = FairActiveQueue(by_priority, 2)
    with pytest.raises(EmptyHeap):
        active.pop()
    assert active.peek() is None
