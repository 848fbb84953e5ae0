"""Random operations on the queue and on the slow model: after each, both agree on every pod and no invariant is broken."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rayched.framework import cluster_event as ce
from rayched.framework.queueing_hints import Hint, Registration
from rayched.queue.audit import QueueAudit, Standing
from rayched.queue.hints import HintTable
from rayched.queue.queued_pod import PendingPod, QueuedPodInfo
from rayched.queue.scheduling_queue import SchedulingQueue
from rayched.v1.core_pb2 import Pod
from tests.queue import slow_model
from tests.queue.builders import Gates, a_pod
from tests.queue.slow_model import ModelPod, SlowQueue

STEPS = int(os.environ.get("RAYCHED_QUEUE_STEPS", "10000"))
MACHINE_STEPS = int(os.environ.get("RAYCHED_QUEUE_STEPS", "2000"))
NAMES = "abcdefgh"
COLOURS = ("red", "blue")
PLUGINS = ("Colour", "Space", "Broken", "Labels")
EVENTS = {
    slow_model.NODE: ce.NODE_ADD,
    slow_model.TAINT: ce.NODE_TAINT_UPDATE,
    slow_model.SPACE: ce.ASSIGNED_POD_DELETE,
    slow_model.BROKEN: ce.ASSIGNED_POD_ADD,
    slow_model.UNKNOWN: ce.NODE_CONDITION_UPDATE,
}


def _same_colour(pod: Pod, old: object, new: object) -> Hint:
    return Hint.QUEUE if pod.metadata.labels["colour"] == new else Hint.SKIP


def _raises(pod: Pod, old: object, new: object) -> Hint:
    raise RuntimeError("broken")


HINTS = {
    "Colour": [Registration(ce.NODE_ADD, _same_colour)],
    "Space": [Registration(ce.ClusterEvent(ce.Resource.POD, ce.Action.DELETE))],
    "Broken": [Registration(ce.ASSIGNED_POD_ADD, _raises)],
    "Labels": [Registration(ce.ClusterEvent(ce.Resource.POD, ce.Action.UPDATE_POD_LABEL))],
    "Gate": [Registration(ce.ClusterEvent(ce.Resource.POD, ce.Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED))],
}


class Pair:
    """The queue and its model, taken through the same operations."""

    def __init__(self, templates: bool) -> None:
        self.templates = templates
        self.model = SlowQueue()
        self.queue = SchedulingQueue(
            lambda pod: (-pod.priority, pod.timestamp),
            HintTable({"default-scheduler": HINTS}),
            pre_enqueue={"default-scheduler": [Gates("Gate")]},
        )
        self.audit = QueueAudit(self.queue.places, self.queue.hints)
        self.uids = 0

    @property
    def now(self) -> float:
        return self.model.now_ms / 1000

    def object_of(self, uid: str, name: str, priority: int, colour: str, gated: bool) -> PendingPod:
        pod = a_pod(name, uid=uid, priority=priority, labels={"colour": colour}, gates=["g"] if gated else [])
        return PendingPod.of(pod, (priority, colour, gated) if self.templates else None)

    # -------------------------------------------------------------------------------------------------------- operations

    def advance(self, milliseconds: int) -> None:
        # No two pods may get the same timestamp: which of them leaves first is nobody's promise.
        self.model.now_ms += milliseconds

    def add(self, name: str, priority: int, colour: str, gated: bool) -> None:
        self.advance(1)
        known = self.model.named(name)
        self.uids += 1
        uid = known.uid if known is not None and self.uids % 3 else f"uid-{self.uids}"
        if known is not None and known.uid == uid and known.where == "in_flight" and not known.gated:
            # Nobody can add a gate to a pod that once had none.
            gated = False
        pending = self.object_of(uid, name, priority, colour, gated)
        self.audit.updated(pending, self.model.position + 1, is_new=True)
        self.queue.add(pending, self.now)
        self.model.add(uid, name, priority, colour, gated)

    def change(self, pod: ModelPod, priority: int | None, colour: str | None, ungate: bool) -> None:
        self.advance(1)
        gated = False if ungate else pod.gated
        new = (pod.priority if priority is None else priority, colour or pod.colour, gated)
        pending = self.object_of(pod.uid, pod.name, *new)
        self.audit.updated(pending, self.model.position + 1)
        self.queue.update(pending, self.now)
        self.model.change(pod.name, priority=new[0], colour=new[1], gated=gated)

    def delete(self, pod: ModelPod) -> None:
        assert self.queue.delete(pod.uid, f"default/{pod.name}").value == pod.where
        self.model.delete(pod.name)

    def pop(self, limit: int) -> None:
        popped = self.queue.pop_batch(limit, self.now)
        expected = [pod for _ in range(limit) if (pod := self.model.pop()) is not None]
        assert [pod.uid for pod in popped] == [pod.uid for pod in expected]

    def fail(self, pod: ModelPod, rejected_by: set[str], pending_for: set[str], seen: int) -> None:
        # Two, so that the millisecond after one pod's time is never the very end of another's: floats cannot tell these apart.
        self.advance(2)
        began = min(self.model.position, pod.popped_at + seen)
        self.queue.add_unschedulable(
            pod.uid, self.now, unschedulable_plugins=rejected_by, pending_plugins=pending_for, began=began if seen else None
        )
        self.model.fail(pod, rejected_by, pending_for, began)

    def done(self, pod: ModelPod) -> None:
        assert self.queue.done(pod.uid)
        self.model.done(pod)

    def give_back(self, pod: ModelPod) -> None:
        self.queue.give_back([pod.uid], self.now)
        self.model.give_back(pod)

    def happen(self, kind: str, colour: str) -> None:
        self.audit.happened(EVENTS[kind], None, colour, self.model.position + 1)
        self.queue.move_all(EVENTS[kind], self.now, new=colour)
        self.model.happen(kind, colour)

    def shake(self) -> None:
        self.audit.happened(ce.EVERY_EVENT, None, None, self.model.position + 1)
        self.queue.move_all(ce.EVERY_EVENT, self.now)
        self.model.shake()

    def activate(self, name: str) -> None:
        self.queue.activate([f"default/{name}"], self.now)
        self.model.activate(name)

    def flush(self) -> None:
        due = self.queue.next_due(self.now)
        assert (due is not None and due <= self.now) == self.model.would_flush(self.model.now_ms)
        assert bool(self.queue.flush(self.now)) == self.model.would_flush(self.model.now_ms)
        self.model.flush()

    def sleep_until_due(self) -> None:
        """Nothing is due before `next_due`, and something is due a millisecond after it at the latest."""
        due = self.queue.next_due(self.now)
        if due is None:
            assert not self.model.would_flush(self.model.now_ms + 10**9)
            return
        due_ms = max(self.model.now_ms, int(due * 1000 + 0.5))
        if due_ms > self.model.now_ms:
            assert not self.model.would_flush(due_ms - 1)
        self.model.now_ms = due_ms + 1
        self.flush()

    # -------------------------------------------------------------------------------------------------------- comparison

    def compare(self) -> None:
        found = {pod.uid: _described(pod) for pod in self.queue.in_order()}
        expected = {pod.uid: _expected(pod) for pod in self.model.pods}
        assert found == expected
        assert self.queue.verify() == []
        for pod in self.model.pods:
            standing = Standing.IN_FLIGHT if pod.where == "in_flight" else Standing.QUEUED
            assert [*self.audit.faults(pod.uid, f"default/{pod.name}", standing, self.now, flushed=False)] == []
        places = Counter(pod.where for pod in self.model.pods)
        counts = self.queue.pending()
        assert counts.active == places["active"]
        assert counts.backoff == places["backoff"] + places["error_backoff"]
        assert (counts.unschedulable, counts.gated, counts.in_flight) == (
            places["unschedulable"],
            places["gated"],
            places["in_flight"],
        )
        held = Counter(plugin for pod in self.model.pods if pod.where != "in_flight" for plugin in pod.holders)
        assert Counter({plugin: n for (plugin, _), n in self.queue.held.items()}) == held


def _described(pod: QueuedPodInfo) -> tuple[Any, ...]:
    counters = (pod.attempts, pod.unschedulable_count, pod.consecutive_errors)
    return (pod.place.value, round(pod.timestamp * 1000), pod.priority, *counters, pod.rejectors, pod.gated)


def _expected(pod: ModelPod) -> tuple[Any, ...]:
    counters = (pod.attempts, pod.rejections, pod.errors)
    return (pod.where, pod.since_ms, pod.priority, *counters, pod.holders, pod.held_at_gate)


def a_random_step(pair: Pair, rng: random.Random) -> str:
    """One operation, chosen and filled in at random; gives back what it was."""
    pods, flying = [pod for pod in pair.model.pods if not pod.deleted], pair.model.in_place("in_flight")
    plugins = {plugin for plugin in PLUGINS if rng.random() < 0.35}
    steps: list[tuple[float, str, Any]] = [
        (4, "add", lambda: pair.add(rng.choice(NAMES), rng.randrange(3), rng.choice(COLOURS), rng.random() < 0.2)),
        (4, "pop", lambda: pair.pop(rng.randrange(1, 4))),
        (3, "happen", lambda: pair.happen(rng.choice(list(EVENTS)), rng.choice(COLOURS))),
        (0.3, "shake", pair.shake),
        (0.7, "activate", lambda: pair.activate(rng.choice(NAMES))),
        (2, "flush", pair.flush),
        (1, "sleep", pair.sleep_until_due),
        (4, "advance", lambda: pair.advance(rng.choice([1, 300, 999, 1000, 2500, 11_000, 301_000]))),
    ]
    if pods:
        pod = rng.choice(pods)
        priority, colour = rng.choice([None, 0, 2]), rng.choice([None, *COLOURS])
        steps.append((2, "change", lambda: pair.change(pod, priority, colour, rng.random() < 0.4)))
        steps.append((0.5, "delete", lambda: pair.delete(pod)))
    if flying:
        tried = rng.choice(flying)
        steps.append(
            (
                6,
                "fail",
                lambda: pair.fail(tried, plugins, set(rng.sample(PLUGINS, 1)) if rng.random() < 0.2 else set(), rng.randrange(4)),
            )
        )
        steps.append((0.5, "done", lambda: pair.done(tried)))
        steps.append((0.5, "give back", lambda: pair.give_back(tried)))
    _, name, step = rng.choices(steps, weights=[weight for weight, _, _ in steps])[0]
    step()
    return name


@pytest.mark.row("Q15", "D4", "D5")
@pytest.mark.parametrize("seed", range(4))
def test_ten_thousand_random_operations_make_no_difference(seed: int) -> None:
    """RAYCHED_QUEUE_STEPS=100000 makes it so many instead."""
    pair, rng = Pair(templates=seed % 2 == 0), random.Random(seed)
    done: Counter[str] = Counter()
    for number in range(STEPS // 4):
        try:
            done[a_random_step(pair, rng)] += 1
            pair.compare()
        except AssertionError as difference:
            raise AssertionError(f"seed {seed}, step {number}: {difference}") from difference
    assert min(done.values()) >= 10 and len(done) == 13, done


class QueueMachine(RuleBasedStateMachine):
    """The same operations under hypothesis, which looks for the shortest course that makes a difference."""

    @initialize(templates=st.booleans())
    def begin(self, templates: bool) -> None:
        self.pair = Pair(templates)

    def a_pod(self, n: int) -> ModelPod:
        pods = [pod for pod in self.pair.model.pods if not pod.deleted]
        return pods[n % len(pods)]

    def a_flying(self, n: int) -> ModelPod:
        flying = self.pair.model.in_place("in_flight")
        return flying[n % len(flying)]

    @rule(name=st.sampled_from(NAMES), priority=st.integers(0, 2), colour=st.sampled_from(COLOURS), gated=st.booleans())
    def add(self, name: str, priority: int, colour: str, gated: bool) -> None:
        self.pair.add(name, priority, colour, gated)

    @rule(limit=st.integers(1, 3))
    def pop(self, limit: int) -> None:
        self.pair.pop(limit)

    @rule(kind=st.sampled_from(sorted(EVENTS)), colour=st.sampled_from(COLOURS))
    def happen(self, kind: str, colour: str) -> None:
        self.pair.happen(kind, colour)

    @rule()
    def shake(self) -> None:
        self.pair.shake()

    @rule(name=st.sampled_from(NAMES))
    def activate(self, name: str) -> None:
        self.pair.activate(name)

    @rule(milliseconds=st.sampled_from([1, 999, 1000, 2500, 11_000, 301_000]))
    def advance(self, milliseconds: int) -> None:
        self.pair.advance(milliseconds)

    @rule()
    def flush(self) -> None:
        self.pair.flush()

    @rule()
    def sleep_until_due(self) -> None:
        self.pair.sleep_until_due()

    @precondition(lambda self: any(not pod.deleted for pod in self.pair.model.pods))
    @rule(
        n=st.integers(0, 7),
        priority=st.none() | st.integers(0, 2),
        colour=st.none() | st.sampled_from(COLOURS),
        ungate=st.booleans(),
    )
    def change(self, n: int, priority: int | None, colour: str | None, ungate: bool) -> None:
        self.pair.change(self.a_pod(n), priority, colour, ungate)

    @precondition(lambda self: any(not pod.deleted for pod in self.pair.model.pods))
    @rule(n=st.integers(0, 7))
    def delete(self, n: int) -> None:
        self.pair.delete(self.a_pod(n))

    @precondition(lambda self: self.pair.model.in_place("in_flight"))
    @rule(
        n=st.integers(0, 7),
        by=st.sets(st.sampled_from(PLUGINS)),
        pending=st.sets(st.sampled_from(PLUGINS), max_size=1),
        seen=st.integers(0, 3),
    )
    def fail(self, n: int, by: set[str], pending: set[str], seen: int) -> None:
        self.pair.fail(self.a_flying(n), by, pending, seen)

    @precondition(lambda self: self.pair.model.in_place("in_flight"))
    @rule(n=st.integers(0, 7), how=st.sampled_from(["done", "give_back"]))
    def end(self, n: int, how: str) -> None:
        getattr(self.pair, how)(self.a_flying(n))

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "pair"):
            self.pair.compare()


# Short among the fast tests; RAYCHED_QUEUE_STEPS=10000 takes it through so many steps.
QueueMachine.TestCase.settings = settings(max_examples=max(20, MACHINE_STEPS // 50), stateful_step_count=50, deadline=None)
TestQueueAgainstItsModel = QueueMachine.TestCase
