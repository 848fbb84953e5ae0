"""What a submission costs, process by process: `python -m benchmarks.submissions`.

Three replicas and hollow nodes, as in the storm of `make failover`, but a fixed number of pods, as fast as they are taken.
Printed are microseconds of CPU for each submission in the client, in etcd, in the leading and the other replicas' processes,
in their SchedulerActors and in the rest of what the replicas started. That is CPU time as the kernel counts it, so it means
something on a busy machine too, where rates do not. What they use while nothing happens is measured before and taken off.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.load import small_pods
from benchmarks.processes import all_cpu_seconds, wait_until_quiet
from rayched.cli import printing
from rayched.cli.cluster.rehearsal import Rehearsal, RehearsalFailed, scratch_directory
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.ray.processes import descendants

_ZONES = 3
_CLIENTS = 4
_BATCH = 100
_QUIET_SECONDS_MAX = 300.0
_REST = "queue, workers, Ray"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.submissions", description="CPU for each submission, by process.")
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--nodes", type=int, default=1500)
    parser.add_argument("--scheduler-name", default="another-scheduler", help="of the pods; empty: they are scheduled meanwhile")
    parser.add_argument("--idle-seconds", type=float, default=5.0, help="how long to measure what is used while nothing happens")
    arguments = parser.parse_args()
    try:
        costs = _measured(arguments.pods, arguments.nodes, arguments.scheduler_name, arguments.idle_seconds)
    except (RehearsalFailed, ApiError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    rows = [(role, f"{seconds / arguments.pods * 1e6:6.1f} µs") for role, seconds in costs.items()]
    rows.append(("all", f"{sum(costs.values()) / arguments.pods * 1e6:6.1f} µs"))
    printing.figures(f"CPU for each of {arguments.pods:,} submissions", rows)
    return 0


def _measured(pods: int, nodes: int, scheduler_name: str, idle_seconds: float) -> dict[str, float]:
    """CPU seconds by role."""
    with scratch_directory("submissions") as directory:
        shape = NodeShape({"cpu": "64", "memory": "256Gi", "pods": "250"})
        with Rehearsal(directory, hollow_nodes(nodes, _ZONES, shape), agents=False, audit_later=True) as rehearsal:
            roles = _roles(rehearsal)
            leader = rehearsal.client.leader()
            _wait_until_quiet(roles)
            began, before = time.monotonic(), _used(roles)
            time.sleep(idle_seconds)
            idle = _since(before, roles)
            idle_for = time.monotonic() - began

            began, before, own = time.monotonic(), _used(roles), time.process_time()
            _submit(leader.address, pods, scheduler_name)
            own = time.process_time() - own
            _wait_until_quiet(roles)
            used = _since(before, roles)
            lasted = time.monotonic() - began
            after = rehearsal.client.leader()
            if after.epoch != leader.epoch:
                raise RehearsalFailed(f"the leader lost its lease: epoch {leader.epoch} became {after.epoch}")
    costs = {"client": own}
    for role in dict.fromkeys(roles.values()):
        costs[role] = max(0.0, used[role] - idle[role] * lasted / idle_for)
    return costs


def _submit(address: str, pods: int, scheduler_name: str) -> None:
    def run(number: int) -> None:
        endless = small_pods(f"load-{number}", scheduler_name=scheduler_name)
        with Client([address], timeout_seconds=60.0) as client:
            for _ in range(pods // _CLIENTS // _BATCH):
                for outcome in client.submit_many(itertools.islice(endless, _BATCH), timeout_seconds=60.0):
                    if outcome.error is not None:
                        raise RehearsalFailed(f"a submission was refused: {outcome.error}")

    with ThreadPoolExecutor(_CLIENTS) as pool:
        list(pool.map(run, range(_CLIENTS)))


def _roles(rehearsal: Rehearsal) -> dict[int, str]:
    """What each process is."""
    etcd = rehearsal.cluster.etcd
    assert etcd is not None and etcd.pid is not None
    roles = {etcd.pid: "etcd"}
    leader = rehearsal.leader()
    for replica in rehearsal.cluster.replicas:
        rank = "leader" if replica is leader else "standbys"
        roles[replica.pid] = f"{rank}: API"
        for pid in descendants(replica.pid):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_text()
            except OSError:
                continue
            roles[pid] = f"{rank}: scheduler" if "SchedulerProcess" in command else f"{rank}: {_REST}"
    return roles


def _used(roles: dict[int, str]) -> dict[str, float]:
    """CPU seconds so far, by role."""
    used = dict.fromkeys(roles.values(), 0.0)
    for pid, role in roles.items():
        used[role] += all_cpu_seconds(pid)
    return used


def _since(before: dict[str, float], roles: dict[int, str]) -> dict[str, float]:
    return {role: seconds - before[role] for role, seconds in _used(roles).items()}


def _wait_until_quiet(roles: dict[int, str]) -> None:
    """Until none of the processes that matter has had anything to do for a while. Raises RehearsalFailed."""
    watched = [pid for pid, role in roles.items() if not role.endswith(_REST)]
    if not wait_until_quiet(watched, _QUIET_SECONDS_MAX):
        raise RehearsalFailed(f"the processes did not come to rest within {_QUIET_SECONDS_MAX:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
