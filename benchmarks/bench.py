"""`make bench`: decisions per second in process and from end to end, one JSON line each.

`depth` engine: 5,000 nodes, 10,000 pods of one template, the engine and the snapshot alone (benchmarks/engine.py). `depth`
cluster: as many pods from gRPC to the client's watch, one replica (benchmarks/end_to_end.py).
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from benchmarks import end_to_end, engine
from rayched.cli.rehearsal import RehearsalFailed
from rayched.client.errors import ApiError
from rayched.framework.profile_building import default_profile
from rayched.plugins import in_tree
from rayched.replica.local_cluster import ReplicaFailed

_WORKLOAD = "SchedulingBasic"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench", description="Decisions per second, as JSON lines.")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--depth", choices=("engine", "cluster", "all"), default="all")
    parser.add_argument("--replicas", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.depth != "cluster":
        figures = engine.measure(default_profile(in_tree.IN_TREE), arguments.nodes, arguments.pods, [engine.a_pod(0)])
        pods_per_second = round(1e6 / figures["microseconds_per_pod"], 1)
        _print("engine", arguments.nodes, arguments.pods, {"pods_per_second": pods_per_second, **figures})
    if arguments.depth != "engine":
        try:
            run = end_to_end.run(arguments.nodes, arguments.pods, arguments.replicas)
        except (RehearsalFailed, ReplicaFailed, ApiError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        _print("cluster", arguments.nodes, arguments.pods, asdict(run))
        if run.violations:
            print(f"error: the auditor found {run.violations} kinds of violation", file=sys.stderr)
            return 1
    return 0


def _print(depth: str, nodes: int, pods: int, figures: dict[str, float]) -> None:
    line = {"workload": _WORKLOAD, "depth": depth, "nodes": nodes, "init_pods": 0, "measured_pods": pods}
    print(json.dumps({**line, **figures}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
