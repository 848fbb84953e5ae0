"""`make bench-quick`: a small set for every change, in less than a minute. Fails when a workload has become half as fast.

What is compared is the work that fits into one calibration loop of the same run, by CPU time, with what was recorded in
`quick.json`; so it means the same on a slow machine and on a busy one. `--record` writes that file anew: do so on purpose only,
when something has become faster, or slower for a good reason.

`make bench-quick ARGS=--published` does the same with `published.json`, in some eight minutes: all sizes at which kube-scheduler
was measured, with one template and with 1,000, as `benchmarks.one_thread` runs them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from benchmarks import calibration, pairs, scheduler_depth, workloads
from benchmarks.engine_depth import EngineRun
from rayched.configuration.profile_building import default_profile
from rayched.plugins import in_tree
from rayched.replica.ray.local_ray import RayUnavailable

_HERE: Final = Path(__file__).parent
_TEMPLATES: Final = (1, 1_000)
"""Of the published workloads."""
_REPEAT: Final = 2
"""Runs of each at depth engine, of which the better counts."""
LOWEST: Final = 0.5
"""Of what was recorded."""
_ENGINE: Final = (
    ("SchedulingBasic", 500, 1000, 1),
    ("SchedulingBasic", 5000, 1000, 1),
    ("SchedulingBasic", 1000, 1000, 100),
    ("SchedulingPodAntiAffinity", 1000, 400, 1),
    ("SchedulingPodAffinity", 500, 400, 1),
    ("SchedulingPreferredPodAffinity", 1000, 400, 1),
    ("SchedulingNodeAffinity", 1000, 500, 1),
    ("TopologySpreading", 1000, 400, 1),
    ("PreferredTopologySpreading", 1000, 400, 1),
    ("DefaultTopologySpreading", 1000, 400, 1),
    ("SchedulingWithNodeInclusionPolicy", 1000, 400, 1),
    ("SchedulingDaemonset", 1000, 500, 1),
)
"""Workload, nodes, measured pods, templates."""
_SCHEDULER: Final = ("SchedulingBasic", 500, 4000, 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick", description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--published", action="store_true", help="all sizes at which kube-scheduler was measured")
    parser.add_argument("--record", action="store_true", help="write the reference anew")
    options = parser.parse_args()
    file = _HERE / ("published.json" if options.published else "quick.json")
    recorded: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    found: dict[str, float] = {}
    try:
        for name, amount in _published() if options.published else _measured():
            found[name] = amount
            share = f"{amount / recorded[name]:8.2f} of the reference" if name in recorded else "   not recorded yet"
            print(f"{name:88}{amount:10.1f} pods a calibration loop{share}", flush=True)
    except (scheduler_depth.NotBound, RayUnavailable, pairs.RunFailed) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    if options.record:
        file.write_text(json.dumps(found, indent=2) + "\n")
        return 0
    slow = fallen(found, recorded)
    for name in slow:
        print(f"error: {name} fell below {LOWEST} of its reference: see docs/performance.md", file=sys.stderr)
    return 1 if slow else 0


def fallen(found: Mapping[str, float], recorded: Mapping[str, float]) -> list[str]:
    """Rows that have become too slow, and recorded ones that are not measured any more."""
    return [name for name, amount in recorded.items() if found.get(name, 0.0) < LOWEST * amount]


def _measured() -> Iterator[tuple[str, float]]:
    """Each row's name and its pods per calibration loop."""
    profile = default_profile(in_tree.IN_TREE)
    for name, nodes, pods, templates in _ENGINE:
        workload = workloads.chosen(name)[0].sized(nodes, min(nodes // 2, 250), pods)
        rates = []
        for _ in range(_REPEAT):
            unit = calibration.seconds()
            rates.append(pods / EngineRun(workload, profile, templates).run().cpu_seconds["engine"] * unit)
        yield f"engine {name} {nodes} nodes {templates} templates", round(max(rates), 1)
    name, nodes, pods, templates = _SCHEDULER
    workload = workloads.chosen(name)[0].sized(nodes, 250, pods)
    with scheduler_depth.a_ray():
        unit = calibration.seconds()
        result = scheduler_depth.run(workload, 100, templates, 0)
    rate = pods / result.measured.cpu_seconds["scheduler"] * unit
    yield f"scheduler {name} {nodes} nodes {templates} templates", round(rate, 1)


def _published() -> Iterator[tuple[str, float]]:
    """The same of the published workloads, each in a process of its own. Raises pairs.RunFailed."""
    for workload in pairs.measured(workloads.published()):
        for templates in _TEMPLATES:
            name = f"one_thread {pairs.label(workload)} {templates} templates"
            unit = calibration.seconds()
            sizes = {"nodes": workload.nodes, "init": workload.init_pods, "measure": workload.measured_pods}
            options = [f"--{option}={number}" for option, number in {**sizes, "templates": templates}.items()]
            command = [sys.executable, "-m", "benchmarks.one_thread", workload.name, *options]
            done = subprocess.run(command, cwd=_HERE.parent, capture_output=True, text=True, check=False)
            if done.returncode:
                said = done.stderr.strip() or ", ".join(json.loads(done.stdout)["wrong"])
                raise pairs.RunFailed(f"{name}: {said.splitlines()[-1]}")
            us_per_pod = json.loads(done.stdout)["us_per_pod"]
            yield name, round(1e6 * unit / sum(us_per_pod[stage] for stage in pairs.STAGES), 1)


if __name__ == "__main__":
    sys.exit(main())
