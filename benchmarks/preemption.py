"""`python -m benchmarks.preemption [--nodes N] [--preemptors N]`: full nodes, and pods that each need three others to go.

Queue and scheduler as in production, in one thread, over a store in memory that stands for etcd and for the nodes' agents: who is
told to end is gone at once, as in kube-scheduler's own measurement. The clock runs from the first preemptor handed to the watch
until the last one was seen bound. Prints one line of JSON; exit code 1 where a victim was not of lower priority, somebody had
more or fewer victims than needed, or not all were bound.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from queue import Empty
from typing import Final

from benchmarks import kube_scheduler
from benchmarks.memory_store import MemoryStore
from rayched.actors.messages import ExchangeAnswer
from rayched.actors.queue_core import QueueCore, queue_factory
from rayched.actors.scheduler_core import Ports, SchedulerCore
from rayched.api import kinds
from rayched.framework.configuration import Configuration
from rayched.framework.profile_building import default_profile
from rayched.plugins.in_tree import IN_TREE
from rayched.store.codec import encode
from rayched.store.entries import Change, Entry
from rayched.store.keys import Keys
from rayched.store.list_watch import Changed
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.storage_pb2 import Stored

PODS_A_NODE: Final = 4
VICTIMS_EACH: Final = 3
LOW_MILLI_CPU: Final = 900
HIGH_CPU: Final = 3
"""Beside four low pods 400 milli-CPU of four CPUs are free: three of them have to go."""
HIGH_PRIORITY: Final = 10
SECONDS_MAX: Final = 120.0
DELIVERY_MAX: Final = 512
EPOCH: Final = 2
_ENDING: Final = b"PreemptionByScheduler"


@dataclass(frozen=True)
class Outcome:
    nodes: int
    init_pods: int
    measured_pods: int
    bound: int
    victims: int
    seconds: float
    cpu_seconds: float
    pods_per_second: float
    pods_per_cpu_second: float
    decision_ms_p50: float
    """Of one cycle that ends in a preemption."""
    wrong: tuple[str, ...]


class Rig:
    """A leader, its queue, the store, and the agents of all nodes."""

    def __init__(self, nodes: int) -> None:
        self.keys = Keys("/bench")
        self.store = MemoryStore()
        self.store.put_all([(self.keys.epoch, b"")])
        profile = default_profile(IN_TREE)
        profiles = {profile.scheduler_name: profile}
        ports = Ports(lambda: EPOCH, time.monotonic, time.time, lambda: None)
        self.core = SchedulerCore(self.keys, profiles, 1, "bench", 1, ports)
        self.queue = QueueCore(queue_factory(Configuration(), profiles))
        self.cycles: list[float] = []
        """Seconds of decisions that made room."""
        self.victims: dict[bytes, Pod] = {}
        self.bound: set[bytes] = set()
        self.store.put_all([self.pair(a_node(number)) for number in range(nodes)])
        low = [a_pod(f"low-{number}", f"{LOW_MILLI_CPU}m", 0, f"node-{number % nodes}") for number in range(PODS_A_NODE * nodes)]
        self.store.put_all([self.pair(pod) for pod in low])
        self.core.watched(self.store.listed())
        while self._changes():
            pass
        self._watch_cycles()

    def pair(self, item: Node | Pod) -> tuple[bytes, bytes]:
        return self.keys.object_key(kinds.of_message(item), item.metadata.namespace, item.metadata.name), encode(kinds.wrap(item))

    def run(self, pods: Sequence[Pod]) -> float:
        """Seconds until all of them are seen bound, or SECONDS_MAX."""
        pairs = [self.pair(pod) for pod in pods]
        wanted = {key for key, _ in pairs}
        began = time.perf_counter()
        self.store.put_all(pairs)
        while not wanted <= self.bound and time.perf_counter() - began < SECONDS_MAX:
            self._step()
        return time.perf_counter() - began

    def _step(self) -> None:
        core = self.core
        changes = self._changes()
        if changes:
            core.watched(Changed(tuple(changes), changes[-1].mod_revision))
        turn = core.turn()
        for send in turn.sends:
            core.transaction_answered(send.number, self.store.txn_future(send.request).result())
        answer: ExchangeAnswer | None = None
        if turn.exchange is not None:
            answer = self.queue.exchange(turn.exchange)
        core.decide()
        if answer is not None:
            core.exchange_answered(answer)

    def _changes(self) -> list[Change]:
        """What happened; whoever is ending is gone."""
        found: list[Change] = []
        while len(found) < DELIVERY_MAX:
            try:
                found.extend(self.store.changes.get_nowait())
            except Empty:
                break
        for change in found:
            if isinstance(change, Entry) and b"/pods/" in change.key:
                if _ENDING in change.value:
                    self.victims[change.key] = Stored.FromString(change.value).object.pod
                    self.store.delete(change.key)
                elif b"/high-" in change.key and Stored.FromString(change.value).object.pod.spec.node_name:
                    self.bound.add(change.key)
        return found

    def _watch_cycles(self) -> None:
        schedule = self.core.scheduler.schedule

        def timed(*arguments: object) -> object:
            began = time.perf_counter()
            result = schedule(*arguments)  # type: ignore[arg-type]
            if getattr(result, "preemption", None) is not None:
                self.cycles.append(time.perf_counter() - began)
            return result

        self.core.scheduler.schedule = timed  # type: ignore[assignment, method-assign]


def a_node(number: int) -> Node:
    node = Node()
    node.metadata.name = f"node-{number}"
    node.metadata.labels["kubernetes.io/hostname"] = node.metadata.name
    for resource, amount in (("cpu", "4"), ("memory", "32Gi"), ("pods", "110")):
        node.status.allocatable[resource].string = amount
    return node


def a_pod(name: str, cpu: str, priority: int, node_name: str = "") -> Pod:
    pod = Pod()
    pod.metadata.namespace, pod.metadata.name, pod.metadata.uid = "default", name, name
    pod.spec.scheduler_name, pod.spec.priority = "default-scheduler", priority
    pod.spec.termination_grace_period_seconds = 30
    container = pod.spec.containers.add(name="c", image="app:1")
    container.resources.requests["cpu"].string = cpu
    container.resources.requests["memory"].string = "500Mi"
    if node_name:
        pod.spec.node_name, pod.status.phase = node_name, "Running"
        pod.status.start_time.seconds = 1_700_000_000
    return pod


def measure(nodes: int, preemptors: int) -> Outcome:
    rig = Rig(nodes)
    pods = [a_pod(f"high-{number}", str(HIGH_CPU), HIGH_PRIORITY) for number in range(preemptors)]
    cpu_began = time.process_time()
    seconds = rig.run(pods)
    cpu_seconds = time.process_time() - cpu_began
    cycles = sorted(rig.cycles)
    return Outcome(
        nodes=nodes,
        init_pods=PODS_A_NODE * nodes,
        measured_pods=preemptors,
        bound=len(rig.bound),
        victims=len(rig.victims),
        seconds=round(seconds, 3),
        cpu_seconds=round(cpu_seconds, 3),
        pods_per_cpu_second=round(len(rig.bound) / cpu_seconds, 1),
        pods_per_second=round(len(rig.bound) / seconds, 1),
        decision_ms_p50=round(1000 * cycles[len(cycles) // 2], 3) if cycles else 0.0,
        wrong=tuple(_wrong(rig, preemptors)),
    )


def _wrong(rig: Rig, preemptors: int) -> Iterator[str]:
    if len(rig.bound) < preemptors:
        yield f"{len(rig.bound)} of {preemptors} pods were bound within {SECONDS_MAX:.0f} s"
    if any(pod.spec.priority >= HIGH_PRIORITY for pod in rig.victims.values()):
        yield "a victim has no lower priority"
    per_node = Counter(pod.spec.node_name for pod in rig.victims.values())
    if len(rig.victims) != VICTIMS_EACH * preemptors or set(per_node.values()) - {VICTIMS_EACH}:
        yield f"{len(rig.victims)} victims for {preemptors} pods, from {min(per_node.values(), default=0)} a node on"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.preemption", description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--preemptors", type=int, default=500)
    options = parser.parse_args(arguments)
    outcome = measure(options.nodes, options.preemptors)
    line = asdict(outcome)
    best = kube_scheduler.best("PreemptionBasic", outcome.nodes, outcome.init_pods, outcome.measured_pods)
    if best is not None:
        line |= {"kube_scheduler_best": best, "ratio_to_kube_scheduler": round(outcome.pods_per_second / best, 1)}
    print(json.dumps(line))
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
