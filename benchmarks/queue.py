"""The scheduling queue by itself, and the scheduler beside a queue full of pods that fit nowhere: `python -m benchmarks.queue`.

growth   pods added to a queue and popped in the order of priority: a pop costs as log n, an addition as good as nothing more
crowd    how much 20,000 unschedulable pods and a stream of events that help none of them cost the scheduling of other pods

The crowd is measured within one run: three schedulers with their queues, one beside the crowd and its events and two without
either, get the same pods in turn, and the median of the ratios of neighbouring rounds is told, also for the two that are equal.
In place of the crowd these two have as many pods that are bound: what is compared is waiting, not the size of a cluster, whose
larger dictionaries fit a processor's caches less well. A fourth scheduler, in a cluster without any of these pods, shows how much
that is.
All work in one thread, binding into memory, and the queue's part is timed by itself: as actors, queue and scheduler are two
processes, and the slower one sets the rate. What both together lose is told, too. Times are those of the thread.

The events are changes of a node's annotations, departures of pods, and labels that no pod asks for. The crowd was rejected by
NodeAffinity, for COLOURS different selectors; one change of labels asks the hint once for each of these.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from random import Random
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.memory_store import MemoryStore
from benchmarks.shapes import a_node
from rayched.api import defaulting, kinds
from rayched.configuration.configuration import Configuration
from rayched.configuration.profile_building import default_profile
from rayched.core.exchange.queue_core import QueueCore, queue_factory
from rayched.core.ports import Ports
from rayched.core.scheduler_core import SchedulerCore
from rayched.framework.profile import Profile
from rayched.plugins.in_tree import IN_TREE
from rayched.queue.queued_pod import PendingPod
from rayched.store.codec import encode
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Changed
from rayched.v1.core_pb2 import Node, Pod

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
CROWD: Final = 20_000
COLOURS: Final = 100
NODES: Final = 1_000
ROUND_PODS: Final = 400
BATCH_PODS: Final = 20
PODS_PER_EVENT: Final = 80
"""As when 100 things a second happen in a cluster that binds 8,000 pods a second."""
ROUNDS: Final = 41
COST_MAX: Final = 0.05
"""Of the rate; more makes the command fail."""
_KEYS: Final = Keys("/bench")
_EPOCH: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.queue", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", choices=["growth", "crowd", []], help="default: both")
    parser.add_argument("--pods", type=int, default=SIZES[-1], help="of the largest queue (default: %(default)s)")
    parser.add_argument("--crowd", type=int, default=CROWD, help="unschedulable pods (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each scheduler (default: %(default)s)")
    options = parser.parse_args(arguments)
    what = options.what or ["growth", "crowd"]
    if "growth" in what:
        _print_growth([size for size in SIZES if size < options.pods] + [options.pods])
    return 0 if "crowd" not in what or _print_crowd(options.crowd, options.rounds) <= COST_MAX else 1


# --------------------------------------------------------------------------------------------------------------- growth


def _print_growth(sizes: Sequence[int]) -> None:
    table = Table(title="pods added and popped in the order of priority", title_justify="left")
    for heading in ("pods", "add, ns", "pop, ns", "pop, ns / log2 n"):
        table.add_column(heading, justify="right")
    for size in sizes:
        add, pop = growth(size)
        table.add_row(f"{size:,}", f"{add:,.0f}", f"{pop:,.0f}", f"{pop / math.log2(size):,.1f}")
    Console(width=100).print(table)


def growth(size: int) -> tuple[float, float]:
    """Nanoseconds for one addition and one pop, of so many. Raises AssertionError where the order is wrong."""
    profile = default_profile(IN_TREE)
    queue = queue_factory(Configuration(), {profile.scheduler_name: profile})
    core = QueueCore(queue)
    random, pod = Random(size), Pod()
    pod.spec.scheduler_name = profile.scheduler_name
    pods = [
        PendingPod(f"uid-{number}", f"default/p{number}", pod, random.randrange(1_000), profile.scheduler_name, template=0)
        for number in range(size)
    ]
    gc.collect()
    gc.disable()
    try:
        began = time.thread_time_ns()
        for number, pending in enumerate(pods):
            core.queue.add(pending, float(number))
        added = time.thread_time_ns()
        last = math.inf
        for _ in range(size):
            popped = core.queue.pop(float(size))
            assert popped is not None and popped.priority <= last
            last = popped.priority
            core.queue.done(popped.uid)
        ended = time.thread_time_ns()
    finally:
        gc.enable()
    return (added - began) / size, (ended - added) / size


# ---------------------------------------------------------------------------------------------------------------- crowd


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds of a round, by what is a process of its own."""

    scheduler: float
    queue: float

    @property
    def slower(self) -> float:
        return max(self.scheduler, self.queue)

    @property
    def both(self) -> float:
        return self.scheduler + self.queue


