"""What the pool of workers gains: `make pool`.

Workloads whose work is worth giving away, at depth `scheduler`: the real SchedulerActor, QueueActor and FilterScoreWorkers,
binding into memory. Each is run without workers and with them, in turn, some rounds; what counts is the ratio within a round.

| workload | what workers do |
|---|---|
| SimplePlugins | a filter and a score in the simple form, 20 us of Python a node, that read labels |
| SimpleUsage | a score in the simple form that reads usage, too |

Then a pool on a Ray cluster of which one node dies (`pool_raylets`).

Demanded: with workers at least RATIO_MIN of the rate without them, and no piece of the deciding thread's work above PIECE_MS_MAX.
Exit code 1 where a demand is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks import pool_raylets, scheduler_depth, workloads
from benchmarks.measured import Measured
from benchmarks.pool_plugins import SimpleFilter, SimpleScore, UsageScore
from benchmarks.workloads import Workload
from rayched.actors.configured import ProfilesText
from rayched.cli import printing
from rayched.testing.plugins import Plugins, configuration_with, python_path_with

RATIO_MIN: Final = 1.6
PIECE_MS_MAX: Final = 50.0
_LOAD_SECONDS: Final = 45.0
_LOAD_RATE: Final = 30.0
"""Pods a second, for the second part."""


@dataclass(frozen=True)
class Row:
    """One workload at one size."""

    name: str
    plugins: Plugins
    nodes: int
    pods: int
    templates: int

    @property
    def title(self) -> str:
        return f"{self.name}, {self.nodes:,} nodes, {self.pods:,} pods of {self.templates:,} templates"

    def workload(self) -> Workload:
        basic = workloads.chosen("SchedulingBasic")[0]
        return replace(basic, name=self.name, nodes=self.nodes, init_pods=0, measured_pods=self.pods)


_SIMPLE: Final[Plugins] = {"SimpleFilter": SimpleFilter, "SimpleScore": SimpleScore}
ROWS: Final = (
    Row("SimplePlugins", _SIMPLE, 5_000, 200, 50),
    Row("SimplePlugins", _SIMPLE, 5_000, 300, 300),
    Row("SimpleUsage", {"UsageScore": UsageScore}, 5_000, 200, 50),
)


@contextmanager
def _python_path(plugins: Plugins) -> Iterator[None]:
    """Processes that start meanwhile find the plugins."""
    before = os.environ.get("PYTHONPATH")
    with tempfile.TemporaryDirectory(prefix="pool-") as directory:
        os.environ["PYTHONPATH"] = python_path_with(plugins, Path(directory))
        try:
            yield
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before


def measured(row: Row, workers: int) -> Measured:
    """One run. Raises NotBound."""
    profiles = ProfilesText(configuration_with(row.plugins), "pool")
    with _python_path(row.plugins), scheduler_depth.a_ray():
        return scheduler_depth.run(row.workload(), 100, row.templates, workers, profiles).measured


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(prog="make pool", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="pairs in turn (3)")
    parser.add_argument("--workers", type=int, default=2, help="workers of the other half of each pair (2)")
    parser.add_argument("--only", choices=("rows", "raylets"), help="one of the two parts")
    parser.add_argument("--nodes", type=int, help="nodes, in place of each row's own number")
    given = parser.parse_args(arguments)
    missed = False
    if given.only != "raylets":
        missed = not _rows_met(given)
    if given.only != "rows":
        found = pool_raylets.killed_raylet(_LOAD_SECONDS, _LOAD_RATE)
        pool_raylets.tell(found)
        missed = missed or not found.is_met
    return 1 if missed else 0


def _rows_met(given: argparse.Namespace) -> bool:
    rows: list[Sequence[Any]] = []
    missed = False
    for row in ROWS:
        sized = row if given.nodes is None else replace(row, nodes=given.nodes)
        pairs = [(measured(sized, 0), measured(sized, given.workers)) for _ in range(given.rounds)]
        ratio = median(alone.seconds / shared.seconds for alone, shared in pairs)
        pieces = [median(one.longest_piece_ms for one in side) for side in zip(*pairs, strict=True)]
        seconds = [median(one.seconds for one in side) for side in zip(*pairs, strict=True)]
        is_met = ratio >= RATIO_MIN and pieces[1] <= PIECE_MS_MAX
        missed = missed or not is_met
        rows.append(
            (
                sized.title,
                *(f"{one:.2f}" for one in seconds),
                f"{ratio:.2f}",
                *(f"{one:.0f}" for one in pieces),
                "met" if is_met else "missed",
            )
        )
    titles = ("workload", "alone s", f"{given.workers} workers s", "ratio", "piece ms alone", "piece ms", "")
    printing.plain_table(titles, rows)
    return not missed


if __name__ == "__main__":
    sys.exit(main())
