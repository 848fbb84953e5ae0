"""A workload with queue and scheduler as in production, but in one thread and without Ray: small runs for tests and profiles.

`python -m benchmarks.one_thread WORKLOAD [--nodes N] [--init N] [--measure N] [--profile]`. Prints one line of JSON; exit code 1
where pods stayed unbound or a placement is not allowed. `--profile` prints where the time went, too.

`us_per_pod` has the CPU time by stage: `watch` (pods that come, bindings that come back), `decide`, `writes` (bindings and
conditions with their transactions), `answers` (of transactions), `exchange` (pods that the queue gives), and beside the scheduler
`queue`, `store` and `benchmark`.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from queue import Empty
from typing import Any, Final, TypeVar

from benchmarks import workloads
from benchmarks.memory_cluster import EPOCH, MemoryCluster, Pair
from benchmarks.workloads import Workload
from rayched.actors.garbage import collect_rarely
from rayched.configuration.configuration import Configuration
from rayched.configuration.profile_building import default_profile
from rayched.core.exchange.messages import ExchangeAnswer
from rayched.core.exchange.queue_core import QueueCore, queue_factory
from rayched.core.ports import Ports
from rayched.core.scheduler_core import SchedulerCore
from rayched.plugins.in_tree import IN_TREE
from rayched.store.entries import Change
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Changed

SECONDS_MAX: Final = 120.0
DELIVERY_MAX: Final = 512
QUIET_SECONDS: Final = 1.0
_SHOWN: Final = 40
_T = TypeVar("_T")


class OneThread:
    """A leader, its queue, the store, and the agents of all nodes."""

    def __init__(self, workload: Workload) -> None:
        keys = Keys("/bench")
        self.cluster = MemoryCluster(workload, keys)
        profile = default_profile(IN_TREE)
        profiles = {profile.scheduler_name: profile}
        ports = Ports(lambda: EPOCH, time.monotonic, time.time, lambda: None)
        self.core = SchedulerCore(keys, profiles, 1, "bench", 1, ports)
        self.queue = QueueCore(queue_factory(Configuration(), profiles))
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """CPU time by what it was for."""
        self.core.watched(self.cluster.memory.listed())
        self._changes()

    def prepare(self) -> bool:
        """Pods that are there before; whether those got their nodes that are to have them."""
        before = list(self.cluster.workload.pods_before())
        gated = [self.cluster.pair(pod) for group, pod in before if group.gated]
        if gated:
            self.cluster.memory.put_all(gated)
            self._settle()
        return self.bind([self.cluster.pair(pod) for group, pod in before if not group.gated])

    def bind(self, pairs: Sequence[Pair]) -> bool:
        """Whether all of them were seen bound within the time."""
        if not pairs:
            return True
        cluster = self.cluster
        cluster.await_pods(key for key, _ in pairs)
        cluster.memory.put_all(pairs)
        deadline = time.process_time() + SECONDS_MAX
        while not cluster.all_bound.is_set() and time.process_time() < deadline:
            self._step()
        return cluster.all_bound.is_set()

    def _settle(self) -> None:
        """Until nothing is written any more: conditions of pods that wait."""
        revision, until = -1, 0.0
        while revision != self.cluster.memory.revision or time.monotonic() < until:
            if revision != self.cluster.memory.revision:
                revision, until = self.cluster.memory.revision, time.monotonic() + QUIET_SECONDS
            self._step()

    def _step(self) -> None:
        core, timed = self.core, self._timed
        changes = self._changes()
        if changes:
            timed("watch", core.watched, Changed(tuple(changes), changes[-1].mod_revision))
            timed("benchmark", self.cluster.seen, changes)
        turn = timed("writes", core.turn)
        for send in turn.sends:
            answered = timed("store", self.cluster.memory.txn_future, send.content).result()
            timed("answers", core.transaction_answered, send.number, answered)
        answer: ExchangeAnswer | None = None
        if turn.exchange is not None:
            answer = timed("queue", self.queue.exchange, turn.exchange)
        timed("decide", core.decide)
        if answer is not None:
            timed("exchange", core.exchange_answered, answer)

    def _timed(self, stage: str, call: Callable[..., _T], *arguments: Any) -> _T:
        began = time.thread_time()
        result = call(*arguments)
        self.seconds[stage] += time.thread_time() - began
        return result

    def _changes(self) -> list[Change]:
        found: list[Change] = []
        while len(found) < DELIVERY_MAX:
            try:
                found.extend(self.cluster.memory.changes.get_nowait())
            except Empty:
                break
        return found


def measure(workload: Workload, templates: int = 1, profiler: cProfile.Profile | None = None) -> dict[str, Any]:
    """Figures of one run; `wrong` has what was not as it should be."""
    rig = OneThread(workload)
    wrong = [] if rig.prepare() else [f"not all pods that are there before were bound within {SECONDS_MAX:.0f} s of CPU"]
    pods = rig.cluster.pairs(workload.pods_measured(templates))
    meanwhile = rig.cluster.meanwhile()
    for one in meanwhile:
        one.start()
    rig.seconds.clear()
    began = time.process_time()
    if profiler is not None:
        profiler.enable()
    if not rig.bind(pods):
        wrong.append(f"{len(rig.cluster.bound)} of {len(pods)} pods were bound within {SECONDS_MAX:.0f} s of CPU")
    if profiler is not None:
        profiler.disable()
    cpu_seconds = time.process_time() - began
    for one in meanwhile:
        one.stop()
    judge = rig.cluster.judged(templates)
    return {
        "workload": workload.name,
        "nodes": workload.nodes,
        "init_pods": workload.init_pods,
        "measured_pods": len(pods),
        "bound": len(rig.cluster.bound),
        "placed": judge.placed,
        "pods_per_cpu_second": round(len(pods) / cpu_seconds, 1),
        "us_per_pod": {stage: round(1e6 * seconds / len(pods), 1) for stage, seconds in rig.seconds.items()},
        "wrong": [*wrong, *judge.wrong],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_thread", description=__doc__)
    parser.add_argument("workload")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--init", type=int)
    parser.add_argument("--measure", type=int)
    parser.add_argument("--templates", type=int, default=1)
    parser.add_argument("--profile", action="store_true", help="print where the time went")
    options = parser.parse_args(arguments)
    try:
        workload = workloads.chosen(options.workload)[0].sized(options.nodes, options.init, options.measure)
    except ValueError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    # As the processes of production do; else a collection of 40 ms falls into one stage or another.
    collect_rarely()
    profiler = cProfile.Profile(time.process_time) if options.profile else None
    found = measure(workload, options.templates, profiler)
    print(json.dumps(found))
    if profiler is not None:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(_SHOWN)
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