class Driven:
    """Scheduler, queue and store in this thread."""

    def __init__(self, nodes: Iterable[Node] = (), profile: Profile | None = None) -> None:
        """Without `nodes` there are NODES equal ones."""
        profile = profile or default_profile(IN_TREE)
        profiles = {profile.scheduler_name: profile}
        self.store = MemoryStore()
        self._random = Random(1)
        self._names = (f"p{number}" for number in range(10**9))
        self.bound: list[bytes] = []
        self._seconds = 0.0
        self._in_queue = 0.0
        """Seconds spent in the queue's part."""
        self._running_since: float | None = None
        ports = Ports(lambda: _EPOCH, self._clock, time.time, lambda: None)
        self.core = SchedulerCore(_KEYS, profiles, 1, "bench", 1, ports)
        self.queue = QueueCore(queue_factory(Configuration(), profiles), time.perf_counter)
        self.store.put_all([(_KEYS.epoch, b"{}")])
        nodes = list(nodes) or [a_node(f"node-{number}") for number in range(NODES)]
        self.store.put_all([_stored(node) for node in nodes])
        self._drop_changes()
        self.core.watched(self.store.listed())

    def _clock(self) -> float:
        """What is done so often a second (batches, the audit) goes by the time that is measured: that in which this one runs."""
        return self._seconds + (0.0 if self._running_since is None else time.thread_time() - self._running_since)

    def crowd_in(self, count: int) -> None:
        """Pods that no node takes, each tried once."""
        for first in range(0, count, 500):
            self.store.put_all([_stored(_a_pod(next(self._names), f"colour-{n % COLOURS}")) for n in range(first, first + 500)])
            self.settle()
        # Until the crowd's statuses, written just now, are no longer remembered: it waits, and has not just come.
        self._seconds += 10.0
        self.settle()
        parked = self.queue.queue.pending().unschedulable
        assert parked == count, f"{parked} pods are unschedulable, not {count}"

    def bystanders_in(self, count: int) -> None:
        """As many pods as a crowd has, on nodes."""
        for first in range(0, count, 500):
            self.store.put_all([_stored(_a_pod(next(self._names), node=n % NODES)) for n in range(first, first + 500)])
            self.settle()

    def round(self, *, events: bool) -> Taken:
        """What ROUND_PODS pods take, with the stream of events in between or without."""
        pods = [_stored(_a_pod(next(self._names))) for _ in range(ROUND_PODS)]
        stream = list(islice(self._stream(), ROUND_PODS // PODS_PER_EVENT)) if events else []
        gc.collect()
        gc.disable()

        def settle_all() -> None:
            for first in range(0, ROUND_PODS, BATCH_PODS):
                self.store.put_all(pods[first : first + BATCH_PODS])
                if stream and first % PODS_PER_EVENT == 0:
                    stream.pop()()
                self.settle()

        taken = self._timed(settle_all, pods)
        gc.enable()
        return taken

    def batch(self) -> Taken:
        """What BATCH_PODS pods take."""
        pods = [_stored(_a_pod(next(self._names))) for _ in range(BATCH_PODS)]
        return self._timed(lambda: self._put(pods), pods)

    def _timed(self, run: Callable[[], None], pods: Sequence[tuple[bytes, bytes]]) -> Taken:
        """What `run` takes, which brings these pods to nodes."""
        self._in_queue = 0.0
        began = self._running_since = time.thread_time()
        run()
        seconds = time.thread_time() - began
        self._seconds, self._running_since = self._clock(), None
        self.bound += [key for key, _ in pods]
        assert self.queue.queue.pending().active == 0
        return Taken(seconds - self._in_queue, self._in_queue)

    def leave(self) -> None:
        """All pods of rounds and batches go."""
        for key in self.bound:
            self.store.delete(key)
        self.bound.clear()
        self.settle()

    def put(self, pods: Iterable[Pod]) -> None:
        """Pods as they are, and what comes of them."""
        self._put([_stored(pod) for pod in pods])

    def _put(self, stored: Sequence[tuple[bytes, bytes]]) -> None:
        self.store.put_all(stored)
        self.settle()

    def settle(self) -> None:
        """Everything that is under way arrives, until nothing moves."""
        while True:
            moved = self._deliver()
            turn = self.core.turn()
            for send in turn.sends:
                self.core.transaction_answered(send.number, self.store.txn_future(send.content).result())
                moved = True
            if turn.exchange is not None:
                began = time.thread_time()
                answer = self.queue.exchange(turn.exchange)
                self._in_queue += time.thread_time() - began
                self.core.exchange_answered(answer)
                moved = True
            if not self.core.decide() and not moved:
                return

    def _deliver(self) -> bool:
        changes: list[Any] = []
        while not self.store.changes.empty():
            changes.extend(self.store.changes.get())
        if changes:
            self.core.watched(Changed(tuple(changes), changes[-1].mod_revision))
        return bool(changes)

    def _drop_changes(self) -> None:
        while not self.store.changes.empty():
            self.store.changes.get()

    def _stream(self) -> Iterator[Callable[[], None]]:
        """Changes that help nobody in the crowd, to be made when called."""
        for number in itertools.count(1):
            node = a_node(f"node-{self._random.randrange(NODES)}")
            match number % 3:
                case 0 if self.bound:
                    yield partial(self.store.delete, self.bound.pop())
                case 1:
                    node.metadata.annotations["seen"] = str(number)
                    yield partial(self.store.put_all, [_stored(node)])
                case _:
                    node.metadata.labels["rack"] = str(self._random.randrange(40))
                    yield partial(self.store.put_all, [_stored(node)])


def _print_crowd(crowd: int, rounds: int) -> float:
    times = crowd_seconds(crowd, rounds)
    table = Table(title=f"scheduling beside {crowd:,} unschedulable pods and an event for each {PODS_PER_EVENT} pods")
    for heading in ("", "pods/s", "scheduler, µs a pod", "queue, µs a pod"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, taken in zip(
        ("nobody waits", "nobody waits, too", "beside the crowd", "a smaller cluster"), zip(*times, strict=True), strict=True
    ):
        slower, scheduler, queue = (
            statistics.median(getattr(one, what) for one in taken) for what in ("slower", "scheduler", "queue")
        )
        row = f"{ROUND_PODS / slower:,.0f}", f"{scheduler / ROUND_PODS * 1e6:,.1f}", f"{queue / ROUND_PODS * 1e6:,.1f}"
        table.add_row(name, *row)
    console = Console(width=100, highlight=False)
    console.print(table)
    cost = _lost(times, lambda one: one.slower)
    control = 1 - statistics.median(one.slower / other.slower for one, other, _, _ in times)
    size = 1 - statistics.median(small.slower / (one.slower + other.slower) * 2 for one, other, _, small in times)
    console.print(f"the crowd and its events cost {cost:.1%} of the rate ({COST_MAX:.0%} are allowed)")
    console.print(f"were queue and scheduler one process, they would cost {_lost(times, lambda one: one.both):.1%}")
    console.print(f"between the two without a crowd the difference is {control:.1%}: so exact is this machine now")
    console.print(f"that so many pods exist at all, bound or waiting, costs {size:.1%}")
    return cost


def _lost(times: Sequence[tuple[Taken, ...]], what: Callable[[Taken], float]) -> float:
    """The share of the rate that the crowd costs."""
    seconds = [[what(one) for one in row] for row in times]
    return 1 - statistics.median((one + other) / 2 / crowded for one, other, crowded, _ in seconds)


def crowd_seconds(crowd: int, rounds: int) -> list[tuple[Taken, Taken, Taken, Taken]]:
    """Neighbouring rounds: two without the crowd and its events, one with them, one in a smaller cluster."""
    drivens = Driven(), Driven(), Driven(), Driven()
    for driven in drivens[:2]:
        driven.bystanders_in(crowd)
    drivens[2].crowd_in(crowd)
    for driven in drivens:
        driven.round(events=False)
    times: list[tuple[Taken, Taken, Taken, Taken]] = []
    for number in range(rounds):
        # Who comes first changes, so that a machine that slows down slows all of them.
        taken: dict[int, Taken] = {}
        for which in ((0, 2, 1, 3), (2, 1, 3, 0), (1, 3, 0, 2), (3, 0, 2, 1))[number % 4]:
            taken[which] = drivens[which].round(events=which == 2)
        times.append((taken[0], taken[1], taken[2], taken[3]))
    return times


def _a_pod(name: str, colour: str = "", node: int | None = None) -> Pod:
    pod = Pod()
    if node is not None:
        pod.spec.node_name = f"node-{node}"
    pod.metadata.namespace, pod.metadata.name, pod.metadata.uid = "default", name, f"uid-{name}"
    container = pod.spec.containers.add(name="main", image="registry.example/app:1")
    container.resources.requests["cpu"].string = "10m"
    if colour:
        pod.spec.node_selector["colour"] = colour
    defaulting.default(pod)
    return pod


def _stored(message: Node | Pod) -> tuple[bytes, bytes]:
    kind, metadata = kinds.of_message(message), message.metadata
    return _KEYS.object_key(kind, metadata.namespace, metadata.name), encode(kinds.wrap(message))


if __name__ == "__main__":
    sys.exit(main())
