"""What keeping the last decisions costs the scheduler: `python -m benchmarks.decisions`.

One scheduler with its queue, in one thread and binding into memory, places ROUND_PODS pods a round, in turn with and without
keeping its decisions, for nodes that are equal, so that many tie, and for nodes of which hardly two are. Times are those of the
thread and of the scheduler's part alone, which is watch, cycle, binding and exchange.

noting   what each decision's note takes by itself: the median of it in rounds of their own, less what the clock takes, as a share
         of the time a pod. It judges: it is exact also on a machine that does other things, but knows nothing of what a note
         costs others, whose data it drives out of the processor's caches.
cost     the median of the ratios of neighbouring rounds, which knows that too. The difference between rounds that are the same in
         this respect tells how exact it is at the moment.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from benchmarks.queue import ROUND_PODS, Driven
from benchmarks.shapes import a_node
from rayched.scheduler.decisions import DECISIONS_MAX
from rayched.v1.core_pb2 import Node

NODES: Final = 5_000
ROUNDS: Final = 40
WARM_ROUNDS: Final = 3
TIMED_IN: Final = 4
"""One round in which each note is timed for so many others."""
COST_MAX: Final = 0.02
"""Of the scheduler's time a pod; more makes the command fail."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.decisions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=NODES, help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="with and without, each (default: %(default)s)")
    options = parser.parse_args(arguments)
    table = Table(title=f"keeping the last {DECISIONS_MAX:,} decisions, {options.nodes:,} nodes", title_justify="left")
    for heading in ("nodes", "without, µs a pod", "with, µs a pod", "noting", "cost", "exact to"):
        table.add_column(heading, justify="left" if heading == "nodes" else "right")
    worst = 0.0
    for name, nodes in (("equal", equal(options.nodes)), ("diverse", diverse(options.nodes))):
        found = measured(nodes, options.rounds)
        noting = found.noting / found.without
        worst = max(worst, noting)
        shares = f"{noting:.1%}", f"{found.cost:.1%}", f"{found.exact:.1%}"
        table.add_row(name, f"{found.without * 1e6:.1f}", f"{found.kept * 1e6:.1f}", *shares)
    Console(width=100, highlight=False).print(table)
    return 0 if worst <= COST_MAX else 1


class Measured(NamedTuple):
    """Seconds a pod, and shares of them."""

    without: float
    kept: float
    noting: float
    cost: float
    exact: float


def measured(nodes: Iterator[Node], rounds: int) -> Measured:
    driven = Driven(nodes)
    decisions = driven.core.scheduler.decisions
    # The clock that schedulers have; that of the thread, by which this is measured, takes five times as long to read.
    decisions.stopwatch = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    for _ in range(WARM_ROUNDS):
        driven.round(events=False)
    with_, without, costs, controls = [], [], [], []
    for number in range(rounds):
        taken: dict[str, float] = {}
        # Without, with, without; then with first, so that a cluster that fills up counts for neither.
        for what in ("before", "with", "after") if number % 2 else ("after", "with", "before"):
            decisions.keeps = what == "with"
            taken[what] = driven.round(events=False).scheduler / ROUND_PODS
        with_.append(taken["with"])
        without.append((taken["before"] + taken["after"]) / 2)
        costs.append(with_[-1] / without[-1] - 1)
        controls.append(taken["after"] / taken["before"] - 1)
    noting = _noting(driven, max(1, rounds // TIMED_IN))
    medians = statistics.median(without), statistics.median(with_), noting, statistics.median(costs)
    return Measured(*medians, abs(statistics.median(controls)))


def _noting(driven: Driven, rounds: int) -> float:
    """Seconds that one note takes, by the median."""
    decisions, clock = driven.core.scheduler.decisions, time.perf_counter
    decisions.keeps = True
    chose, seconds = decisions.chose, []

    def timed(*arguments: Any) -> None:
        began = clock()
        chose(*arguments)
        seconds.append(clock() - began)

    with patch.object(decisions, "chose", timed):
        for _ in range(rounds):
            driven.round(events=False)
    empty = []
    for _ in range(len(seconds)):
        began = clock()
        empty.append(clock() - began)
    return statistics.median(seconds) - statistics.median(empty)


def equal(count: int) -> Iterator[Node]:
    for number in range(count):
        yield a_node(f"node-{number}", amounts={"cpu": "64", "memory": "256Gi", "pods": "1000"})


def diverse(count: int) -> Iterator[Node]:
    """Nodes of all sizes."""
    random = Random(1)
    for number in range(count):
        # Pods of 10m on so small nodes leave hardly two with equal scores.
        amounts = {"cpu": f"{random.randrange(500, 4000)}m", "memory": f"{random.randrange(1000, 8000)}Mi", "pods": "1000"}
        yield a_node(f"node-{number}", amounts=amounts)


if __name__ == "__main__":
    sys.exit(main())
