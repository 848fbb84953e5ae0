"""`make bench`: workloads at one or more depths; JSON lines, and a table with the ratios to kube-scheduler's best.

engine     the scheduling cycle alone
scheduler  queue, cycle and workers as actors, binding into memory; what kube-scheduler was measured at
cluster    from gRPC to the client's watch, with etcd
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import calibration, end_to_end, scheduler_depth, workloads
from benchmarks.engine_depth import Differs, EngineRun
from benchmarks.measured import line
from benchmarks.memory_cluster import judge_of
from benchmarks.workloads import Workload
from rayched.cli.cluster.rehearsal import RehearsalFailed
from rayched.client.errors import ApiError
from rayched.configuration.profile_building import default_profile
from rayched.plugins import in_tree
from rayched.replica.cluster.local_cluster import ReplicaFailed
from rayched.replica.ray.local_ray import RayUnavailable

DEPTHS = ("engine", "scheduler", "cluster")
MANY_TEMPLATES = 1000


Once = Callable[[Workload, argparse.Namespace, int], dict[str, Any]]
"""One run of a workload with so many templates."""


class Invalid(Exception):
    """A run is not what it should be: one line."""


_PROBLEMS = (ValueError, Invalid, Differs, scheduler_depth.NotBound, RehearsalFailed, ReplicaFailed, RayUnavailable, ApiError)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    try:
        chosen = [
            workload.sized(options.nodes, options.init, options.measure) for workload in workloads.chosen(options.workloads)
        ]
        if options.nodes is not None or options.measure is not None:
            chosen = list({(one.name, one.nodes, one.init_pods, one.measured_pods): one for one in chosen}.values())
        lines = _run(chosen, options)
    except _PROBLEMS as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    _table(lines)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", choices=DEPTHS, default="scheduler")
    parser.add_argument("--workloads", help="names with commas between them; all by default")
    parser.add_argument("--nodes", type=int, help="instead of the workload's own number")
    parser.add_argument("--init", type=int, help="pods that are there before")
    parser.add_argument("--measure", type=int, help="pods that are measured")
    parser.add_argument("--percentage", type=int, default=100, help="percentageOfNodesToScore; 0: by the cluster's size")
    parser.add_argument(
        "--templates",
        type=_counts,
        default=(1, MANY_TEMPLATES),
        help=f"templates that the measured pods come from, a row for each number; 1,{MANY_TEMPLATES} by default",
    )
    parser.add_argument("--repeat", type=int, default=1, help="runs, of which the median counts")
    parser.add_argument("--workers", type=int, default=0, help="workers beside the SchedulerActor (depth scheduler)")
    parser.add_argument("--replicas", type=int, default=1, help="depth cluster")
    parser.add_argument("--verify", action="store_true", help="compare each decision with the plain evaluation (depth engine)")
    parser.add_argument("--json", type=Path, help="a file for the JSON lines, besides the output")
    return parser.parse_args(arguments)


def _counts(text: str) -> tuple[int, ...]:
    counts = tuple(int(one) for one in text.split(",") if one.isdecimal())
    if len(counts) != text.count(",") + 1 or 0 in counts:
        raise argparse.ArgumentTypeError(f"found {text!r}, numbers above 0 with commas between them are allowed")
    return counts


def _run(chosen: Sequence[Workload], options: argparse.Namespace) -> list[dict[str, Any]]:
    if options.depth == "engine":
        return _lines(_possible(chosen, options, "is_for_the_engine"), options, _engine)
    if options.depth == "cluster":
        return _lines(_possible(chosen, options, "is_for_a_cluster"), options, _cluster)
    with scheduler_depth.a_ray():
        return _lines(chosen, options, _scheduler)


def _possible(chosen: Sequence[Workload], options: argparse.Namespace, which: str) -> list[Workload]:
    """Those that there are at this depth. One that is asked for by name and is not there is an error."""
    found = [workload for workload in chosen if getattr(workload, which)]
    if options.workloads is not None:
        for name in {workload.name for workload in chosen} - {workload.name for workload in found}:
            raise ValueError(f"--workloads {name}: not at depth {options.depth}, as its pods come and go; use scheduler")
    return found


def _lines(chosen: Sequence[Workload], options: argparse.Namespace, once: Once) -> list[dict[str, Any]]:
    """One for each workload and number of templates: the median of the runs."""
    lines = []
    for workload in chosen:
        one_template: float | None = None
        for templates in options.templates:
            runs = [once(workload, options, templates) for _ in range(options.repeat)]
            runs.sort(key=_rate)
            found = runs[len(runs) // 2]
            if templates == 1:
                one_template = _rate(found)
            elif one_template is not None:
                found["share_of_one_template"] = round(_rate(found) / one_template, 3)
            lines.append(found)
            text = json.dumps(found)
            print(text, flush=True)
            if options.json is not None:
                with options.json.open("a") as file:
                    file.write(text + "\n")
    return lines


def _rate(found: dict[str, Any]) -> float:
    """By CPU where that is known."""
    return float(found["pods_per_cpu_second"] or found["pods_per_second"])


def _engine(workload: Workload, options: argparse.Namespace, templates: int) -> dict[str, Any]:
    profile = replace(default_profile(in_tree.IN_TREE), percentage_of_nodes_to_score=options.percentage)
    run = EngineRun(workload, profile, templates)
    measured = run.run(verify=options.verify)
    judge = judge_of(workload)
    for pod, node_name in run.placements:
        judge.place(pod, node_name)
    if judge.n_wrong:
        raise Invalid(f"{workload.name}: {judge.n_wrong} of {judge.placed} placements are not allowed: {'; '.join(judge.wrong)}")
    return line(workload, "engine", templates, options.percentage, measured, calibration.seconds())


def _scheduler(workload: Workload, options: argparse.Namespace, templates: int) -> dict[str, Any]:
    found = scheduler_depth.run(workload, options.percentage, templates, options.workers)
    if found.n_wrong:
        raise Invalid(f"{workload.name}: {found.n_wrong} placements are not allowed: {'; '.join(found.wrong)}")
    return line(workload, "scheduler", templates, options.percentage, found.measured, calibration.seconds())


def _cluster(workload: Workload, options: argparse.Namespace, templates: int) -> dict[str, Any]:
    run = end_to_end.run(workload, templates, options.percentage, options.replicas)
    if run.violations:
        raise Invalid(f"{workload.name}: the auditor found: {'; '.join(run.violations)}")
    found = line(workload, "cluster", templates, options.percentage, run.measured, calibration.seconds())
    return found | {"replicas": options.replicas}


def _table(lines: Sequence[dict[str, Any]]) -> None:
    print(
        f"{'workload':56}{'nodes':>7}{'init':>7}{'pods':>7}{'tmpl':>6}{'pods/s':>9}{'by CPU':>9}"
        f"{'ratio':>7}{'by CPU':>8}{'piece ms':>10}"
    )
    for one in lines:
        ratio, by_cpu = one.get("ratio_to_kube_scheduler"), one.get("ratio_by_cpu")
        print(
            f"{one['workload']:56}{one['nodes']:7}{one['init_pods']:7}{one['measured_pods']:7}{one['templates']:6}"
            f"{one['pods_per_second']:9.0f}{one['pods_per_cpu_second'] or 0:9.0f}"
            f"{'-' if ratio is None else ratio:>7}{'-' if by_cpu is None else by_cpu:>8}{one.get('longest_piece_ms', '-'):>10}"
        )
    ratios = [one["ratio_to_kube_scheduler"] for one in lines if "ratio_to_kube_scheduler" in one]
    if ratios:
        print(f"median ratio {statistics.median(ratios):.1f}, lowest {min(ratios):.1f}")


if __name__ == "__main__":
    sys.exit(main())
