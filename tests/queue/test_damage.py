"""Whatever is wrong in a queue is named by `verify`, each damage by its own words and no sound pod with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rayched.framework.cluster_event import NODE_ADD
from rayched.framework.queueing_hints import Registration
from rayched.framework.status import SUCCESS, Status, unresolvable
from rayched.queue.heap import KeyedHeap
from rayched.queue.places import QueueSettings
from rayched.queue.queued_pod import Move, Place
from rayched.v1.core_pb2 import Pod
from tests.queue.builders import GATES_GONE, ON_NODES, Clocked, Gates, a_queue, gated_queue

COUNTS = "the pods counted for each plugin differ from the pods that plugins hold"


def inhabited(**options: Any) -> Clocked:
    """Two pods in each place, in pairs of names: active, flying, error backoff, rejected backoff, unschedulable, gated."""
    q = gated_queue(**options)
    for name in ("u1", "u2"):
        q.unschedulable(name, "Fit")
    for name in ("f1", "f2", "e1", "e2", "r1", "r2"):
        q.after(1.0).add(name)
        assert q.pop() == name
    for name in ("e1", "e2"):
        q.fail(name)
    for name in ("r1", "r2"):
        q.queue.activate([f"default/{name}"], q.now)
        q.fail(name, "Fit")
    for name, gates in (("g1", ["g"]), ("g2", ["g"]), ("a1", []), ("a2", [])):
        q.after(1.0).add(name, gates=gates)
    assert [str(q.place(name)) for name in ("u1", "f1", "e1", "r1", "g1", "a1")] == [
        "unschedulable",
        "in_flight",
        "error_backoff",
        "backoff",
        "gated",
        "active",
    ]
    return q


def sets(name: str, **values: object) -> Callable[[Clocked], None]:
    def damage(q: Clocked) -> None:
        for field, value in values.items():
            setattr(q.pod(name), field, value)

    return damage


def held_by(*plugins: str) -> dict[str, object]:
    return {"unschedulable_plugins": frozenset(plugins)}


DAMAGES: list[tuple[Callable[[Clocked], object], list[str]]] = [
    (lambda q: None, []),
    (
        lambda q: q.queue.places.active.add(q.pod("u1")),
        ["default/u1 is in 2 places", "default/u1 is active, but its place is unschedulable"],
    ),
    (lambda q: q.queue.places.pool.remove(q.pod("u1")), ["default/u1 is known, but lost: it is in no queue"]),
    (lambda q: q.queue.places.queued.pop("default/a1"), ["default/a1 is in a queue, but the queue does not know it"]),
    (lambda q: q.queue.places.active.delete("default/a1"), ["default/a1 is known, but lost: it is in no queue"]),
    (sets("a1", place=Place.NOWHERE), ["default/a1 is active, but its place is nowhere"]),
    (sets("r1", place=Place.ACTIVE), ["default/r1 waits as rejected, but its place is active"]),
    (sets("e1", place=Place.BACKOFF), ["default/e1 waits after an error, but its place is backoff"]),
    (sets("f1", place=Place.ACTIVE), ["default/f1 is in flight, but its place is active"]),
    (sets("u1", place=Place.ACTIVE), ["default/u1 lies among the unschedulable pods, but its place is active"]),
    (sets("u1", place=Place.GATED), ["default/u1 is filed where no event would find it"]),
    (sets("g1", place=Place.UNSCHEDULABLE), ["default/g1 is filed where no event would find it"]),
    (sets("u1", gating_plugin="Gates"), ["default/u1 is filed where no event would find it"]),
    (
        sets("g1", gating_plugin=""),
        ["default/g1 is filed where no event would find it", "default/g1 would wait for an event for ever"],
    ),
    (sets("g1", gating_plugin="Other"), ["default/g1 is filed under a plugin that does not gate it"]),
    (sets("g1", scheduler_name="other"), ["default/g1 is filed under a plugin that does not gate it", COUNTS]),
    (sets("u1", **held_by("Other")), ["default/u1 is filed under plugins that do not hold it", COUNTS]),
    (sets("u1", template="other"), ["default/u1 is filed under plugins that do not hold it"]),
    (sets("u1", askings=(None,)), ["default/u1 is filed where no hint would find it"]),
    (
        sets("u1", flush_due=None),
        [
            "default/u1 has changed its place in the order and the heap was not told",
            "default/u1 has a timer that would not ring",
            "default/u1 would wait for an event for ever",
        ],
    ),
    (sets("g1", flush_due=7.0), ["default/g1 has a timer that would not ring"]),
    (sets("u1", flush_due=7.0), ["default/u1 has changed its place in the order and the heap was not told"]),
    (lambda q: q.queue.places.pool._timeouts.delete("default/u1"), ["default/u1 has a timer that would not ring"]),
    (sets("a1", timestamp=77.0), ["default/a1 has changed its place in the order and the heap was not told"]),
    (sets("r1", backoff_until=77.0), ["default/r1 has changed its place in the order and the heap was not told"]),
    (sets("e1", backoff_until=77.0), ["default/e1 has changed its place in the order and the heap was not told"]),
    (lambda q: setattr(q.queue.places.pool, "_gated", 3), ["2 pods are gated and 3 are counted"]),
    (
        lambda q: q.queue.places.pool._pods.pop("default/u1"),
        ["pods are filed that are not here", "default/u1 is known, but lost: it is in no queue"],
    ),
    (lambda q: q.queue.places.held.update([("Fit", "default-scheduler")]), [COUNTS]),
    (
        lambda q: q.queue.places.queued.update({"default/f1": q.pod("f1")}),
        ["default/f1 is known, but lost: it is in no queue", "default/f1 is in flight and in a queue"],
    ),
]


@pytest.mark.parametrize(("damage", "found"), DAMAGES)
def test_each_damage_is_named_and_nothing_else_is(damage: Callable[[Clocked], object], found: list[str]) -> None:
    q = inhabited()
    assert q.queue.verify() == []
    damage(q)
    assert q.queue.verify() == found


def test_a_pod_that_was_deleted_in_flight_leaves_its_name_to_another_one() -> None:
    q = inhabited()
    q.queue.delete("uid-f1", "default/f1")
    assert q.queue.verify() == []
    q.add("f1", uid="another")
    assert q.queue.verify() == [] and q.place("f1") is Place.ACTIVE
    assert q.queue.places.in_flight.end("uid-f1") is not None and q.queue.verify() == []
    assert q.pod("f1").uid == "another"


def test_pods_that_have_turns_lie_in_both_orders() -> None:
    q = inhabited(settings=QueueSettings(retries_in_a_row_max=2))
    assert q.queue.verify() == []
    active = q.queue.places.active
    active._waiting.delete("default/a1")  # type: ignore[union-attr]
    assert q.queue.verify() == ["the pods in activeQ and those that wait for their turn differ"]


# ------------------------------------------------------------------------------------------------------------------ heaps


def a_heap(*weights: int) -> KeyedHeap[list[Any]]:
    heap: KeyedHeap[list[Any]] = KeyedHeap(lambda item: str(item[0]), lambda item: item[1])
    for number, weight in enumerate(weights):
        heap.add([f"k{number}", weight])
    return heap


def test_a_heap_names_what_would_never_be_popped_and_what_has_moved() -> None:
    heap = a_heap(3, 1, 2)
    heap.add(["k1", 9])
    heap.delete("k0")
    assert heap.verify() == []
    heap._heap = [entry for entry in heap._heap if (entry[0], entry[2]) != (9, "k1")]
    assert heap.verify() == ["k1 is in the heap's index but would never be popped"]
    moved = "k2 has changed its place in the order and the heap was not told"
    for place, value in ((0, "other"), (1, 7)):
        heap = a_heap(3, 1, 2)
        item = heap.get("k2")
        assert item is not None
        item[place] = value
        assert heap.verify() == [moved]


@pytest.mark.parametrize("items", [1, 10, 100])
def test_leftovers_are_swept_when_they_are_half_of_the_list_and_some_more_and_the_order_stays(items: int) -> None:
    heap = a_heap(*range(items))
    lengths = []
    for weight in range(1000, 1000 + 5 * items + 500):
        heap.add([f"k{weight % items}", -weight if weight % 3 else weight])
        lengths.append(len(heap._heap))
        assert heap.verify() == []
    assert max(lengths) == 2 * items + 64
    in_order = heap.in_order()
    assert [heap.pop() for _ in range(items)] == in_order == sorted(in_order, key=lambda item: item[1])


@pytest.mark.parametrize("limit", [None, 0, 1, 2, 4, 5, 6, 50])
def test_the_first_in_order_are_those_that_the_next_pops_would_give(limit: int | None) -> None:
    heap = a_heap(3, 1, 2, 1, 5)
    first = heap.in_order(limit)
    popped = [heap.pop() for _ in range(len(heap))]
    assert first == (popped if limit is None else popped[:limit])


# ------------------------------------------------------------------------------------------------------------------ doors


class Door:
    """A PreEnqueue plugin that a test opens and shuts."""

    name = "Gates"

    def __init__(self) -> None:
        self.shut = False

    def pre_enqueue(self, pod: Pod) -> Status:
        return unresolvable("shut") if self.shut else SUCCESS


def test_a_pod_that_is_not_let_into_backoff_is_gated_and_told_of_once() -> None:
    door = Door()
    q = a_queue(
        {"Gates": [Registration(NODE_ADD)], **ON_NODES},
        pre_enqueue={"default-scheduler": [door]},
    )
    q.unschedulable("a", "Fit")
    door.shut = True
    assert q.queue.move_all(NODE_ADD, q.now) == (Move("uid-a", "default/a", "NodeAdd", Place.GATED),)
    assert (q.queue.pending().gated, q.queue.incoming["unschedulable", "NodeAdd"], q.queue.verify()) == (1, 1, [])
    assert q.queue.view(q.pod(), q.now).held_by == ("Fit", "Gates")
    assert q.queue.move_all(NODE_ADD, q.now) == (), "it stays where it is"
    assert (q.place(), q.queue.incoming["unschedulable", "NodeAdd"], q.queue.verify()) == (Place.GATED, 1, [])
    door.shut = False
    assert q.queue.move_all(NODE_ADD, q.now) == (Move("uid-a", "default/a", "NodeAdd", Place.BACKOFF),)
    assert q.queue.verify() == []


def test_the_nomination_of_a_pod_counts_from_when_it_is_let_in() -> None:
    q = gated_queue()
    q.add("gated", gates=["g"], nominated="n1")
    q.add("free", nominated="n2")
    assert [q.queue.nominator.node_of(f"uid-{name}") for name in ("gated", "free")] == ["", "n2"]


@pytest.mark.parametrize(("seconds", "place"), [(300.0, Place.UNSCHEDULABLE), (300.001, Place.BACKOFF)])
def test_a_pod_that_was_gated_for_too_long_wakes_those_in_flight(seconds: float, place: Place) -> None:
    q = a_queue({"Gates": GATES_GONE, **ON_NODES}, pre_enqueue={"default-scheduler": [Gates()]})
    q.add("long", gates=["g"])
    q.now = seconds
    q.add("short", gates=["g"])
    q.add("f")
    assert q.pop() == "f"
    assert q.queue.flush_unschedulable(q.now) == ()
    q.fail("f", "Fit")
    assert q.place("f") is place
    assert q.place("long") is q.place("short") is Place.GATED
