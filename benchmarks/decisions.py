"""What keeping the last decisions costs the scheduler: `python -m benchmarks.decisions`.

One scheduler with its queue, in one thread and binding into memory, places pods of one template, some batches while it keeps its
decisions and some while it does not: with, without, without, with, then the other way round. Times are those of the thread and of
the scheduler's part alone, which is watch, cycle, binding and exchange. The ring is full before the first batch counts, so that
each note drives out another one.

equal    nodes that are equal, nearly all of which tie
diverse  nodes of all sizes, of which some hundreds tie
in use   nodes of all sizes on each of which something else has taken up its own share, and a profile with weights that make of
         two scores one that is finer: few tie, so that the best five have to be found

cost     the median over such groups of what the batches with take more than those without. It judges: beyond COST_MAX for any of
         the clusters the command fails.
exact to twice the standard error of that median
noting   what a note takes by itself: the median of it in batches of their own, less what the clock takes, as a share of the time
         a pod. What it costs others, whose data it drives out of the processor's caches, is the cost beyond it.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from benchmarks.queue import BATCH_PODS, Driven
from benchmarks.shapes import a_node
from rayched.api import defaulting
from rayched.configuration.configuration_file import load
from rayched.plugins.in_tree import IN_TREE
from rayched.scheduler.decisions import DECISIONS_MAX
from rayched.v1.core_pb2 import Node, Pod

NODES: Final = 5_000
GROUPS: Final = 600
ORDERS: Final = ((True, False, False, True), (False, True, True, False))
"""Of a group's batches: with or without, so that what changes slowly counts for neither."""
STRETCH: Final = 9
"""Groups, after which all their pods leave, so that they do not level the nodes out, and garbage is collected; no batch is
interrupted by that. Odd, so that each order comes first equally often."""
COST_MAX: Final = 0.02
"""Of the scheduler's time a pod; more makes the command fail."""
FINER: Final = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled: [{name: NodeResourcesFit, weight: 100}]
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.decisions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=NODES, help="(default: %(default)s)")
    parser.add_argument("--groups", type=int, default=GROUPS, help="of four batches each (default: %(default)s)")
    parser.add_argument("--clusters", nargs="+", choices=list(CLUSTERS), default=list(CLUSTERS), help="(default: all)")
    options = parser.parse_args(arguments)
    table = Table(title=f"keeping the last {DECISIONS_MAX:,} decisions, {options.nodes:,} nodes", title_justify="left")
    for heading in ("nodes", "that tie", "without, µs a pod", "cost", "exact to", "noting"):
        table.add_column(heading, justify="left" if heading == "nodes" else "right")
    worst = 0.0
    for name in options.clusters:
        found = measured(CLUSTERS[name](options.nodes), options.groups)
        worst = max(worst, found.cost)
        shares = f"{found.cost:.1%}", f"{found.exact:.1%}", f"{found.noting / found.without:.1%}"
        table.add_row(name, f"{found.ties:,.0f}", f"{found.without * 1e6:.1f}", *shares)
    Console(width=100, highlight=False).print(table)
    return 0 if worst <= COST_MAX else 1


# ------------------------------------------------------------------------------------------------------------ measuring


class Measured(NamedTuple):
    """Seconds a pod, and shares of them."""

    without: float
    cost: float
    exact: float
    noting: float
    ties: float
    """Nodes that tie, by the median."""


def measured(driven: Driven, groups: int) -> Measured:
    decisions = driven.core.scheduler.decisions
    # The clock that schedulers have; that of the thread, by which this is measured, takes five times as long to read.
    decisions.stopwatch = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    while len(decisions) < DECISIONS_MAX:
        driven.batch()
    without, costs = [], []
    gc.disable()
    try:
        for number in range(groups):
            if not number % STRETCH:
                _begin_stretch(driven)
            taken = {True: 0.0, False: 0.0}
            for keeps in ORDERS[number % 2]:
                decisions.keeps = keeps
                taken[keeps] += driven.batch().scheduler
            without.append(taken[False] / (2 * BATCH_PODS))
            costs.append(taken[True] / taken[False] - 1)
        decisions.keeps = True
        noting, ties = _noting(driven, groups)
    finally:
        gc.enable()
    return Measured(statistics.median(without), statistics.median(costs), _exact_to(costs), noting, ties)


def _noting(driven: Driven, batches: int) -> tuple[float, float]:
    """Seconds that one note takes, and nodes that tie, both by the median."""
    decisions, clock = driven.core.scheduler.decisions, time.perf_counter
    chose, seconds, ties = decisions.chose, [], []

    def timed(*arguments: Any) -> None:
        began = clock()
        chose(*arguments)
        seconds.append(clock() - began)
        ties.append(len(arguments[-1]))

    with patch.object(decisions, "chose", timed):
        for number in range(batches):
            if not number % (4 * STRETCH):
                _begin_stretch(driven)
            driven.batch()
    empty = []
    for _ in range(len(seconds)):
        began = clock()
        empty.append(clock() - began)
    return statistics.median(seconds) - statistics.median(empty), statistics.median(ties)


def _begin_stretch(driven: Driven) -> None:
    driven.leave()
    gc.collect()


def _exact_to(values: Sequence[float]) -> float:
    """Twice the standard error of the median, from the median deviation, which a few disturbed values do not change."""
    median = statistics.median(values)
    deviation = 1.4826 * statistics.median(abs(value - median) for value in values)
    return float(2 * 1.2533 * deviation / len(values) ** 0.5)


# ------------------------------------------------------------------------------------------------------------- clusters


def equal(count: int) -> Driven:
    return Driven(a_node(f"node-{number}", amounts={"cpu": "64", "memory": "256Gi", "pods": "1000"}) for number in range(count))


def diverse(count: int) -> Driven:
    return Driven(_of_all_sizes(count))


def in_use(count: int) -> Driven:
    nodes, profiles = list(_of_all_sizes(count)), load(FINER, "FINER", IN_TREE).profiles
    driven = Driven(nodes, profiles["default-scheduler"])
    driven.put(_tenants(nodes))
    return driven


CLUSTERS: Final = {"equal": equal, "diverse": diverse, "in use": in_use}


def _of_all_sizes(count: int) -> Iterator[Node]:
    random = Random(1)
    for number in range(count):
        amounts = {"cpu": f"{random.randrange(500, 4000)}m", "memory": f"{random.randrange(1000, 8000)}Mi", "pods": "1000"}
        yield a_node(f"node-{number}", amounts=amounts)


def _tenants(nodes: Iterable[Node]) -> Iterator[Pod]:
    """One for each node, which takes up to nine tenths of it."""
    random = Random(2)
    for node in nodes:
        pod, name, there = Pod(), f"tenant-of-{node.metadata.name}", node.status.allocatable
        pod.metadata.namespace, pod.metadata.name, pod.metadata.uid, pod.spec.node_name = (
            "default",
            name,
            name,
            node.metadata.name,
        )
        requests = pod.spec.containers.add(name="main", image="registry.example/tenant:1").resources.requests
        for resource, unit in (("cpu", "m"), ("memory", "Mi")):
            requests[resource].string = f"{int(there[resource].string.removesuffix(unit)) * random.randrange(90) // 100}{unit}"
        defaulting.default(pod)
        yield pod


if __name__ == "__main__":
    sys.exit(main())
