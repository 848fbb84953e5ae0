"""A part of the nodes is drained while budgets allow one unavailable pod of each app: `python -m benchmarks.drain`.

Three replicas, hollow nodes, apps whose pods are replaced when they go, and several `rayched drain` at a time, each a process of
its own that starts at another replica. On request the leader is killed in the middle. A witness counts the available pods of
every app after every revision of the API's watch. Exit code 1 when it ever counts less than all but one, when a drain does not
end well, when a drained node still has a pod, or when the auditor found a violation.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.apps import Apps
from rayched.cli import printing
from rayched.cli.cluster.rehearsal import Rehearsal, RehearsalFailed, apply_all, scratch_directory
from rayched.client.errors import ApiError
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.v1.core_pb2 import Pod

_ZONES = 3
_AVAILABLE_SECONDS_MAX = 60.0
_KILL_AT_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Plan:
    """How large, and how hard."""

    nodes: int = 100
    drained: int = 20
    apps: int = 20
    pods_each: int = 10
    replicas: int = 3
    drains: int = 3
    """How many commands at a time."""
    kill: bool = False
    """The leader, after a quarter of the evictions."""
    seconds_max: float = 300.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it."""

    seconds: float
    evicted: int
    left_on_drained_nodes: int
    lowest_share: float
    """Of an app's pods that were available at its worst revision."""
    wrong: tuple[str, ...]


def run(directory: Path, plan: Plan) -> Outcome:
    """Raises RehearsalFailed, ReplicaFailed, ApiError."""
    nodes = hollow_nodes(plan.nodes, _ZONES, NodeShape())
    with Rehearsal(directory, nodes, plan.replicas, options=["--workers", "0"]) as rehearsal:
        client = rehearsal.client
        apps = Apps(client, [f"app-{number}" for number in range(plan.apps)], plan.pods_each)
        apply_all(client, apps.objects())
        apps.start()
        try:
            if not apps.wait_until_available(_AVAILABLE_SECONDS_MAX):
                raise RehearsalFailed(f"the apps are not complete within {_AVAILABLE_SECONDS_MAX:.0f} s {apps.failure}")
            names = [node.metadata.name for node in nodes[:: plan.nodes // plan.drained]][: plan.drained]
            on_them = sum(pod.spec.node_name in names for pod in client.list("pods") if isinstance(pod, Pod))
            apps.arm()
            began = time.monotonic()
            wrong = _drain(rehearsal, apps, plan, names, on_them)
            seconds = time.monotonic() - began
            if not apps.wait_until_available(_AVAILABLE_SECONDS_MAX):
                wrong.append("the apps are not complete again")
            left = sum(pod.spec.node_name in names for pod in client.list("pods") if isinstance(pod, Pod))
        finally:
            apps.stop()
        seen = apps.seen
        wrong += [*seen.breaches[:3], *([apps.failure] if apps.failure else []), *rehearsal.verdict().words]
        if left:
            wrong.append(f"{left} pods are left on the drained nodes")
        if len(seen.ended) < on_them:
            wrong.append(f"{len(seen.ended)} pods went, {on_them} were on the nodes")
    lowest = min(seen.lowest.values(), default=plan.pods_each) / plan.pods_each
    return Outcome(round(seconds, 2), len(seen.ended), left, lowest, tuple(wrong))


def _drain(rehearsal: Rehearsal, apps: Apps, plan: Plan, names: list[str], pods: int) -> list[str]:
    """Runs the commands to their end; what is wrong, in words."""
    addresses = list(rehearsal.cluster.addresses)
    processes = []
    for number in range(plan.drains):
        order = addresses if plan.kill else [addresses[number % len(addresses)]]
        command = [sys.executable, "-m", "rayched.cli.main", "drain", *names[number :: plan.drains]]
        command += ["--timeout", f"{plan.seconds_max:.0f}s", "--server", ",".join(order)]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ))
    deadline = time.monotonic() + plan.seconds_max
    kill_at = max(1, int(pods * _KILL_AT_SHARE)) if plan.kill else None
    try:
        while any(process.poll() is None for process in processes):
            if kill_at is not None and len(apps.seen.ended) >= kill_at:
                kill_at = None
                rehearsal.kill_leader(signal.SIGKILL)
            if time.monotonic() > deadline:
                return [f"the drains have not ended within {plan.seconds_max:.0f} s"]
            time.sleep(0.05)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
    wrong = []
    for process in processes:
        _, errors = process.communicate()
        if process.returncode:
            wrong += [line for line in errors.splitlines() if line.startswith("error")][:3] or [f"exit code {process.returncode}"]
    if kill_at is not None:
        wrong.append("the drains ended before the leader was killed")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drain", description="Drains under disruption budgets.")
    plan = Plan()
    parser.add_argument("--nodes", type=int, default=plan.nodes)
    parser.add_argument("--drained", type=int, default=plan.drained)
    parser.add_argument("--apps", type=int, default=plan.apps)
    parser.add_argument("--pods-each", type=int, default=plan.pods_each)
    parser.add_argument("--drains", type=int, default=plan.drains, help="commands at a time")
    parser.add_argument("--kill", action="store_true", help="kill the leader in the middle")
    parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    plan = Plan(
        arguments.nodes,
        arguments.drained,
        arguments.apps,
        arguments.pods_each,
        drains=arguments.drains,
        kill=arguments.kill,
    )
    try:
        with scratch_directory("drain") as directory:
            outcome = run(directory, plan)
    except (RehearsalFailed, ApiError) as error:
        printing.note(f"error: {error}")
        return 1
    printing.figures(
        f"{plan.drained} of {plan.nodes} nodes drained, {plan.apps} apps of {plan.pods_each} pods",
        [
            ("took", f"{outcome.seconds:.1f} s, {plan.drains} commands at a time"),
            ("pods evicted", str(outcome.evicted)),
            ("fewest available pods of an app", f"{outcome.lowest_share:.0%}"),
            ("left on drained nodes", str(outcome.left_on_drained_nodes)),
            ("found wrong", "; ".join(outcome.wrong) or "nothing: no budget was ever broken"),
        ],
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(outcome), indent=2) + "\n")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
