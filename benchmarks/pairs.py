"""Two checkouts of rayched in turn: what a change costs, workload by workload.

`python -m benchmarks.pairs OTHER [--workloads NAMES] [--nodes-max N] [--templates 1,1000] [--rounds N]`. OTHER is the folder of
another checkout, set up (`make setup`): the one before the change. Each round runs `benchmarks.one_thread` in both, which of them
first in turn. What is compared is the CPU time of the scheduler's own stages for a pod. A ratio is that of one round, before by
after: above 1 the change is faster; a row has the median of its rounds.

Exit code 1 where a row falls below `ROW_MIN`, or the geometric mean of all rows below `MEAN_MIN`, or a run failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, Final

from benchmarks import workloads
from benchmarks.workloads import Workload
from rayched.cli import printing

HERE: Final = Path(__file__).parents[1]
STAGES: Final = ("watch", "decide", "writes", "answers", "exchange")
"""The scheduler's own; queue, store and benchmark are others'."""
ROW_MIN: Final = 0.95
MEAN_MIN: Final = 1.0
PODS_MIN: Final = 500
"""Fewer measured pods are not asked for where a workload is made smaller: plans would be all that is measured."""
RUN_SECONDS_MAX: Final = 600.0


class RunFailed(RuntimeError):
    """A run that did not place its pods, or did not end."""


@dataclass(frozen=True)
class Row:
    """One workload with one number of templates. Times are CPU microseconds a pod, one for each round."""

    name: str
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Above 1: faster than before."""
        return median(before / after for before, after in zip(self.before, self.after, strict=True))


def smaller(workload: Workload, nodes_max: int) -> Workload:
    """The workload with so many nodes at most, and with its pods in the same share of them."""
    share = nodes_max / workload.nodes
    if share >= 1:
        return workload
    pods = max(min(PODS_MIN, workload.measured_pods), round(workload.measured_pods * share))
    return workload.sized(nodes_max, round(workload.init_pods * share), pods)


def rows(sized: Sequence[Workload], templates: Sequence[int], rounds: int, before: Path) -> Iterator[Row]:
    for workload in sized:
        for count in templates:
            times: dict[Path, list[float]] = {before: [], HERE: []}
            for number in range(rounds):
                for checkout in (HERE, before) if number % 2 else (before, HERE):
                    times[checkout].append(_us_per_pod(checkout, workload, count))
            yield Row(f"{_label(workload)}, {count} templates", tuple(times[before]), tuple(times[HERE]))


def _label(workload: Workload) -> str:
    """Its name, nodes, pods that are there before, and measured pods."""
    return f"{workload.name} {workload.nodes}/{workload.init_pods}/{workload.measured_pods}"


def failures(found: Sequence[Row]) -> list[str]:
    """What is not allowed; of no row at all that there is none."""
    if not found:
        return ["no row was measured"]
    slow = [f"{row.name}: {row.ratio:.2f} of what it was, {ROW_MIN} are allowed" for row in found if row.ratio < ROW_MIN]
    mean = geometric_mean(row.ratio for row in found)
    return slow if mean >= MEAN_MIN else [*slow, f"the geometric mean of all rows is {mean:.3f}, {MEAN_MIN} are allowed"]


def _us_per_pod(checkout: Path, workload: Workload, templates: int) -> float:
    sizes = ("--nodes", workload.nodes, "--init", workload.init_pods, "--measure", workload.measured_pods)
    python = checkout / ".venv" / "bin" / "python"
    command = [python, "-m", "benchmarks.one_thread", workload.name, *sizes, "--templates", templates]
    try:
        ran = subprocess.run(
            [str(word) for word in command], cwd=checkout, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise RunFailed(f"{checkout}: {workload.name}: {problem}") from problem
    if ran.returncode != 0:
        last = (ran.stdout + ran.stderr).strip().splitlines()[-1:]
        raise RunFailed(f"{checkout}: {workload.name}: exit code {ran.returncode}: {''.join(last)[:400]}")
    found: dict[str, Any] = json.loads(ran.stdout)
    return sum(float(found["us_per_pod"].get(stage, 0.0)) for stage in STAGES)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs", description=__doc__)
    parser.add_argument("other", type=Path, metavar="OTHER", help="a checkout of the commit before")
    parser.add_argument("--workloads", metavar="NAMES", help="these instead of the published ones, separated by commas")
    parser.add_argument("--nodes-max", type=int, default=5000, metavar="N", help="larger workloads are made smaller")
    parser.add_argument("--templates", default="1,1000", help="numbers of templates, separated by commas (default 1,1000)")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    options = parser.parse_args(arguments)
    try:
        chosen = workloads.chosen(options.workloads) if options.workloads else workloads.published()
        sized = list({_label(found): found for found in (smaller(one, options.nodes_max) for one in chosen)}.values())
        templates = [int(word) for word in options.templates.split(",")]
        found = []
        for row in rows(sized, templates, options.rounds, options.other.resolve()):
            found.append(row)
            print(f"{row.ratio:6.2f}  {median(row.before):8.1f} us  {median(row.after):8.1f} us  {row.name}", flush=True)
    except (ValueError, RunFailed) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    ratios = [row.ratio for row in found]
    figures = [("rows", f"{len(found)}, {options.rounds} rounds each")]
    if found:
        figures += [("lowest", f"{min(ratios):.2f}"), ("geometric mean", f"{geometric_mean(ratios):.3f}")]
    printing.figures("before by after", figures)
    wrong = failures(found)
    for words in wrong:
        print(f"error: {words}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
