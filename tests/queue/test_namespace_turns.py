"""Turns of namespaces: who had half of a second is behind the others of its priority, and nothing else changes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.queue.heap import EmptyHeap, KeyedHeap
from rayched.queue.namespace_shares import SLOT_SECONDS, NamespaceShares
from rayched.queue.namespace_turns import NamespaceTurnsQueue
from rayched.queue.places import QueueSettings
from rayched.queue.queued_pod import PendingPod, QueuedPodInfo
from tests.queue.builders import ON_NODES, Clocked, a_pod, a_queue, by_priority

HALF = 0.5


def fair(limit: int = 0) -> Clocked:
    return a_queue(ON_NODES, settings=QueueSettings(retries_in_a_row_max=limit, fair_namespaces=True))


def of(namespace: str, name: str, priority: int = 0) -> PendingPod:
    pod = a_pod(name, priority=priority)
    pod.metadata.namespace = namespace
    return PendingPod.of(pod)


def info(namespace: str, name: str, at: float, priority: int = 0) -> QueuedPodInfo:
    return QueuedPodInfo(of(namespace, name, priority), at)


# ------------------------------------------------------------------------------------------------------------------ the share


@pytest.mark.parametrize(
    ("told", "now", "over"),
    [
        ([("a", 0.5, 10.0)], 10.0, {"a"}),
        ([("a", 0.499, 10.0)], 10.0, set()),
        ([("a", 0.3, 10.0), ("b", 0.3, 10.2), ("a", 0.2, 10.5)], 10.9, {"a"}),
        ([("a", 0.3, 10.0), ("a", 0.3, 10.5)], 10.99, {"a"}),
        # The first is over a second ago.
        ([("a", 0.3, 10.0), ("a", 0.3, 10.5)], 11.2, set()),
        ([("a", 0.6, 10.0)], 11.0, {"a"}),
        ([("a", 0.6, 10.0)], 11.2, set()),
        ([("a", 0.5, 10.0), ("b", 0.5, 10.5)], 10.6, {"a", "b"}),
        ([("a", -1.0, 10.0), ("a", 0.5, 10.0)], 10.0, {"a"}),
    ],
)
def test_who_had_half_of_the_last_second(told: list[tuple[str, float, float]], now: float, over: set[str]) -> None:
    shares = NamespaceShares()
    for namespace, seconds, at in told:
        shares.spent(namespace, seconds, at)
    assert shares.over(now) == over


def test_nothing_is_left_of_what_is_over() -> None:
    shares = NamespaceShares()
    for number in range(2_000):
        shares.spent(f"ns-{number}", 0.001 * number, number * 0.01)
    assert not shares.over(1_000.0)
    assert not shares._slots and not shares._sums


# ------------------------------------------------------------------------------------------------------------------- the turns


def popped(queue: NamespaceTurnsQueue) -> list[str]:
    found = []
    while queue:
        found.append(queue.pop().key)
        assert queue.verify() == []
    return found


def test_the_head_gives_way_to_others_of_its_priority_while_its_namespace_had_its_share() -> None:
    queue = NamespaceTurnsQueue(by_priority, 0)
    for at, (namespace, name, priority) in enumerate(
        [("a", "1", 5), ("a", "2", 5), ("b", "1", 5), ("c", "1", 5), ("b", "2", 5), ("b", "low", 1), ("a", "low", 1)]
    ):
        queue.add(info(namespace, name, at, priority))
    queue.over = frozenset({"a"})
    assert popped(queue) == ["b/1", "c/1", "b/2", "a/1", "a/2", "b/low", "a/low"]
    assert queue.n_turns == 3


def test_time_that_nobody_else_wants_is_not_kept() -> None:
    queue = NamespaceTurnsQueue(by_priority, 0)
    for at, (namespace, priority) in enumerate([("a", 5), ("a", 5), ("b", 1)]):
        queue.add(info(namespace, str(at), at, priority))
    for over in ({"a"}, {"a", "b"}, {"nobody"}):
        queue.over = frozenset(over)
        assert queue.pop().key in {"a/0", "a/1", "b/2"}
    assert not queue and queue.n_turns == 0
    with pytest.raises(EmptyHeap):
        queue.pop()


def test_pods_that_change_or_go_leave_no_trace() -> None:
    queue = NamespaceTurnsQueue(by_priority, 0)
    for namespace in ("a", "b"):
        for number in range(3):
            queue.add(info(namespace, str(number), number))
    queue.add(info("b", "2", 9, priority=7))
    assert queue.verify() == []
    assert queue.delete("a/0").key == "a/0"
    queue.over = frozenset({"b"})
    assert popped(queue) == ["b/2", "a/1", "a/2", "b/0", "b/1"]
    queue.add(info("a", "x", 0))
    queue.clear()
    assert queue.verify() == [] and not queue


def test_a_pod_that_is_missing_in_its_line_is_found() -> None:
    queue = NamespaceTurnsQueue(by_priority, 0)
    queue.add(info("a", "1", 0))
    queue.add(info("b", "1", 1))
    KeyedHeap.delete(queue, "a/1")
    assert any("lines of their namespaces" in wrong for wrong in queue.verify())


def test_turns_of_namespaces_leave_those_of_who_waits_longest() -> None:
    queue = NamespaceTurnsQueue(by_priority, 1)
    for at, name in enumerate(("new", "old-1", "old-2", "old-3")):
        pod = info("a", name, at, priority=int(name != "new"))
        pod.attempts = int(name != "new")
        queue.add(pod)
    assert popped(queue) == ["a/old-1", "a/new", "a/old-2", "a/old-3"]


def test_the_whole_queue_gives_back_and_hands_out_in_turns() -> None:
    q = fair()
    for namespace, name in (("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2")):
        q.after(0.001).queue.add(of(namespace, name), q.now)
    assert q.pop() == "a1"
    q.queue.places.spent([("a", 0.6)], q.now)
    assert q.pop() == "b1"
    q.queue.give_back(["uid-a1", "uid-b1"], q.now)
    assert [q.pop(), q.pop()] == ["b1", "b2"] and q.queue.places.turns == 3
    q.after(1.2).queue.give_back(["uid-b1", "uid-b2"], q.now)
    assert [pod.pod.metadata.name for pod in q.queue.pop_batch(9, q.now)] == ["a1", "a2", "b1", "b2"]
    assert q.queue.verify() == []


# ------------------------------------------------------------------------------------------------------- one scheduler, simulated


@dataclass
class OneThread:
    """Pods that come at given times and cost given seconds, decided one at a time. The oracle is a list of what was done."""

    queue: Clocked = field(default_factory=fair)
    costs: dict[str, float] = field(default_factory=dict)
    done: list[tuple[str, str, float, float]] = field(default_factory=list)
    """Namespace, name, from when to when."""
    waited_for: list[tuple[str, list[str]]] = field(default_factory=list)
    """With each of these: the namespaces of all that waited at its priority when it was taken."""

    def play(self, pods: list[tuple[str, float, float, int]]) -> None:
        coming = sorted(enumerate(pods), key=lambda one: one[1][1])
        waiting: dict[str, tuple[str, int]] = {}
        while coming or waiting:
            if not waiting:
                self.queue.now = max(self.queue.now, coming[0][1][1])
            while coming and coming[0][1][1] <= self.queue.now:
                number, (namespace, at, cost, priority) = coming.pop(0)
                self.queue.queue.add(of(namespace, f"p{number}", priority), at)
                self.costs[f"p{number}"] = cost
                waiting[f"p{number}"] = namespace, priority
            name = self.queue.pop()
            assert name is not None
            namespace, priority = waiting.pop(name)
            self.waited_for.append((namespace, [other for other, its in waiting.values() if its == priority]))
            assert all(its <= priority for _, its in waiting.values()), "a priority was passed over"
            began = self.queue.now
            self.queue.after(self.costs[name])
            self.done.append((namespace, name, began, self.queue.now))
            self.queue.queue.places.spent([(namespace, self.costs[name])], self.queue.now)
            assert self.queue.queue.done(f"uid-{name}")

    def had(self, namespace: str, since: float, until: float) -> float:
        return sum(max(0.0, min(until, end) - max(since, began)) for whose, _, began, end in self.done if whose == namespace)


pods = st.tuples(st.sampled_from("abc"), st.floats(0.0, 3.0), st.floats(0.001, 0.12), st.integers(0, 1))


@given(st.lists(pods, min_size=1, max_size=60))
def test_nobody_has_more_than_half_while_others_wait_and_order_within_a_namespace_stays(
    given_pods: list[tuple[str, float, float, int]],
) -> None:
    world = OneThread()
    world.play(given_pods)
    assert len(world.done) == len(given_pods) and world.queue.queue.verify() == []
    for (namespace, _, began, _), (_, others) in zip(world.done, world.waited_for, strict=True):
        # Times in slots are known to a tenth of a second, and an attempt counts where it ends.
        surely_had = world.had(namespace, began - 1.0 + 0.12, began)
        if surely_had >= HALF + 1e-6:
            # Others had theirs too, or it would have been their turn.
            window = began - 1.0 - SLOT_SECONDS - 0.12
            assert all(world.had(other, window, began) >= HALF - 1e-6 for other in others if other != namespace)
    order: dict[tuple[str, int], list[float]] = defaultdict(list)
    for namespace, name, _, _ in world.done:
        _, at, _, priority = given_pods[int(name[1:])]
        order[namespace, priority].append(at)
    for ats in order.values():
        assert ats == sorted(ats)


def test_a_flood_of_costly_pods_leaves_half_of_the_time_to_others() -> None:
    world = OneThread()
    flood = [("a", 0.0, 0.01, 0)] * 300
    world.play(flood + [("b", 0.01 * number, 0.002, 0) for number in range(300)])
    others = [end for namespace, _, _, end in world.done if namespace == "b"]
    late = [end - 0.01 * number for number, end in enumerate(others)]
    assert max(late) < 0.75, "b waits no longer than until a has had its half"
    strict = OneThread(queue=a_queue(ON_NODES))
    strict.play(flood + [("b", 0.01 * number, 0.002, 0) for number in range(300)])
    assert max(end for namespace, _, _, end in strict.done if namespace == "b") > 3.0
