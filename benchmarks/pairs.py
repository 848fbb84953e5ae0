"""Two checkouts of rayched in turn: what a change costs, workload by workload.

`python -m benchmarks.pairs OTHER [--workloads NAMES] [--measured] [--nodes-max N] [--templates 1,1000] [--rounds N]`. OTHER is
the folder of another checkout, set up (`make setup`): the one before the change. Each round runs the workload in both at once, as
`benchmarks.one_thread` does, on one processor and in turns of 10 ms, so that a host that is slower for a second is slower for
both; which of them begins changes by round. That bears light work beside it; dozens of busy processes empty the caches in each
turn, and rows then move by a fifth. What is compared is the CPU time of the scheduler's own stages for a pod. A ratio
is that of one round, before by after: above 1 the change is faster; a row has the median of its rounds.

Exit code 1 where a row falls below `ROW_MIN`, or the geometric mean of all rows below `MEAN_MIN`, or a run failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, Final, Self

from benchmarks import workloads
from benchmarks.kube_scheduler import best
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
_PIPE: Final = subprocess.PIPE
_CHILD: Final = Path(__file__).with_name("pairs_child.py")


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


def measured(published: Sequence[Workload]) -> list[Workload]:
    """Those of a size at which kube-scheduler was measured."""
    return [one for one in published if best(one.name, one.nodes, one.init_pods, one.measured_pods) is not None]


def rows(sized: Sequence[Workload], templates: Sequence[int], rounds: int, before: Path) -> Iterator[Row]:
    for workload in sized:
        for count in templates:
            times: dict[Path, list[float]] = {before: [], HERE: []}
            for number in range(rounds):
                order = (HERE, before) if number % 2 else (before, HERE)
                for checkout, us_per_pod in zip(order, _round(order, workload, count), strict=True):
                    times[checkout].append(us_per_pod)
            yield Row(f"{label(workload)}, {count} templates", tuple(times[before]), tuple(times[HERE]))


def label(workload: Workload) -> str:
    """Its name, nodes, pods that are there before, and measured pods."""
    return f"{workload.name} {workload.nodes}/{workload.init_pods}/{workload.measured_pods}"


def failures(found: Sequence[Row]) -> list[str]:
    """What is not allowed; of no row at all that there is none."""
    if not found:
        return ["no row was measured"]
    slow = [f"{row.name}: {row.ratio:.2f} of what it was, {ROW_MIN} are allowed" for row in found if row.ratio < ROW_MIN]
    mean = geometric_mean(row.ratio for row in found)
    return slow if mean >= MEAN_MIN else [*slow, f"the geometric mean of all rows is {mean:.3f}, {MEAN_MIN} are allowed"]


def _round(order: Sequence[Path], workload: Workload, templates: int) -> list[float]:
    """CPU microseconds a pod of each checkout. Raises RunFailed."""
    cpu = min(os.sched_getaffinity(0))
    with ExitStack() as stack:
        sides = [stack.enter_context(_Side(checkout, workload, templates, cpu)) for checkout in order]
        for side in sides:
            side.awaits_ready()
        going = sides
        while going:
            going = [side for side in going if side.goes_on()]
        return [side.us_per_pod() for side in sides]


class _Side:
    """A run in one checkout, which goes on while it is told to. Its process ends with the context."""

    def __init__(self, checkout: Path, workload: Workload, templates: int, cpu: int) -> None:
        sizes = (workload.nodes, workload.init_pods, workload.measured_pods)
        command = [checkout / ".venv" / "bin" / "python", _CHILD, workload.name, *sizes, templates, cpu]
        self._command = [str(word) for word in command]
        self._checkout, self._name = checkout, f"{checkout}: {workload.name}"
        self._last = ""

    def __enter__(self) -> Self:
        try:
            self._process = subprocess.Popen(
                self._command, cwd=self._checkout, stdin=_PIPE, stdout=_PIPE, stderr=_PIPE, text=True
            )
        except OSError as problem:
            raise RunFailed(f"{self._name}: {problem}") from problem
        self._timer = threading.Timer(RUN_SECONDS_MAX, self._process.kill)
        self._timer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.communicate()

    def awaits_ready(self) -> None:
        self._read("ready")

    def goes_on(self) -> bool:
        """One turn; whether there is more to do."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._read("more", "{")
        return not self._last.startswith("{")

    def us_per_pod(self) -> float:
        found: dict[str, Any] = json.loads(self._last)
        if found["wrong"]:
            raise RunFailed(f"{self._name}: {'; '.join(found['wrong'])[:400]}")
        return sum(float(found["us_per_pod"].get(stage, 0.0)) for stage in STAGES)

    def _read(self, *starts: str) -> None:
        assert self._process.stdout is not None
        self._last = self._process.stdout.readline()
        if not self._last.startswith(starts):
            self._process.kill()
            said = (self._last + self._process.communicate()[1]).strip().splitlines()[-1:]
            raise RunFailed(f"{self._name}: ended early: {''.join(said)[:400]}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs", description=__doc__)
    parser.add_argument("other", type=Path, metavar="OTHER", help="a checkout of the commit before")
    parser.add_argument("--workloads", metavar="NAMES", help="these instead of the published ones, separated by commas")
    parser.add_argument("--measured", action="store_true", help="only the sizes at which kube-scheduler was measured")
    parser.add_argument("--nodes-max", type=int, default=5000, metavar="N", help="larger workloads are made smaller")
    parser.add_argument("--templates", default="1,1000", help="numbers of templates, separated by commas (default 1,1000)")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    options = parser.parse_args(arguments)
    try:
        chosen = workloads.chosen(options.workloads) if options.workloads else workloads.published()
        chosen = measured(chosen) if options.measured else chosen
        sized = list({label(found): found for found in (smaller(one, options.nodes_max) for one in chosen)}.values())
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
