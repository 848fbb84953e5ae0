"""The keyed heap against a sorted list."""

from __future__ import annotations

import gc
import random
import time
import weakref
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.queue.heap import EmptyHeap, HeapKeyError, KeyedHeap, ObjectNotFound


@dataclass
class Item:
    key: str
    weight: int


@dataclass
class Gauge:
    value: int = 0
    calls: list[str] = field(default_factory=list)

    def inc(self) -> None:
        self.value += 1
        self.calls.append("inc")

    def dec(self) -> None:
        self.value -= 1
        self.calls.append("dec")

    def clear(self) -> None:
        self.value = 0


def a_heap(gauge: Gauge | None = None) -> KeyedHeap[Item]:
    return KeyedHeap(lambda item: item.key, lambda item: item.weight, gauge)


def filled(*weights: int) -> KeyedHeap[Item]:
    heap = a_heap()
    for i, weight in enumerate(weights):
        heap.add(Item(f"k{i}", weight))
    return heap


def drained(heap: KeyedHeap[Item]) -> list[Item]:
    return [heap.pop() for _ in range(len(heap))]


OPERATION = st.tuples(st.sampled_from(["add", "add", "add", "delete", "pop", "touch"]), st.integers(0, 9), st.integers(0, 5))


@pytest.mark.row("Q1", "Q8")
@given(st.lists(OPERATION, max_size=80))
def test_any_mixture_of_operations_leaves_what_a_sorted_list_would_hold(operations: list[tuple[str, int, int]]) -> None:
    gauge = Gauge()
    heap = a_heap(gauge)
    model: list[tuple[int, int, Item]] = []
    for number, (what, n, weight) in enumerate(operations):
        key = f"k{n}"
        old = next((entry for entry in model if entry[2].key == key), None)
        if what == "add":
            item = Item(key, weight)
            # An item that keeps its weight keeps its turn among its equals.
            turn = old[1] if old is not None and old[0] == weight else number
            assert heap.add(item) == (old is None)
            model = [entry for entry in model if entry is not old] + [(weight, turn, item)]
        elif what == "delete":
            if old is None:
                with pytest.raises(ObjectNotFound, match="object not found"):
                    heap.delete(key)
            else:
                assert heap.delete(key) is old[2]
                model.remove(old)
        elif what == "touch":
            if old is not None and old[0] != weight:
                old[2].weight = weight
                heap.add(old[2])
                model = [entry for entry in model if entry is not old] + [(weight, number, old[2])]
        elif model:
            first = min(model, key=lambda entry: entry[:2])
            assert heap.peek() is heap.pop() is first[2]
            model.remove(first)
        else:
            assert heap.peek() is None
        assert len(heap) == gauge.value == len(model)
        assert all(heap.get(entry[2].key) is entry[2] for entry in model)
        assert heap.verify() == []
    expected = [entry[2] for entry in sorted(model, key=lambda entry: entry[:2])]
    assert heap.in_order() == expected
    assert drained(heap) == expected


@pytest.mark.row("Q2")
@pytest.mark.parametrize("bad", [object(), Item("new", "heavy"), Item("k1", "heavy")])  # type: ignore[arg-type]
def test_an_object_without_a_usable_key_is_a_key_error_and_changes_nothing(bad: object) -> None:
    heap = filled(3, 1, 2)
    with pytest.raises(HeapKeyError):
        heap.add(bad)  # type: ignore[arg-type]
    assert [item.weight for item in heap.in_order()] == [1, 2, 3]
    assert heap.verify() == []
    assert [item.weight for item in drained(heap)] == [1, 2, 3]


def test_a_refused_item_leaves_the_order_of_those_that_it_passed_on_its_way_up() -> None:
    heap: KeyedHeap[tuple[int, object]] = KeyedHeap(lambda item: str(item[0]), lambda item: item)
    weights = [0, 18, 8, 5, 1, 9, 13]
    for weight in weights:
        heap.add((weight, 0))
    with pytest.raises(HeapKeyError):
        heap.add((0, "not a number"))
    assert [heap.pop() for _ in weights] == [(weight, 0) for weight in sorted(weights)]


