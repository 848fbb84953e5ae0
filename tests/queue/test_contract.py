"""What the queue offers to its one owner, and what it leaves to others."""

from __future__ import annotations

import inspect

import pytest

from rayched.framework.cluster_event import NODE_ADD
from rayched.queue.heap import KeyedHeap
from rayched.queue.queued_pod import Place
from rayched.queue.scheduling_queue import SchedulingQueue
from tests.queue.builders import ON_NODES, a_queue, pending


@pytest.mark.row("Q5")
def test_a_pop_takes_the_root_and_leaves_the_rest_in_order() -> None:
    heap: KeyedHeap[int] = KeyedHeap(str, lambda number: number)
    for number in (5, 1, 4, 2, 3):
        heap.add(number)
    for first in (1, 2, 3, 4, 5):
        assert heap.peek() == first
        rest = heap.in_order()[1:]
        assert heap.pop() == first
        assert heap.in_order() == rest and heap.verify() == []


@pytest.mark.row("Q14")
def test_every_operation_of_the_queue_is_there_and_works_with_the_others() -> None:
    q = a_queue(ON_NODES)
    queue = q.queue
    queue.add(pending("a", nominated="n1"), q.now)
    queue.add(pending("b"), q.now)
    assert queue.nominator.node_of("uid-a") == "n1"
    assert q.pop() == "a" and queue.scheduling_cycle == 1
    queue.add_unschedulable("uid-a", q.now, unschedulable_plugins=["Fit"])
    assert queue.pending().text == "activeQ:1; backoffQ:0; unschedulablePods:1"
    queue.update(pending("b", priority=3), q.now)
    assert queue.move_all(NODE_ADD, q.now) and q.place() is Place.BACKOFF
    queue.activate(["default/a"], q.now)
    assert q.place() is Place.ACTIVE
    assert queue.delete("uid-a", "default/a") is Place.ACTIVE and queue.nominator.node_of("uid-a") == ""
    assert q.pop() == "b" and queue.done("uid-b")
    queue.close()
    assert queue.pending().total == 0


def test_the_queue_has_no_lock_and_no_waiting_its_owner_serialises() -> None:
    """Every operation comes back at once; there is nothing in it that another thread could be waited for with."""
    source = inspect.getsource(inspect.getmodule(SchedulingQueue))  # type: ignore[arg-type]
    assert "import threading" not in source and "import asyncio" not in source
    q = a_queue()
    assert q.pop() is None


@pytest.mark.row("D6")
@pytest.mark.parametrize(("seconds", "is_there"), [(29.0, True), (60.0, True), (300.0, True), (301.0, False)])
def test_an_unschedulable_pod_stays_for_five_minutes_and_not_for_one(seconds: float, is_there: bool) -> None:
    q = a_queue(ON_NODES)
    q.unschedulable("a", "Fit")
    q.after(seconds).queue.flush(q.now)
    assert (q.place() is Place.UNSCHEDULABLE) is is_there
