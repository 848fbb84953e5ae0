"""How fast gangs are bound, against the same pods without groups, at three depths.

| depth | what runs | what is demanded |
|---|---|---|
| core | scheduler and queue in this process, over a model of the store | 0.7 of the rate, for gangs of 10 and one of 1,000 |
| scheduler | their Ray actors, binding into memory (`benchmarks.scheduler_depth`) | 0.7 for gangs of 10 |
| cluster | a replica with its etcd (`benchmarks.end_to_end`) | 0.7 for gangs of 10, and one gang of 1,000 within 0.5 s |

Runs with groups and without take turns; the rate is the median of what the pairs show, as the machine may be slower from one
minute to the next. The time of one gang at depth cluster is the best of as many. An auditor reads what happens at depth cluster,
and every placement is judged at depth scheduler.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from benchmarks import end_to_end, gangs, scheduler_depth
from rayched.cli.cluster.rehearsal import RehearsalFailed
from tests.chaos.demands import Demands
from tests.core.builders import a_node, a_pod
from tests.core.grouped import a_group, a_member, put_group
from tests.core.leading import a_replica, put_node, put_pod

NODES: Final = 5_000
GROUPS: Final = 1_000
MEMBERS: Final = 10
PUBLISHED_MS: Final = {1_000: 3.7, 2_000: 5.0, 3_000: 5.7}
"""Milliseconds that an attempt for a gang takes kube-scheduler on 5,000 nodes, by how many gangs there are.

Source: kube-scheduler's own benchmark, test/integration/scheduler_perf/gangscheduling of Kubernetes, whose comments tell
what was measured. What is shown beside it is all that rayched's scheduler does for one, on this machine.
"""
PUBLISHED_MEMBERS: Final = 3
LARGE: Final = 1_000
"""Members of one large gang."""
RATE_MIN: Final = 0.7
"""Of the single pods' rate."""
LARGE_SECONDS_MAX: Final = 0.5
_ALL_NODES: Final = 100
"""Percent of the nodes are scored."""

Seconds = Callable[[int, int, int], float]
"""Nodes, pods, and the size of a gang or 0: seconds until all pods are bound. Raises where one is not, or wrongly."""


class WronglyBound(Exception):
    """Pods are where they may not be: one line."""


def play_speed(given: argparse.Namespace, demands: Demands) -> None:
    """At each depth that was asked for."""
    for depth in given.depth or ("core",):
        around, seconds = DEPTHS[depth]
        try:
            with around():
                _play(depth, seconds, given, demands)
        except (scheduler_depth.NotBound, RehearsalFailed, WronglyBound) as problem:
            demands.judge(f"{depth}: all pods are bound where they may be", "yes", problem, met=False)


def _play(depth: str, seconds: Seconds, given: argparse.Namespace, demands: Demands) -> None:
    nodes, pods = given.speed_nodes, given.speed_groups * MEMBERS

    def rate(count: int, size: int) -> float:
        """Of gangs, of the single pods'."""
        pairs = [(seconds(nodes, count, 0), seconds(nodes, count, size)) for _ in range(given.speed_rounds)]
        shown = ", ".join(f"{alone:.2f} and {together:.2f}" for alone, together in pairs)
        print(f"speed: {depth}: {count:,} single pods, and in gangs of {size:,}, took {shown} s", flush=True)
        return statistics.median(alone / together for alone, together in pairs)

    demands.at_least(f"{depth}: rate of gangs of {MEMBERS}, of the single pods' rate", RATE_MIN, rate(pods, MEMBERS))
    if depth == "scheduler":
        for gangs_there, published in PUBLISHED_MS.items():
            took = 1000 * seconds(nodes, gangs_there * PUBLISHED_MEMBERS, PUBLISHED_MEMBERS) / gangs_there
            print(
                f"speed: {gangs_there:,} gangs of {PUBLISHED_MEMBERS}: {took:.2f} ms each; kube-scheduler {published} ms",
                flush=True,
            )
    if depth == "core":
        demands.at_least(f"rate of a gang of {LARGE:,} by a plan, of {LARGE:,} single pods'", RATE_MIN, rate(LARGE, LARGE))
    elif depth == "cluster":
        large = min(seconds(nodes, LARGE, LARGE) for _ in range(given.speed_rounds))
        demands.at_most(f"{depth}: a gang of {LARGE:,}, from submission to the last binding", LARGE_SECONDS_MAX, large, " s")


def _in_the_core(nodes: int, pods: int, size: int) -> float:
    """Until pods that came at once are bound and seen."""
    replica = a_replica()
    for number in range(nodes):
        put_node(replica.store, a_node(f"n{number}", cpu="8"))
    # What is worked out once for a template is not counted.
    put_pod(replica.store, a_pod("first"))
    replica.settle()
    for number in range(pods):
        group = f"g{number // size}" if size else ""
        if size and not number % size:
            put_group(replica.store, a_group(group, size))
        put_pod(replica.store, a_member(f"{group}-{number}", group) if size else a_pod(f"p{number}"))
    began = time.perf_counter()
    replica.settle(rounds=1_000_000)
    took = time.perf_counter() - began
    assert len(replica.bound()) == pods + 1, "not all were bound"
    return took


def _in_the_scheduler(nodes: int, pods: int, size: int) -> float:
    """From the first pod handed to the watch until the last one was seen bound in the cache, within a Ray of its own."""
    found = scheduler_depth.run(gangs.a_workload(nodes, pods, size), _ALL_NODES, 1, 0)
    if found.n_wrong:
        raise WronglyBound(f"{found.n_wrong} placements are not allowed: {'; '.join(found.wrong)}")
    return found.measured.seconds


def _in_a_cluster(nodes: int, pods: int, size: int) -> float:
    """From the first submission until the client's watch has shown the last one bound; each run has a cluster of its own."""
    found = end_to_end.run(gangs.a_workload(nodes, pods, size), 1, _ALL_NODES)
    if found.violations:
        raise WronglyBound(f"the auditor found: {'; '.join(found.violations)}")
    return found.measured.seconds


DEPTHS: Final[dict[str, tuple[Callable[[], AbstractContextManager[None]], Seconds]]] = {
    "core": (nullcontext, _in_the_core),
    "scheduler": (scheduler_depth.a_ray, _in_the_scheduler),
    "cluster": (nullcontext, _in_a_cluster),
}
