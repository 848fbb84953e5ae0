"""What the pool of workers gains: `make pool`.

Workloads whose work is worth giving away, at depth `scheduler`: the real SchedulerActor, QueueActor and FilterScoreWorkers,
binding into memory. Each is run without workers and with them, in turn, some rounds; what counts is the ratio within a round.

| workload | what workers do |
|---|---|
| SimplePlugins | a filter and a score in the simple form, 20 us of Python a node, that read labels |
| SimpleUsage | a score in the simple form that reads usage, too |
| FirstEvaluation | nothing: columns of the plugins of the default profile take less than handing them over |
| Preemption | nothing: counting plugins and dry runs stay where the snapshot is (docs/adr/0026) |

Then a pool on a Ray cluster of which one node dies (`pool_raylets`). `--only published` has the published workloads in place of
these, where workers must cost nothing.

Demanded: with workers at least RATIO_MIN of the rate without them where they do the work, NOTHING_LOST_MIN where they are asked
elsewhere, and no piece of the deciding thread's work above PIECE_MS_MAX where they do it. Where they are not asked at all the
scheduler does the same with them as without; so such rows are judged together, NOTHING_LOST_MIN for the geometric mean of
TOGETHER_MIN of them and more: one by itself shows what else the machine did. Exit code 1 where a demand is missed.

RATIO_MIN is that of a machine on which two processes do twice what one does. Before each pair it is measured what as many
processes as there are workers do here (`calibration.of_processes`); where that is less, less is demanded in proportion.
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
from statistics import geometric_mean, median
from typing import Any, Final

from benchmarks import calibration, pool_raylets, scheduler_depth, workloads
from benchmarks.measured import Measured
from benchmarks.pairs import smaller
from benchmarks.pool_plugins import SimpleFilter, SimpleScore, UsageScore
from benchmarks.workloads import Workload
from rayched.actors.configured import ProfilesText
from rayched.cli import printing
from rayched.testing.plugins import Plugins, configuration_with, python_path_with

RATIO_MIN: Final = 1.6
NOTHING_LOST_MIN: Final = 0.97
TOGETHER_MIN: Final = 8
PIECE_MS_MAX: Final = 50.0
_LOAD_SECONDS: Final = 45.0
_LOAD_RATE: Final = 30.0
"""Pods a second, for the second part."""


@dataclass(frozen=True)
class Row:
    """One workload at one size."""

    workload: Workload
    templates: int
    plugins: Plugins | None = None
    """Beside those of the default profile, in the simple form; None: workers have nothing to do."""
    rounds_max: int | None = None
    """Of what takes minutes."""

    @property
    def title(self) -> str:
        one = self.workload
        before = f" after {one.init_pods:,}" if one.init_pods else ""
        return f"{one.name}, {one.nodes:,} nodes, {one.measured_pods:,} pods{before} of {self.templates:,} templates"

    @property
    def ratio_min(self) -> float:
        return NOTHING_LOST_MIN if self.plugins is None else RATIO_MIN

    @property
    def piece_ms_max(self) -> float:
        return float("inf") if self.plugins is None else PIECE_MS_MAX


def _like(base: str, name: str, *, nodes: int = 5_000, init: int = 0, pods: int) -> Workload:
    found = replace(workloads.chosen(base)[0], name=name)
    return found.sized(nodes, init, pods)


_SIMPLE: Final[Plugins] = {"SimpleFilter": SimpleFilter, "SimpleScore": SimpleScore}
ROWS: Final = (
    Row(_like("SchedulingBasic", "SimplePlugins", pods=200), 50, _SIMPLE),
    Row(_like("SchedulingBasic", "SimplePlugins", pods=1_000), 1_000, _SIMPLE, rounds_max=1),
    Row(_like("SchedulingBasic", "SimpleUsage", pods=200), 50, {"UsageScore": UsageScore}),
    Row(_like("SchedulingBasic", "FirstEvaluation", nodes=100_000, pods=50), 50, rounds_max=3),
    Row(_like("OwnLabelsPreemption", "Preemption", init=200_000, pods=50), 1, rounds_max=3),
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
    profiles = None if row.plugins is None else ProfilesText(configuration_with(row.plugins), "pool")
    with _python_path(row.plugins or {}), scheduler_depth.a_ray():
        return scheduler_depth.run(row.workload, 100, row.templates, workers, profiles).measured


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(prog="make pool", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="pairs in turn (5; fewer of what takes minutes)")
    parser.add_argument("--workers", type=int, default=2, help="workers of the other half of each pair (2)")
    parser.add_argument("--only", choices=("rows", "raylets", "published"), help="one of the parts; published in place of all")
    parser.add_argument("--nodes-max", type=int, help="larger rows are made smaller")
    given = parser.parse_args(arguments)
    if given.only == "published":
        return 0 if _rows_met([Row(one, 1) for one in workloads.published()], given) else 1
    missed = False
    if given.only != "raylets":
        missed = not _rows_met(ROWS, given)
    if given.only != "rows":
        found = pool_raylets.killed_raylet(_LOAD_SECONDS, _LOAD_RATE)
        pool_raylets.tell(found)
        missed = missed or not found.is_met
    return 1 if missed else 0


def _rows_met(chosen: Sequence[Row], given: argparse.Namespace) -> bool:
    rows: list[Sequence[Any]] = []
    together: list[float] = []
    missed = False
    for row in chosen:
        sized = row if given.nodes_max is None else replace(row, workload=smaller(row.workload, given.nodes_max))
        pairs: list[tuple[Measured, Measured]] = []
        ceilings: list[float] = []
        for number in range(min(given.rounds, row.rounds_max or given.rounds)):
            if row.plugins is not None:
                ceilings.append(calibration.of_processes(given.workers))
            pairs.append(_pair(sized, given.workers, number))
        ceiling = min(given.workers, median(ceilings)) if ceilings else given.workers
        least = sized.ratio_min * ceiling / given.workers
        ratio = median(alone.seconds / shared.seconds for alone, shared in pairs)
        pieces = [median(one.longest_piece_ms for one in side) for side in zip(*pairs, strict=True)]
        seconds = [median(one.seconds for one in side) for side in zip(*pairs, strict=True)]
        asked = sum(shared.workers_asked for _, shared in pairs)
        is_alone = asked > 0 or row.plugins is not None
        is_met = (ratio >= least or not is_alone) and pieces[1] <= sized.piece_ms_max
        missed = missed or not is_met
        together += [] if is_alone else [ratio]
        rows.append(
            (
                sized.title,
                *(f"{one:.2f}" for one in seconds),
                f"{ratio:.2f}",
                f"{ceiling:.2f}" if ceilings else "-",
                f"{least:.2f}" if is_alone else "-",
                *(f"{one:.0f}" for one in pieces),
                f"{asked // len(pairs):,}",
                ("met" if is_met else "missed") if is_alone else "not asked",
            )
        )
        printing.note(f"{sized.title}: {ratio:.2f}")
    titles = (
        "workload",
        "alone s",
        f"{given.workers} workers s",
        "ratio",
        f"{given.workers} processes",
        "at least",
        "piece ms alone",
        "piece ms",
        "asked",
        "",
    )
    printing.plain_table(titles, rows)
    if len(together) >= TOGETHER_MIN:
        mean = geometric_mean(together)
        missed = missed or mean < NOTHING_LOST_MIN
        printing.out(f"{len(together)} rows in which no worker was asked: {mean:.3f}, at least {NOTHING_LOST_MIN}")
    return not missed


def _pair(row: Row, workers: int, number: int) -> tuple[Measured, Measured]:
    """Without and with them, which of them first in turn."""
    if number % 2:
        shared = measured(row, workers)
        return measured(row, 0), shared
    return measured(row, 0), measured(row, workers)


if __name__ == "__main__":
    sys.exit(main())