def test_nothing_of_what_was_cleared_is_kept() -> None:
    class Weight(float):
        """A number that can be watched."""

    heap: KeyedHeap[Weight] = KeyedHeap(str, lambda item: item)
    items = [Weight(i) for i in range(5)]
    left = [weakref.ref(item) for item in items]
    while items:
        heap.add(items.pop())
    heap.delete("1.0")
    heap.clear()
    assert [one() for one in left] == [None] * 5


@pytest.mark.row("Q3")
def test_the_order_is_injected() -> None:
    light_first: KeyedHeap[Item] = KeyedHeap(lambda item: item.key, lambda item: item.weight)
    heavy_first: KeyedHeap[Item] = KeyedHeap(lambda item: item.key, lambda item: -item.weight)
    for heap in (light_first, heavy_first):
        for weight in (2, 3, 1):
            heap.add(Item(str(weight), weight))
    assert [item.weight for item in drained(light_first)] == [1, 2, 3]
    assert [item.weight for item in drained(heavy_first)] == [3, 2, 1]


@pytest.mark.row("Q4")
def test_a_heap_emptied_again_and_again_never_looks_past_its_end() -> None:
    heap, rng = a_heap(), random.Random(7)
    for _ in range(300):
        for _ in range(rng.randrange(4)):
            heap.add(Item(f"k{rng.randrange(3)}", rng.randrange(3)))
        if rng.random() < 0.5 and "k1" in heap:
            heap.delete("k1")
        while heap.peek() is not None:
            heap.pop()
        assert len(heap) == 0


@pytest.mark.row("Q6")
def test_peeking_shows_the_first_item_and_leaves_it() -> None:
    heap = filled(3, 1, 2)
    for left, first in ((3, "k1"), (2, "k2"), (1, "k0")):
        shown = heap.peek()
        assert shown is not None and shown.key == first and shown is heap.peek()
        assert len(heap) == left
        assert heap.pop() is shown
    assert heap.peek() is None and a_heap().peek() is None


@pytest.mark.row("Q7", "Q12")
def test_adding_a_key_twice_counts_once() -> None:
    heap = a_heap(gauge := Gauge())
    assert heap.add(Item("a", 1)) is True
    assert heap.add(Item("a", 2)) is False
    assert (len(heap), gauge.value, gauge.calls) == (1, 1, ["inc"])
    heap.clear()
    assert (len(heap), gauge.value) == (0, 0)


@pytest.mark.row("Q9")
def test_an_item_is_deleted_from_the_middle_once() -> None:
    heap = a_heap(gauge := Gauge())
    for weight in (1, 2, 3):
        heap.add(Item(f"k{weight}", weight))
    heap.delete("k2")
    assert [item.weight for item in heap.in_order()] == [1, 3]
    with pytest.raises(ObjectNotFound, match="object not found: k2"):
        heap.delete("k2")
    assert gauge.value == 2


@pytest.mark.row("Q10")
def test_popping_an_empty_heap_is_an_error() -> None:
    with pytest.raises(EmptyHeap, match="object was removed from heap data"):
        a_heap().pop()


def test_leftovers_of_replaced_items_do_not_pile_up() -> None:
    heap = filled(*range(10))
    for weight in range(10_000):
        heap.add(Item("k3", 1_000 + weight))
    assert len(heap._heap) < 200
    assert len(heap) == 10


@pytest.mark.slow
@pytest.mark.row("Q10", "Q11")
def test_pops_grow_as_the_logarithm_and_look_ups_do_not_grow() -> None:
    """Two hundred times the items may not cost thirty times as much, per pop or per look-up."""

    def best(n: int) -> tuple[float, float]:
        pops, gets = [], []
        for attempt in range(5):
            rng = random.Random(attempt)
            heap = filled(*(rng.randrange(10**6) for _ in range(n)))
            keys = [f"k{rng.randrange(n)}" for _ in range(200)]
            gc.disable()
            began = time.thread_time()
            for key in keys:
                heap.get(key)
            looked_up = time.thread_time()
            for _ in range(100):
                heap.pop()
            gets.append(looked_up - began)
            pops.append(time.thread_time() - looked_up)
            gc.enable()
        return min(pops), min(gets)

    small_pop, small_get = best(100)
    large_pop, large_get = best(20_000)
    assert large_pop < 30 * small_pop
    assert large_get < 30 * small_get
